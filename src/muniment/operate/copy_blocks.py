"""Copy blocks from one store to another, and check the hash of each."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from anyio.from_thread import BlockingPortal, start_blocking_portal

from muniment.protocol.errors import ContentNotFound, Integrity, StorageUnavailable
from muniment.service.blocks import IN_DATABASE, block_directory, is_in_s3, open_blocks, open_s3
from muniment.service.blocks.files import FileBlockStore
from muniment.service.storage import open_database

if TYPE_CHECKING:
    from muniment.service.blocks.store import BlockStore
    from muniment.service.running.settings import Settings

# Blocks are written in batches of this size. At most one more block is in memory, and Ctrl-C waits for one batch.
_BYTES_PER_BATCH: Final = 4 * 1024 * 1024
BLOCKS_PER_BATCH: Final = 500
# A bad sector of a disk costs the blocks in it. After this many failures in a row the disk itself is broken.
_UNREADABLE_IN_A_ROW_MAX: Final = 3


@dataclass(slots=True)
class Summary:
    """Numbers of blocks of the source: copied, already in the target, damaged."""

    copied: int = 0
    bytes: int = 0
    there: int = 0
    damaged: int = 0
    interrupted: bool = False

    def __str__(self) -> str:
        text = f"{self.copied} blocks copied ({self.bytes} bytes), {self.there} present, {self.damaged} damaged"
        return f"{text}; interrupted: run the command again to copy the rest" if self.interrupted else text


def copy(
    settings: Settings,
    source_url: str,
    target_url: str,
    *,
    on_progress: Callable[[int, int], None] | None,
    on_finding: Callable[[str], None],
    is_stopping: Callable[[], bool],
) -> Summary:
    """Open the stores at both URLs, and copy the blocks that the target lacks, as `copy_blocks` does.

    `on_progress` gets the number of blocks that are done, and of all; without it, the blocks are not counted first.
    Raises `ValueError` for a URL of no store, and `Unavailable` when a store does not answer.
    """
    with start_blocking_portal() as portal, ExitStack() as stack:
        source = stack.enter_context(_opened(portal, source_url, settings, is_source=True))
        target = stack.enter_context(_opened(portal, target_url, settings))
        return copy_blocks(
            source, target, on_block=_counter(source, on_progress), on_finding=on_finding, is_stopping=is_stopping
        )


def _counter(source: BlockStore, on_progress: Callable[[int, int], None] | None) -> Callable[[], None]:
    """A function that reports one more block to `on_progress`."""
    if on_progress is None:
        return lambda: None
    count, done = sum(1 for _ in source.digests()), itertools.count(1)
    on_progress(0, count)
    return lambda: on_progress(next(done), count)


def copy_blocks(
    source: BlockStore,
    target: BlockStore,
    *,
    on_block: Callable[[], None],
    on_finding: Callable[[str], None],
    is_stopping: Callable[[], bool],
    blocks_per_batch: int = BLOCKS_PER_BATCH,
) -> Summary:
    """Copy the blocks that `target` lacks. `on_finding` gets a line for each damaged block.

    `on_block` is called after each block of `source`, and `is_stopping` before it. Blocks are written in batches: the
    summary counts only blocks that are on disk.
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
                on_finding(f"WRONG block {digest.hex()}: {refusal.detail}")
        if len(batch) == blocks_per_batch or sum(len(data) for _, data in batch) >= _BYTES_PER_BATCH:
            put()
        on_block()
    put()
    return summary


def _compared(source: BlockStore, target: BlockStore) -> Iterator[tuple[bytes, bool]]:
    """Each digest of `source`, and whether `target` has it. Both stores list digests in the same order."""
    held = target.digests()
    known = next(held, None)
    for digest in source.digests():
        while known is not None and known < digest:
            known = next(held, None)
        yield digest, known == digest


def _reader(source: BlockStore) -> Callable[[bytes], bytes]:
    """`source.get`. Too many failures in a row raise `OSError`: the disk is broken."""
    unreadable = 0

    def read(digest: bytes) -> bytes:
        nonlocal unreadable
        try:
            data = source.get(digest)
        except StorageUnavailable as refusal:
            unreadable += 1
            if unreadable == _UNREADABLE_IN_A_ROW_MAX:
                raise OSError(refusal.detail) from refusal
            raise
        unreadable = 0
        return data

    return read


@contextmanager
def _opened(portal: BlockingPortal, url: str, settings: Settings, *, is_source: bool = False) -> Generator[BlockStore]:
    """The store at `url`, closed at the end. A database runs on the event loop of `portal`."""
    if (directory := block_directory(url, settings.data_dir)) is not None:
        if is_source and not directory.is_dir():
            raise ValueError(f"{directory} is not a directory of blocks")
        yield FileBlockStore(directory)
        return
    if is_in_s3(url):
        yield open_s3(url, spools=settings.data_dir)
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
