"""`muniment blocks copy`: take blocks from one store to another, each checked on the way."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import click
from anyio.from_thread import BlockingPortal, start_blocking_portal

from muniment.blocks import IN_DATABASE, block_directory, open_blocks
from muniment.blocks.files import FileBlockStore
from muniment.errors import ContentNotFound, Integrity, StorageUnavailable
from muniment.storage import open_database

if TYPE_CHECKING:
    from muniment.blocks.store import BlockStore
    from muniment.settings import Settings

# Bytes that are read before they are put: then a block more is in memory, and Ctrl-C waits for no more than these.
_BATCH_BYTES: Final = 4 * 1024 * 1024
_BATCH_BLOCKS: Final = 500
# A disk with a bad sector fails for the blocks that lie there; one that fails this often in a row is gone.
_UNREADABLE_IN_A_ROW_MAX: Final = 3
# How often a bar is drawn at most.
_BAR_STEPS: Final = 1_000
# What a shell reports of a command that Ctrl-C ended: 128 + SIGINT.
_INTERRUPTED: Final = 130


@dataclass(slots=True)
class Summary:
    """What became of the blocks of the source: how many were copied, were there already, or cannot be used."""

    copied: int = 0
    bytes: int = 0
    there: int = 0
    damaged: int = 0
    interrupted: bool = False

    @property
    def status(self) -> int:
        """The exit status."""
        return _INTERRUPTED if self.interrupted else int(self.damaged > 0)

    def __str__(self) -> str:
        told = f"{self.copied} blocks copied ({self.bytes} bytes), {self.there} were there, {self.damaged} damaged"
        return f"{told}; interrupted, the same command goes on from here" if self.interrupted else told


def copy(settings: Settings, source_url: str, target_url: str, *, as_json: bool = False) -> int:
    """Copy what the target lacks, with a bar on a terminal; the exit status: 1 when a block is damaged.

    Raises `ValueError` for URLs of no store, and `Unavailable` when a store does not answer.
    """
    with start_blocking_portal() as portal, ExitStack() as stack:
        source = stack.enter_context(_opened(portal, source_url, settings, is_source=True))
        target = stack.enter_context(_opened(portal, target_url, settings))
        is_stopping = stack.enter_context(_stops_at_ctrl_c())
        advance, tell = stack.enter_context(_progress(source))
        summary = copy_blocks(source, target, advance=advance, tell=tell, is_stopping=is_stopping)
    click.echo(json.dumps(asdict(summary)) if as_json else str(summary))
    return summary.status


def copy_blocks(
    source: BlockStore,
    target: BlockStore,
    *,
    advance: Callable[[], None],
    tell: Callable[[str], None],
    is_stopping: Callable[[], bool],
) -> Summary:
    """Copy what `target` lacks. `advance` is called for each block of `source`, `tell` for each that is damaged.

    Blocks are put a few at a time, and `is_stopping` is asked before each is read: so what is counted is durable.
    """
    summary = Summary()
    batch: list[tuple[bytes, bytes]] = []

    def put() -> None:
        target.put_many(batch)
        summary.copied += len(batch)
        summary.bytes += sum(len(data) for _, data in batch)
        batch.clear()

    read = _reader(source)
    for digest, is_there in _compared(source, target):
        if is_stopping():
            summary.interrupted = True
            break
        if is_there:
            summary.there += 1
        else:
            try:
                batch.append((digest, read(digest)))
            except (Integrity, ContentNotFound, StorageUnavailable) as refusal:
                summary.damaged += 1
                tell(f"WRONG block {digest.hex()}: {refusal.detail}")
        if len(batch) == _BATCH_BLOCKS or sum(len(data) for _, data in batch) >= _BATCH_BYTES:
            put()
        advance()
    put()
    return summary


def _compared(source: BlockStore, target: BlockStore) -> Iterator[tuple[bytes, bool]]:
    """The digests of `source`, and whether `target` has them: both are listed in the same order."""
    held = target.digests()
    known = next(held, None)
    for digest in source.digests():
        while known is not None and known < digest:
            known = next(held, None)
        yield digest, known == digest


def _reader(source: BlockStore) -> Callable[[bytes], bytes]:
    """`source.get`, of which a failure is that of one block, until too many follow one another."""
    unreadable = 0

    def read(digest: bytes) -> bytes:
        nonlocal unreadable
        try:
            data = source.get(digest)
        except StorageUnavailable as refusal:
            unreadable += 1
            if unreadable == _UNREADABLE_IN_A_ROW_MAX:
                raise click.ClickException(refusal.detail) from refusal
            raise
        unreadable = 0
        return data

    return read


@contextmanager
def _opened(portal: BlockingPortal, url: str, settings: Settings, *, is_source: bool = False) -> Generator[BlockStore]:
    """The store at `url`, which is closed in the end; a database is used on the loop of `portal`."""
    if (directory := block_directory(url, settings.data_dir)) is not None:
        if is_source and not directory.is_dir():
            raise ValueError(f"there is no directory of blocks at {directory}")
        yield FileBlockStore(directory)
        return
    is_own = url.endswith(":")
    database_url = settings.database_url if is_own else url
    database = portal.call(partial(open_database, database_url, data_dir=settings.data_dir))
    try:
        portal.call(database.check)
        yield open_blocks(
            url if is_own else IN_DATABASE, data_dir=settings.data_dir,
            database=database, database_url=database_url, loop=portal.call(asyncio.get_running_loop),
        )  # fmt: skip
    finally:
        portal.call(database.close)


@contextmanager
def _stops_at_ctrl_c() -> Generator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed. A second one stops at once, which harms no block either."""
    asked = threading.Event()

    def ask(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(source: BlockStore) -> Generator[tuple[Callable[[], None], Callable[[str], None]]]:
    """A bar where standard error is a terminal: how to move it on by a block, and how to print a line beside it."""
    if not sys.stderr.isatty():
        yield lambda: None, partial(click.echo, err=True)
        return
    count = sum(1 for _ in source.digests())
    steps = max(1, count // _BAR_STEPS)
    with click.progressbar(length=count, label="blocks", file=sys.stderr, update_min_steps=steps, show_pos=True) as bar:
        yield lambda: bar.update(1), lambda line: click.echo(f"\n{line}", err=True)
