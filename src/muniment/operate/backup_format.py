"""The format of a backup, and the check that a backup is complete.

A backup has a directory of its own with these files:

    backup.json             the description, which is replaced last and makes the backup complete
    snapshot-…/muniment.db  the database at one moment
    snapshot-…/secrets      the ring of secrets, if the registry keeps it in a file
    snapshot-…/tlog-key     the secret of the transparency log, if it is in a file
    blocks/ab/cdef…         the blocks, in the layout of a data directory; each is written once
    lock                    `muniment backup` locks it exclusively, `muniment restore` locks it shared
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from muniment.operate.verify import fault_of
from muniment.protocol.errors import ContentNotFound, Integrity
from muniment.protocol.ipfs.block import BLOCK_SIZE_MAX, GetBlock, check_block
from muniment.protocol.ipfs.cid import DAG_PB, SHA2_256, CidParts
from muniment.protocol.ipfs.dag import walk
from muniment.protocol.wire import DateTime, Record
from muniment.service.auth.secrets import RingFile, Secret
from muniment.service.blocks import IN_DATABASE, block_directory, is_in_s3, open_s3
from muniment.service.blocks.files import FileBlockStore
from muniment.service.resources.log.opening import KEY_FILE

if TYPE_CHECKING:
    from muniment.service.blocks.store import BlockStore
    from muniment.service.running.settings import Settings
    from muniment.service.storage.sqlite.snapshot import StillDatabase

# Progress of a step: its name, the work done, and all work.
OnProgress = Callable[[str, int, int], None]

FORMAT: Final = 1
DESCRIPTION: Final = "backup.json"
DATABASE: Final = "muniment.db"
SECRETS: Final = "secrets"
TLOG_KEY: Final = KEY_FILE
BLOCKS: Final = "blocks"
LOCK: Final = "lock"
_IN_SQLITE: Final = frozenset({IN_DATABASE, "sqlite:"})
SNAPSHOT: Final = re.compile("snapshot-[0-9a-f]{16}")
# A description has some 400 bytes.
_DESCRIPTION_BYTES_MAX: Final = 64 * 1024
# Blocks are written in batches of this size. At most two more blocks are in memory.
_BATCH_BYTES: Final = 4 * 1024 * 1024


class Description(Record, frozen=True):
    """The content of backup.json. `sha256` is the hash of the database; `secrets` are ids, newest first."""

    format: int
    release: str
    made_at: DateTime
    snapshot: Annotated[str, msgspec.Meta(pattern=f"^{SNAPSHOT.pattern}$")]
    sha256: str
    blocks: Literal["files", "database"]
    secrets: list[str] | None


class Contents(Record, frozen=True):
    """The numbers of users, functions, triggers, intents and runs."""

    users: int
    functions: int
    triggers: int
    intents: int
    runs: int

    @classmethod
    def of(cls, database: StillDatabase) -> Contents:
        """Count the rows of a database."""
        ((users, functions, triggers, intents, runs),) = database.fetch(
            "SELECT (SELECT count(*) FROM users), (SELECT count(*) FROM functions), (SELECT count(*) FROM triggers), "
            "(SELECT count(*) FROM intents), (SELECT count(*) FROM runs)"
        )
        return cls(users=users, functions=functions, triggers=triggers, intents=intents, runs=runs)

    def __str__(self) -> str:
        return (
            f"users: {self.users}, functions: {self.functions}, triggers: {self.triggers}, intents: {self.intents}, "
            f"runs: {self.runs}"
        )


class BlockCopier:
    """The blocks of `target`. A missing or damaged block is copied from `source` first."""

    def __init__(self, source: GetBlock, target: BlockStore) -> None:
        """Copy each block when it is read."""
        self._source, self._target = source, target
        self._batch: dict[bytes, bytes] = {}
        self._batch_bytes = 0
        self.copied = 0

    def __call__(self, digest: bytes) -> bytes:
        """The checked bytes of a block. Raises the errors of `source`."""
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
        """Write the batch of copied blocks to the disk."""
        self._target.put_many(self._batch.items())
        self.copied += len(self._batch)
        self._batch.clear()
        self._batch_bytes = 0


def database_file(settings: Settings, advice: str) -> Path:
    """The SQLite file of the settings. Raises `ValueError` with `advice` for another engine."""
    if not settings.database_url.startswith("sqlite:///"):
        raise ValueError(f"this command is for SQLite; {advice}")
    return settings.data_dir / settings.database_url.removeprefix("sqlite:///")


def blocks_directory(settings: Settings) -> Path | None:
    """The directory of the service's blocks, or None for blocks in SQLite or S3.

    Raises `ValueError`.
    """
    url = settings.blocks_url or "file:"
    directory = block_directory(url, settings.data_dir)
    if directory is None and not is_in_s3(url) and url not in _IN_SQLITE:
        raise ValueError(f"with SQLite, blocks are kept in file:, file:///path, s3://bucket/prefix or {IN_DATABASE}")
    return directory


def holds_blocks(settings: Settings) -> bool:
    """Whether the database holds the blocks. Otherwise a backup has them as files."""
    return settings.blocks_url in _IN_SQLITE


def block_source(settings: Settings) -> GetBlock:
    """A reader of the service's blocks outside of its database. Raises `ValueError` and `StorageUnavailable`."""
    directory = blocks_directory(settings)
    if directory is None:
        return open_s3(settings.blocks_url, spools=settings.data_dir).get
    return block_files(directory)


