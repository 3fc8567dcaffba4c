"""Back up a registry on SQLite: a snapshot of one moment, also while a service runs."""

from __future__ import annotations

import fcntl
import os
import re
import secrets as chance
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from muniment import durable
from muniment.operate.backup_format import (
    BLOCKS,
    DATABASE,
    DESCRIPTION,
    FORMAT,
    LOCK,
    SECRETS,
    SNAPSHOT,
    TLOG_KEY,
    BlockCopier,
    Contents,
    Description,
    OnProgress,
    block_rows,
    block_source,
    blocks_directory,
    check_functions,
    database_file,
    find_description,
    holds_blocks,
    lock,
    ring_ids,
    shown,
)
from muniment.protocol.wire import iso_time
from muniment.service.auth.secrets import RingFile
from muniment.service.blocks.files import FileBlockStore
from muniment.service.running.settings import variable
from muniment.service.storage.sqlite.snapshot import StillDatabase, take_snapshot

if TYPE_CHECKING:
    from muniment.service.running.settings import Settings

_OTHER_ENGINE: Final = (
    "back up PostgreSQL with pg_dump or with the backups of its cluster, copy the secrets, and copy blocks that are "
    "files with `muniment blocks copy`"
)
_NO_BACKUP: Final = "no backup was made; an earlier one is kept. Upload these bundles again to repair them"
# The names in the directory of a backup, complete or not. The directory may be the root of a disk (lost+found).
_OURS: Final = re.compile(rf"{DESCRIPTION}|\.{DESCRIPTION}\..*\.part|{BLOCKS}|{LOCK}|{SNAPSHOT.pattern}|lost\+found")


class Summary(Contents, frozen=True):
    """The contents of the backup. `secrets` are the ids of the ring, or None when the backup does not hold it."""

    directory: str
    made_at: str
    database_bytes: int
    blocks_copied: int
    secrets: list[str] | None

    def __str__(self) -> str:
        text = (
            f"backed up to {self.directory}: a database of {self.database_bytes} bytes ({Contents.__str__(self)}), "
            f"new blocks: {self.blocks_copied}"
        )
        if self.secrets is not None:
            return f"{text}, secrets: {len(self.secrets)}"
        return (
            f"{text}\nThe backup holds no secrets, because the registry uses no file of secrets. Back up "
            f"{variable('secret')} yourself: without it no API key is valid."
        )


def backup(
    settings: Settings, directory: Path, *, on_progress: OnProgress, on_finding: Callable[[str], None]
) -> Summary:
    """Back up the registry of `settings` to `directory`, which holds nothing else, and replace an earlier backup there.

    `on_finding` gets a line for each function with missing or damaged blocks. Raises `Refusal`, `ValueError` or
    `OSError`; an earlier backup stays in that case.
    """
    path = database_file(settings, _OTHER_ENGINE)
    with _claimed(directory, settings):
        _sweep(directory)  # a killed backup may fill the disk
        try:
            return _take(settings, path, directory, on_progress, on_finding)
        finally:
            _sweep(directory)


@contextmanager
def _claimed(directory: Path, settings: Settings) -> Generator[None]:
    """Make the directory of the backup and lock it. Raises `ValueError` when it holds other files."""
    durable.make_directory(directory)
    for path in sorted(directory.iterdir()):
        if not _OURS.fullmatch(path.name):
            raise ValueError(
                f"{directory} holds {path.name!r}, which is not part of a backup; name a directory for the backup alone"
            )
    blocks, target = blocks_directory(settings), directory / BLOCKS
    if blocks is not None and blocks.resolve() == target.resolve():
        raise ValueError(f"{target} is where the service keeps its own blocks; name another directory")
    find_description(directory)  # it refuses a backup of a newer release
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock(descriptor, fcntl.LOCK_EX, f"another command is using {directory}")
        yield
    finally:
        os.close(descriptor)


def _sweep(directory: Path) -> None:
    """Remove the rest of an interrupted backup, and the snapshot that the current backup has replaced."""
    described = find_description(directory)
    for path in directory.iterdir():
        if SNAPSHOT.fullmatch(path.name) and (described is None or path.name != described.snapshot):
            shutil.rmtree(path)
        elif path.name.endswith(".part"):
            path.unlink()


def _take(
    settings: Settings, path: Path, directory: Path, on_progress: OnProgress, on_finding: Callable[[str], None]
) -> Summary:
    """Copy the database, then its blocks, then the secrets, so every row has its blocks and every key its secret."""
    made_at = iso_time(time.time_ns() // 1_000_000)
    snapshot = directory / f"snapshot-{chance.token_hex(8)}"
    snapshot.mkdir(mode=0o700)
    copied = snapshot / DATABASE
    take_snapshot(path, copied, partial(on_progress, "database"))
    with StillDatabase(copied) as database:
        database.check()
        contents = Contents.of(database)
        new_blocks = _take_blocks(settings, database, directory, on_progress, on_finding)
    ids = _take_secrets(settings, snapshot)
    # The mark of the log is not copied: it records the newest checkpoint that this host has signed.
    if (key := settings.data_dir / TLOG_KEY).exists():
        durable.copy_file(key, snapshot / TLOG_KEY)
    description = Description(
        format=FORMAT, release=version("muniment"), made_at=made_at, snapshot=snapshot.name, secrets=ids,
        sha256=durable.sha256_of(copied), blocks="database" if holds_blocks(settings) else "files",
    )  # fmt: skip
    for each in (snapshot, directory):
        durable.flush_directory(each)
    with durable.whole_file((directory / DESCRIPTION).resolve()) as file:  # this makes the backup complete
        file.write(msgspec.json.format(msgspec.json.encode(description)) + b"\n")
    with suppress(OSError):  # the backup is complete even if the service's directory is read-only
        settings.backup_mark.touch(mode=0o600)
    return Summary(
        **msgspec.structs.asdict(contents), directory=shown(directory), made_at=made_at, secrets=ids,
        database_bytes=copied.stat().st_size, blocks_copied=new_blocks,
    )  # fmt: skip


def _take_blocks(
    settings: Settings,
    database: StillDatabase,
    directory: Path,
    on_progress: OnProgress,
    on_finding: Callable[[str], None],
) -> int:
    """Check all blocks of the functions, copy those that the backup lacks, and return the number of copies."""
    check = partial(
        check_functions, database,
        step="functions", advice=_NO_BACKUP, on_progress=on_progress, on_finding=on_finding,
    )  # fmt: skip
    if holds_blocks(settings):
        check(block_rows(database))
        return 0
    copier = BlockCopier(block_source(settings), FileBlockStore(directory / BLOCKS))
    check(copier)
    copier.flush()
    return copier.copied


def _take_secrets(settings: Settings, snapshot: Path) -> list[str] | None:
    """Copy the ring of secrets if it is a file, and return the ids of its secrets."""
    ring = settings.data_dir / SECRETS
    if settings.secret or not ring.exists():
        return None
    durable.copy_file(ring, snapshot / SECRETS)
    return ring_ids(RingFile(snapshot))
