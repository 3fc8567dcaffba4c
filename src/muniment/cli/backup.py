"""`muniment backup`: a registry as it is at one moment, taken while it is served."""

from __future__ import annotations

import fcntl
import os
import re
import secrets as chance
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from muniment import durable
from muniment.auth.secrets import RingFile
from muniment.blocks.files import FileBlockStore
from muniment.cli.backed_up import (
    BLOCKS,
    DATABASE,
    DESCRIPTION,
    FORMAT,
    LOCK,
    SECRETS,
    SNAPSHOT,
    Contents,
    Copying,
    Description,
    block_files,
    block_rows,
    check_functions,
    database_file,
    files_of,
    find_description,
    lock,
    progress,
    ring_ids,
    shown,
)
from muniment.cli.registry import NoRegistryError
from muniment.cli.whole_file import written
from muniment.settings import variable
from muniment.storage.sqlite.snapshot import StillDatabase, take_snapshot
from muniment.wire import iso_time

if TYPE_CHECKING:
    from muniment.settings import Settings

_OTHER_ENGINE: Final = (
    "back PostgreSQL up with pg_dump or its cluster's own backups, copy the secrets, and blocks that are files with "
    "`muniment blocks copy`"
)
_NOT_MADE: Final = "no backup was made, an earlier one stays; to upload these bundles again mends them"
# What a backup leaves in its directory, finished or not; a disk's own directory may be the one of the backup.
_OURS: Final = re.compile(rf"{DESCRIPTION}|\.{DESCRIPTION}\..*\.part|{BLOCKS}|{LOCK}|{SNAPSHOT.pattern}|lost\+found")


class Summary(Contents, frozen=True):
    """What was backed up; `secrets` are the ids of the ring, null where it is not part of the backup."""

    directory: str
    made_at: str
    database_bytes: int
    blocks_copied: int
    secrets: list[str] | None

    def __str__(self) -> str:
        told = (
            f"backed up to {self.directory}: a database of {self.database_bytes} bytes ({Contents.__str__(self)}), "
            f"new blocks: {self.blocks_copied}"
        )
        if self.secrets is not None:
            return f"{told}, secrets: {len(self.secrets)}"
        return (
            f"{told}\nThe secrets are no part of it, there is no file of them in use: keep those of "
            f"{variable('secret')} yourself; without them every API key ends."
        )


def run(settings: Settings, directory: Path, *, as_json: bool = False) -> None:
    """Back the registry of `settings` up to `directory`, which holds nothing else; what is there is refreshed.

    Raises `Refusal`, `ValueError` or `OSError`, or `click.ClickException` when functions lack blocks. An earlier
    backup stays then.
    """
    path = database_file(settings, _OTHER_ENGINE)
    if not path.is_file():
        raise NoRegistryError(f"there is no registry to back up: no file {path}")
    with _claimed(directory, settings):
        _sweep(directory)  # the disk may have no room beside what a killed one left
        try:
            summary = _take(settings, path, directory)
        finally:  # what failed, or what was replaced
            _sweep(directory)
    click.echo(msgspec.json.encode(summary).decode() if as_json else str(summary))


@contextmanager
def _claimed(directory: Path, settings: Settings) -> Generator[None]:
    """A directory for a backup and nothing else, held while one is made."""
    durable.make_directory(directory)
    for path in sorted(directory.iterdir()):
        if not _OURS.fullmatch(path.name):
            raise ValueError(
                f"{directory} holds {path.name!r}, which is no part of a backup; name a directory of its own"
            )
    blocks, target = files_of(settings), directory / BLOCKS
    if blocks is not None and blocks.resolve() == target.resolve():
        raise ValueError(f"{target} is where the service keeps its own blocks; name another directory")
    find_description(directory)  # one that a newer release made is left alone
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock(descriptor, fcntl.LOCK_EX, f"another command is at work in {directory}")
        yield
    finally:
        os.close(descriptor)


def _sweep(directory: Path) -> None:
    """Remove what belongs to no backup that was finished, or to an earlier one."""
    described = find_description(directory)
    for path in directory.iterdir():
        if SNAPSHOT.fullmatch(path.name) and (described is None or path.name != described.snapshot):
            shutil.rmtree(path)
        elif path.name.endswith(".part"):
            path.unlink()


def _take(settings: Settings, path: Path, directory: Path) -> Summary:
    """The database, then its blocks, then the secrets: so every row has its blocks, and its keys their secret."""
    made_at = iso_time(time.time_ns() // 1_000_000)
    snapshot = directory / f"snapshot-{chance.token_hex(8)}"
    snapshot.mkdir(mode=0o700)
    copied = snapshot / DATABASE
    with progress("database") as advance:
        take_snapshot(path, copied, advance)
    with StillDatabase(copied) as database:
        database.check()
        contents = Contents.of(database)
        new_blocks = _take_blocks(settings, database, directory)
    ids = _take_secrets(settings, snapshot)
    description = Description(
        format=FORMAT, release=version("muniment"), made_at=made_at, snapshot=snapshot.name, secrets=ids,
        sha256=durable.sha256_of(copied), blocks="database" if files_of(settings) is None else "files",
    )  # fmt: skip
    for each in (snapshot, directory):
        durable.flush_directory(each)
    with written(str(directory / DESCRIPTION)) as file:  # from here on it is the backup
        file.write(msgspec.json.format(msgspec.json.encode(description)) + b"\n")
    return Summary(
        **msgspec.structs.asdict(contents), directory=shown(directory), made_at=made_at, secrets=ids,
        database_bytes=copied.stat().st_size, blocks_copied=new_blocks,
    )  # fmt: skip


def _take_blocks(settings: Settings, database: StillDatabase, directory: Path) -> int:
    """Copy the blocks of the functions in `database` that the backup lacks, and check all of them; how many."""
    source = files_of(settings)
    if source is None:
        check_functions(database, block_rows(database), label="functions", otherwise=_NOT_MADE)
        return 0
    copying = Copying(block_files(source), FileBlockStore(directory / BLOCKS))
    check_functions(database, copying, label="functions", otherwise=_NOT_MADE)
    copying.flush()
    return copying.copied


def _take_secrets(settings: Settings, snapshot: Path) -> list[str] | None:
    """Copy the ring of secrets where it is a file; the ids of its secrets."""
    ring = settings.data_dir / SECRETS
    if settings.secret or not ring.exists():
        return None
    durable.copy_file(ring, snapshot / SECRETS)
    return ring_ids(RingFile(snapshot))