def block_target(settings: Settings) -> BlockStore:
    """The service's store of blocks outside of its database. Raises `ValueError` and `StorageUnavailable`."""
    directory = blocks_directory(settings)
    if directory is None:
        return open_s3(settings.blocks_url, spools=settings.data_dir)
    return FileBlockStore(directory)


def find_description(directory: Path) -> Description | None:
    """The description of the backup in `directory`, or None. Raises `ValueError` for a damaged description."""
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
    """A path as text, with replacements for bytes that are not UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def ring_ids(ring: RingFile) -> list[str]:
    """The ids of the secrets, newest first. An id does not reveal its secret."""
    return [Secret.derived_from(raw).id for raw in ring()]


def block_files(directory: Path) -> GetBlock:
    """A reader of blocks in files, which changes nothing in the directory, unlike a block store."""

    def get(digest: bytes) -> bytes:
        name = digest.hex()
        try:
            with (directory / name[:2] / name[2:]).open("rb") as file:
                return check_block(digest, file.read(BLOCK_SIZE_MAX + 1))
        except FileNotFoundError as error:
            raise ContentNotFound(f"block {name} is missing") from error

    return get


def block_rows(database: StillDatabase) -> GetBlock:
    """A reader of blocks in the table of a database."""

    def get(digest: bytes) -> bytes:
        for (data,) in database.fetch("SELECT data FROM blocks WHERE digest = ?", (digest,)):
            return check_block(digest, data)
        raise ContentNotFound(f"block {digest.hex()} is missing")

    return get


def check_functions(
    database: StillDatabase,
    get_block: GetBlock,
    *,
    step: str,
    advice: str,
    on_progress: OnProgress,
    on_finding: Callable[[str], None],
) -> None:
    """Read every block of every function. `on_finding` gets a line for each function with a missing or damaged block.

    `on_progress` gets `step`, the number of checked functions and the number of all. Raises `Integrity` with `advice`
    at the end if a function was reported.
    """

    def check(root: CidParts) -> None:
        for _ in walk(get_block, root):
            pass

    wrong = 0
    ((count,),) = database.fetch("SELECT count(*) FROM functions")
    on_progress(step, 0, count)
    for done, (digest,) in enumerate(database.fetch("SELECT digest FROM functions ORDER BY seq"), 1):
        root = CidParts(0, DAG_PB, SHA2_256, digest)
        if fault := fault_of(check, root):
            wrong += 1
            on_finding(f"WRONG function {root.text}: {fault}")
        on_progress(step, done, count)
    if wrong:
        raise Integrity(f"{wrong} of {count} functions have missing or damaged blocks; {advice}")


def lock(descriptor: int, operation: int, conflict: str) -> None:
    """Lock an open file (flock(2)) until it is closed. Raises `ValueError` with the message `conflict`."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ValueError(conflict) from error
