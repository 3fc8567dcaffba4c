"""`muniment restore`: a backup becomes a registry, of which nothing can be served before all of it is there."""

from __future__ import annotations

import fcntl
import os
import secrets as chance
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from muniment import durable
from muniment.auth.secrets import RING_SIZE_MAX, RingFile
from muniment.blocks.files import FileBlockStore
from muniment.cli.backed_up import (
    BLOCKS,
    DATABASE,
    LOCK,
    SECRETS,
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
    ring_ids,
    shown,
)
from muniment.cli.epoch import begin_in_file
from muniment.errors import Integrity
from muniment.settings import variable
from muniment.storage.sqlite.snapshot import StillDatabase

if TYPE_CHECKING:
    from muniment.settings import Settings

_OTHER_ENGINE: Final = (
    "restore PostgreSQL with its own tools, then end every key of before: `muniment secrets rotate`, and `retire` "
    "until the new secret is alone"
)
# What stands in the place of the database until the end: no database, so that nothing starts from it.
_MARK: Final = b"This is no database: `muniment restore` has not finished here. Run it again.\n"
_MARK_SUFFIX: Final = ".mark"
_STAGED_SUFFIX: Final = ".restoring"
_QUESTION: Final = (
    "The backup revives API keys that were rotated out since it was made, and used nonces.\n"
    "End every API key, token and nonce of before? Users log in again and read their new key."
)


class Summary(Contents, frozen=True):
    """What was restored; `secrets` are the ids of the ring, null where it is not the data directory's."""

    made_at: str
    data_dir: str
    blocks_copied: int
    rotated: bool
    secrets: list[str] | None

    def __str__(self) -> str:
        if self.secrets is None:
            of_keys = (
                f"The secrets are not from the backup: give them to the service in {variable('secret')}, or a new one "
                "alone, which ends every API key, token and nonce of before."
            )
        elif self.rotated:
            of_keys = f"Every API key, token and nonce of before has ended; the new secret is {self.secrets[0]}."
        else:
            of_keys = (
                "API keys, tokens and nonces of before are good again. `muniment secrets rotate`, then `retire` until "
                "the new secret is alone, ends them."
            )
        return (
            f"restored the backup of {self.made_at} to {self.data_dir} ({Contents.__str__(self)})\n{of_keys}\n"
            "Cursors of before are refused (410 cursor-too-old): whoever follows a listing begins it again.\n"
            "Next: `muniment verify`, then `muniment serve`, with the same settings."
        )


def run(settings: Settings, directory: Path, *, rotate: bool | None, as_json: bool = False) -> None:
    """Restore the backup in `directory` to where `settings` lead, which is no registry yet.

    `rotate` None asks on the terminal. Raises `Refusal`, `ValueError`, `OSError` or `click.ClickException`; before
    the first byte is written, but for a disk that fails.
    """
    place = database_file(settings, _OTHER_ENGINE)
    if rotate is None and not sys.stdin.isatty():
        raise ValueError("say --rotate or --no-rotate: whether every API key, token and nonce of before is to end")
    with _shared(directory):
        described = find_description(directory)
        if described is None:
            raise ValueError(f"there is no whole backup in {directory}")
        _check_apart(settings, place, directory)
        _check_place(settings, place)
        _check_fit(settings, described, rotate=rotate)
        with _checked(directory, described) as database:
            if rotate is None:
                rotate = not _is_elsewhere(settings, described) and click.confirm(_QUESTION, default=True, err=True)
            summary = _restore(settings, place, directory, described, database, rotate=rotate)
    click.echo(msgspec.json.encode(summary).decode() if as_json else str(summary))


@contextmanager
def _shared(directory: Path) -> Generator[None]:
    """Keep a backup from being refreshed meanwhile. A copy of one may have no lock, and needs none."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        lock(descriptor, fcntl.LOCK_SH, f"a backup to {directory} is being made")
        yield
    finally:
        os.close(descriptor)


def _check_apart(settings: Settings, place: Path, directory: Path) -> None:
    """Raise `ValueError` where a registry would lie in its own backup, which holds nothing else."""
    if any(_is_one(each, directory) for each in (settings.data_dir, place.parent)):
        raise ValueError(f"{directory} is the backup itself: restore into another directory")
    blocks, source = files_of(settings), directory / BLOCKS
    if blocks is not None and _is_one(blocks, source):
        raise ValueError(f"{source} is where the backup has its blocks: give the service a directory of its own")


def _is_one(path: Path, other: Path) -> bool:
    """Whether both lead to one directory."""
    return path.exists() and other.exists() and path.samefile(other)


def _check_place(settings: Settings, place: Path) -> None:
    """Raise `ValueError` where a registry is, or the rest of one. What an interrupted restore left is none."""
    if place.exists() and _is_mark(place):
        return
    # A log without its database would be replayed into the one that comes to lie beside it.
    names = (place.name, *(f"{place.name}-{suffix}" for suffix in ("wal", "shm", "journal")))
    for path in (*(place.with_name(name) for name in names), settings.data_dir / SECRETS):
        if os.path.lexists(path):
            raise ValueError(f"{path} is there: restore into a data directory that holds no registry")


def _check_fit(settings: Settings, described: Description, *, rotate: bool | None) -> None:
    """Raise `ValueError` where these settings would not find what is restored, or cannot rotate it."""
    here = "database" if files_of(settings) is None else "files"
    if described.blocks != here:
        url = "database:" if described.blocks == "database" else "file:"
        raise ValueError(
            f"the backup has its blocks in {'the' if url == 'database:' else 'their'} {described.blocks}: restore with "
            f"{variable('blocks_url')}={url}, then move them with `muniment blocks copy`"
        )
    if rotate and _is_elsewhere(settings, described):
        reason = f"{variable('secret')} is set" if settings.secret else "the backup holds no secrets"
        raise ValueError(
            f"--rotate has nothing to rotate, {reason}: take --no-rotate, and put a new secret, alone, into "
            f"{variable('secret')} before anything is served"
        )


def _is_elsewhere(settings: Settings, described: Description) -> bool:
    """Whether the registry's secrets are not those of a backup, but what an operator gives to the service."""
    return bool(settings.secret) or described.secrets is None


