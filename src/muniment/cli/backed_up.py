"""What a backup is, and how it proves to be whole.

A directory of its own holds

    backup.json             what belongs together; replaced last, so that there is always a whole backup or none
    snapshot-…/muniment.db  the database at one moment
    snapshot-…/secrets      the ring of secrets, where it is a file
    blocks/ab/cdef…         blocks as in a data directory, written once
    lock                    held by a backup alone, shared by those who restore
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import click
import msgspec

from muniment.auth.secrets import RingFile, Secret
from muniment.blocks import IN_DATABASE, block_directory
from muniment.cli.verified import fault_of
from muniment.errors import ContentNotFound, Integrity
from muniment.ipfs.block import BLOCK_SIZE_MAX, GetBlock, check_block
from muniment.ipfs.cid import DAG_PB, SHA2_256, CidParts
from muniment.ipfs.dag import walk
from muniment.wire import DateTime, Record

if TYPE_CHECKING:
    from muniment.blocks.store import BlockStore
    from muniment.settings import Settings
    from muniment.storage.sqlite.snapshot import StillDatabase

FORMAT: Final = 1
DESCRIPTION: Final = "backup.json"
DATABASE: Final = "muniment.db"
SECRETS: Final = "secrets"
BLOCKS: Final = "blocks"
LOCK: Final = "lock"
SNAPSHOT: Final = re.compile("snapshot-[0-9a-f]{16}")
# A description is some 400 bytes.
_DESCRIPTION_BYTES_MAX: Final = 64 * 1024
# Blocks that are put at once: then two blocks more are in memory at most.
_BATCH_BYTES: Final = 4 * 1024 * 1024


class Description(Record, frozen=True):
    """What backup.json says: `sha256` is that of the database, `secrets` are the ids of the ring, newest first."""

    format: int
    release: str
    made_at: DateTime
    snapshot: Annotated[str, msgspec.Meta(pattern=f"^{SNAPSHOT.pattern}$")]
    sha256: str
    blocks: Literal["files", "database"]
    secrets: list[str] | None


class Contents(Record, frozen=True):
    """How many there are of what an operator knows."""

    users: int
    functions: int
    triggers: int

    @classmethod
    def of(cls, database: StillDatabase) -> Contents:
        """Count the rows of a database."""
        ((users, functions, triggers),) = database.fetch(
            "SELECT (SELECT count(*) FROM users), (SELECT count(*) FROM functions), (SELECT count(*) FROM triggers)"
        )
        return cls(users=users, functions=functions, triggers=triggers)

    def __str__(self) -> str:
        return f"users: {self.users}, functions: {self.functions}, triggers: {self.triggers}"


class Copying:
    """Blocks as they are in `target`, which gets from `source` those that it lacks or has damaged."""

    def __init__(self, source: GetBlock, target: BlockStore) -> None:
        """Nothing is read before a block is asked for."""
        self._source, self._target = source, target
        self._batch: dict[bytes, bytes] = {}
        self._batch_bytes = 0
        self.copied = 0

    def __call__(self, digest: bytes) -> bytes:
        """The bytes of a block, hashed anew; raises what `source` raises."""
        if digest in self._batch:
            return self._batch[digest]
        try:
            return self._target.get(digest)
        except (ContentNotFound, Integrity):
            data = self._batch[digest] = self._source(digest)
        self._batch_bytes += len(data)
        if self._batch_bytes >= _BATCH_BYTES:
            self.flush()
        return data

    def flush(self) -> None:
        """Make durable what was copied."""
        self._target.put_many(self._batch.items())
        self.copied += len(self._batch)
        self._batch.clear()
        self._batch_bytes = 0


def database_file(settings: Settings, otherwise: str) -> Path:
    """The SQLite file of the settings. Raises `ValueError`, which says `otherwise`, for another engine."""
    if not settings.database_url.startswith("sqlite:///"):
        raise ValueError(f"this command is for SQLite; {otherwise}")
    return settings.data_dir / settings.database_url.removeprefix("sqlite:///")


def files_of(settings: Settings) -> Path | None:
    """The directory of the service's blocks, or None where they are in its SQLite database."""
    directory = block_directory(settings.blocks_url or "file:", settings.data_dir)
    if directory is None and settings.blocks_url not in {IN_DATABASE, "sqlite:"}:
        raise ValueError(f"blocks beside SQLite are kept in file:, file:///path or {IN_DATABASE}")
    return directory


def find_description(directory: Path) -> Description | None:
    """What the backup in `directory` says of itself, if there is one. Raises `ValueError` when it cannot be read."""
    path = directory / DESCRIPTION
    try:
        with path.open("rb") as file:
            text = file.read(_DESCRIPTION_BYTES_MAX)
        made_by = msgspec.json.decode(text, type=dict[str, object]).get("format")
        if isinstance(made_by, int) and made_by > FORMAT:
            raise ValueError(f"{path} was made by a newer release, in format {made_by}")
        return msgspec.json.decode(text, type=Description)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def shown(path: Path) -> str:
    """A path to print, which may have a name that is no UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def ring_ids(ring: RingFile) -> list[str]:
    """The ids of the secrets, newest first, which may be shown."""
    return [Secret.derived_from(raw).id for raw in ring()]


def block_files(directory: Path) -> GetBlock:
    """Blocks from files, of which nothing is changed."""

    def get(digest: bytes) -> bytes:
        name = digest.hex()
        try:
            with (directory / name[:2] / name[2:]).open("rb") as file:
                return check_block(digest, file.read(BLOCK_SIZE_MAX + 1))
        except FileNotFoundError as error:
            raise ContentNotFound(f"block {name} is missing") from error

    return get


def block_rows(database: StillDatabase) -> GetBlock:
    """Blocks from the table of a database."""

    def get(digest: bytes) -> bytes:
        for (data,) in database.fetch("SELECT data FROM blocks WHERE digest = ?", (digest,)):
            return check_block(digest, data)
        raise ContentNotFound(f"block {digest.hex()} is missing")

    return get


def check_functions(database: StillDatabase, get_block: GetBlock, *, label: str, otherwise: str) -> None:
    """Read every block of every function, and name the functions of which one is missing or damaged.

    Raises `click.ClickException`, which says `otherwise`, when there are any. `label` is that of a progress bar.
    """

    def check(root: CidParts) -> None:
        for _ in walk(get_block, root):
            pass

    wrong = 0
    with progress(label) as advance:
        ((count,),) = database.fetch("SELECT count(*) FROM functions")
        for done, (digest,) in enumerate(database.fetch("SELECT digest FROM functions ORDER BY seq"), 1):
            root = CidParts(0, DAG_PB, SHA2_256, digest)
            if fault := fault_of(check, root):
                wrong += 1
                click.echo(f"WRONG function {root.text}: {fault}", err=True)
            advance(done, count)
    if wrong:
        raise click.ClickException(f"{wrong} of {count} functions lack blocks or have damaged ones; {otherwise}")


def lock(descriptor: int, operation: int, taken: str) -> None:
    """Take a lock (flock(2)) that ends with the descriptor. Raises `ValueError`, which says `taken`."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ValueError(taken) from error


@contextmanager
def progress(label: str) -> Generator[Callable[[int, int], None]]:
    """A bar where standard error is a terminal: it is told what is done, and what there is."""
    if not sys.stderr.isatty():
        yield lambda done, count: None  # noqa: ARG005 - it is called as the one that draws is
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def advance(done: int, count: int) -> None:
            bar.length = max(count, 1)
            bar.update(done - bar.pos)

        yield advance