@contextmanager
def _checked(directory: Path, described: Description) -> Generator[StillDatabase]:
    """The database of a backup that is whole, and of this release or an older one."""
    snapshot = directory / described.snapshot
    _check_hash(durable.sha256_of(snapshot / DATABASE), described)
    with StillDatabase(snapshot / DATABASE) as database:
        database.check()
        if newer := database.newer_migrations():
            raise ValueError(
                f"the backup was made by muniment {described.release} and has migration {newer[-1]}, which this older "
                "release lacks"
            )
        get_block = block_rows(database) if described.blocks == "database" else block_files(directory / BLOCKS)
        check_functions(database, get_block, label="checking", otherwise="nothing was restored")
        if described.secrets is not None:
            path = snapshot / SECRETS
            if not path.is_file() or ring_ids(RingFile(snapshot)) != described.secrets:
                raise Integrity(f"{path} is not the ring of secrets that was backed up")
        yield database


def _restore(
    settings: Settings, place: Path, directory: Path, described: Description, database: StillDatabase, *, rotate: bool
) -> Summary:
    """Blocks, then secrets, then the database: by the last step a registry is there, and all of it.

    The database begins another epoch, since new rows get the numbers of those that came after the backup.
    """
    durable.make_directory(settings.data_dir)
    durable.make_directory(place.parent)
    snapshot = directory / described.snapshot
    with _marked(place):
        copied = 0
        if (blocks := files_of(settings)) is not None:
            copying = Copying(block_files(directory / BLOCKS), FileBlockStore(blocks))
            check_functions(database, copying, label="copying", otherwise="the backup was changed meanwhile")
            copying.flush()
            copied = copying.copied
        staged = place.with_name(place.name + _STAGED_SUFFIX)
        for suffix in ("", "-wal", "-shm", "-commits"):  # what an interrupted one left; a log would be replayed
            staged.with_name(staged.name + suffix).unlink(missing_ok=True)
        _check_hash(durable.copy_file(snapshot / DATABASE, staged), described)
        begin_in_file(staged)
        staged.with_name(f"{staged.name}-commits").unlink(missing_ok=True)
        ids = None
        if not _is_elsewhere(settings, described):
            ids = _put_secrets(snapshot / SECRETS, settings.data_dir, rotate=rotate)
        staged.replace(place)
        durable.flush_directory(place.parent)
    return Summary(
        **msgspec.structs.asdict(Contents.of(database)), made_at=described.made_at, data_dir=shown(settings.data_dir),
        blocks_copied=copied, rotated=rotate, secrets=ids,
    )  # fmt: skip


def _check_hash(sha256: str, described: Description) -> None:
    if sha256 != described.sha256:
        raise Integrity("the database of the backup is not the one that was backed up: its SHA-256 differs")


@contextmanager
def _marked(place: Path) -> Generator[None]:
    """Hold the place of the database, by a file that is none, against a service and another restore."""
    if not place.exists():
        aside = place.with_name(f"{place.name}.{chance.token_hex(8)}{_MARK_SUFFIX}")
        try:
            durable.write_file(aside, _MARK)
            with suppress(FileExistsError):  # whoever was faster is found out below
                os.link(aside, place)
        finally:
            aside.unlink(missing_ok=True)
        durable.flush_directory(place.parent)
    with place.open("rb") as mark:
        lock(mark.fileno(), fcntl.LOCK_EX, f"another restore is at work on {place}")
        if not os.path.samestat(os.fstat(mark.fileno()), place.stat()) or not _is_mark(place):
            raise ValueError(f"{place} is there now: a registry was made meanwhile")
        for left in place.parent.iterdir():
            if left.name.startswith(f"{place.name}.") and left.name.endswith(_MARK_SUFFIX):
                left.unlink(missing_ok=True)
        yield


def _is_mark(place: Path) -> bool:
    with place.open("rb") as file:
        return file.read(len(_MARK) + 1) == _MARK


def _put_secrets(source: Path, data_dir: Path, *, rotate: bool) -> list[str]:
    """Put a backup's ring into the data directory, with `rotate` a new secret alone; the ids of what is there then."""
    folder = data_dir / f"{SECRETS}{_STAGED_SUFFIX}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    durable.copy_file(source, folder / SECRETS)
    ring = RingFile(folder)
    if rotate:
        _end_all(ring)
    ids = ring_ids(ring)
    ring.path.replace(data_dir / SECRETS)
    durable.flush_directory(data_dir)
    folder.rmdir()
    return ids


def _end_all(ring: RingFile) -> None:
    """A new secret, and none of those of before."""
    if len(ring()) == RING_SIZE_MAX:
        ring.retire()
    ring.rotate()
    while len(ring()) > 1:
        ring.retire()
