"""Restore a backup to a registry, which the service cannot open before it is complete."""

from __future__ import annotations

import fcntl
import os
import secrets as chance
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from muniment import durable
from muniment.operate.backup_format import (
    BLOCKS,
    DATABASE,
    LOCK,
    SECRETS,
    TLOG_KEY,
    BlockCopier,
    Contents,
    Description,
    OnProgress,
    block_files,
    block_rows,
    block_target,
    blocks_directory,
    check_functions,
    database_file,
    find_description,
    holds_blocks,
    lock,
    ring_ids,
    shown,
)
from muniment.operate.databases import begin_epoch_in_file
from muniment.protocol.errors import Integrity
from muniment.service.auth.secrets import RING_SIZE_MAX, RingFile
from muniment.service.resources.intents.nonces import shared_in_file
from muniment.service.running.settings import variable
from muniment.service.storage.sqlite.snapshot import StillDatabase

if TYPE_CHECKING:
    from muniment.service.running.settings import Settings

_OTHER_ENGINE: Final = (
    "restore PostgreSQL with its own tools, then revoke earlier keys: `muniment secrets rotate`, and `retire` until "
    "only the new secret is left"
)
_STAGED_SUFFIX: Final = ".restoring"
# A placeholder is at the path of the database until a restore is complete. The service cannot start from it.
PLACEHOLDER: Final = b"This is no database: `muniment restore` has not finished here. Run it again.\n"
_MARK_SUFFIX: Final = ".mark"


class Summary(Contents, frozen=True):
    """The contents of the new registry. `secrets` are ids, or None when the data directory holds no ring."""

    made_at: str
    data_dir: str
    blocks_copied: int
    rotated: bool
    secrets: list[str] | None

    def __str__(self) -> str:
        if self.secrets is None:
            of_keys = (
                f"No secrets were restored. Set {variable('secret')} to the old ones, or to one new secret, which "
                "revokes every earlier API key, token and nonce."
            )
        elif self.rotated:
            of_keys = f"Every earlier API key, token and nonce is revoked; the new secret is {self.secrets[0]}."
        else:
            of_keys = (
                "Earlier API keys, tokens and nonces are valid again. To revoke them: `muniment secrets rotate`, then "
                "`retire` until only the new secret is left."
            )
        return (
            f"restored the backup of {self.made_at} to {self.data_dir} ({Contents.__str__(self)})\n{of_keys}\n"
            "Earlier cursors are refused (410 cursor-too-old): clients that follow a listing start over.\n"
            "Next: `muniment verify`, then `muniment serve`, with the same settings."
        )


def restore(
    settings: Settings,
    directory: Path,
    *,
    wants_rotation: Callable[[], bool],
    rotate: bool | None,
    on_progress: OnProgress,
    on_finding: Callable[[str], None],
) -> Summary:
    """Restore the backup in `directory` to the place of `settings`, which has no registry yet.

    With `rotate` None and secrets in the backup, `wants_rotation` decides after the checks. `on_finding` gets a line
    for each function with missing or damaged blocks, and each pair of intents with one nonce, also restored.
    Raises `Refusal`, `ValueError` or `OSError`; after the first write only for a failing disk.
    """
    place = database_file(settings, _OTHER_ENGINE)
    with _shared(directory):
        described = find_description(directory)
        if described is None:
            raise ValueError(f"{directory} has no complete backup")
        _check_apart(settings, place, directory)
        _check_place(settings, place)
        _check_fit(settings, described, rotate=rotate)
        with _checked(directory, described, on_progress, on_finding) as database:
            for line in shared_in_file(database):
                on_finding(line)
            if rotate is None:
                rotate = not _has_own_secrets(settings, described) and wants_rotation()
            copy_blocks = partial(
                check_functions, database,
                step="copying", advice="the backup was changed meanwhile",
                on_progress=on_progress, on_finding=on_finding,
            )  # fmt: skip
            return _restore(settings, place, directory, described, database, rotate=rotate, copy_blocks=copy_blocks)


@contextmanager
def _shared(directory: Path) -> Generator[None]:
    """Lock the backup against replacement. A copy of a backup may lack the lock file."""
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
    """Raise `ValueError` when the registry would lie inside its own backup."""
    if any(_is_one(each, directory) for each in (settings.data_dir, place.parent)):
        raise ValueError(f"{directory} is the backup itself: restore into another directory")
    blocks, source = blocks_directory(settings), directory / BLOCKS
    if blocks is not None and _is_one(blocks, source):
        raise ValueError(f"the backup keeps its blocks in {source}: give the service another directory")


def _is_one(path: Path, other: Path) -> bool:
    """Whether both paths name the same directory."""
    return path.exists() and other.exists() and path.samefile(other)


def _check_place(settings: Settings, place: Path) -> None:
    """Raise `ValueError` for a registry or a part of it. The rest of an interrupted restore is allowed."""
    if place.exists() and _is_placeholder(place):
        return
    # SQLite would replay a log without its database into the restored database.
    names = (place.name, *(f"{place.name}-{suffix}" for suffix in ("wal", "shm", "journal")))
    for path in (*(place.with_name(name) for name in names), settings.data_dir / SECRETS):
        if os.path.lexists(path):
            raise ValueError(f"{path} exists: restore into a data directory that holds no registry")


def _check_fit(settings: Settings, described: Description, *, rotate: bool | None) -> None:
    """Raise `ValueError` when the service would not find the blocks with these settings, or `rotate` is impossible."""
    here = "database" if holds_blocks(settings) else "files"
    if described.blocks != here:
        url = "database:" if described.blocks == "database" else "file:"
        raise ValueError(
            f"the backup has its blocks in {'the database' if url == 'database:' else 'files'}: restore with "
            f"{variable('blocks_url')}={url}, then move them with `muniment blocks copy`"
        )
    if rotate and _has_own_secrets(settings, described):
        reason = f"{variable('secret')} is set" if settings.secret else "the backup holds no secrets"
        raise ValueError(
            f"--rotate cannot work, because {reason}: use --no-rotate, and set "
            f"{variable('secret')} to one new secret before you start the service"
        )


def _has_own_secrets(settings: Settings, described: Description) -> bool:
    """Whether the operator gives the secrets to the service, and the backup does not."""
    return bool(settings.secret) or described.secrets is None


@contextmanager
def _checked(
    directory: Path, described: Description, on_progress: OnProgress, on_finding: Callable[[str], None]
) -> Generator[StillDatabase]:
    """The database of a backup, after a check that the backup is complete and not from a newer release."""
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
        check_functions(
            database, get_block,
            step="checking", advice="nothing was restored", on_progress=on_progress, on_finding=on_finding,
        )  # fmt: skip
        if described.secrets is not None:
            path = snapshot / SECRETS
            if not path.is_file() or ring_ids(RingFile(snapshot)) != described.secrets:
                raise Integrity(f"{path} differs from the ring of secrets that was backed up")
        yield database


def _restore(
    settings: Settings,
    place: Path,
    directory: Path,
    described: Description,
    database: StillDatabase,
    *,
    rotate: bool,
    copy_blocks: Callable[[BlockCopier], None],
) -> Summary:
    """Restore the blocks, then the secrets, then the database, which completes the registry.

    The database begins a new epoch, because new rows get the numbers of rows after the backup.
    """
    durable.make_directory(settings.data_dir)
    durable.make_directory(place.parent)
    snapshot = directory / described.snapshot
    with _reserved(place):
        copied = 0
        if not holds_blocks(settings):
            copier = BlockCopier(block_files(directory / BLOCKS), block_target(settings))
            copy_blocks(copier)
            copier.flush()
            copied = copier.copied
        staged = place.with_name(place.name + _STAGED_SUFFIX)
        for suffix in ("", "-wal", "-shm"):  # SQLite would replay the log of an interrupted restore
            staged.with_name(staged.name + suffix).unlink(missing_ok=True)
        _check_hash(durable.copy_file(snapshot / DATABASE, staged), described)
        begin_epoch_in_file(staged)
        ids = None
        if not _has_own_secrets(settings, described):
            ids = _put_secrets(snapshot / SECRETS, settings.data_dir, rotate=rotate)
        _put_log_key(snapshot / TLOG_KEY, settings.data_dir / TLOG_KEY)
        staged.replace(place)
        durable.flush_directory(place.parent)
    return Summary(
        **msgspec.structs.asdict(Contents.of(database)), made_at=described.made_at, data_dir=shown(settings.data_dir),
        blocks_copied=copied, rotated=rotate, secrets=ids,
    )  # fmt: skip


def _check_hash(sha256: str, described: Description) -> None:
    if sha256 != described.sha256:
        raise Integrity("the database of the backup has changed since it was made: its SHA-256 differs")


def _put_secrets(source: Path, data_dir: Path, *, rotate: bool) -> list[str]:
    """Put the ring of a backup, or with `rotate` only a new secret, into the data directory; return the ids."""
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


def _put_log_key(source: Path, target: Path) -> None:
    """Put the secret of the transparency log into the data directory, unless it has a newer one."""
    if not source.is_file() or target.exists():
        return
    staged = target.with_name(target.name + _STAGED_SUFFIX)
    staged.unlink(missing_ok=True)
    durable.copy_file(source, staged)
    staged.replace(target)
    durable.flush_directory(target.parent)


def _end_all(ring: RingFile) -> None:
    """Leave one new secret in the ring."""
    if len(ring()) == RING_SIZE_MAX:
        ring.retire()
    ring.rotate()
    while len(ring()) > 1:
        ring.retire()


@contextmanager
def _reserved(place: Path) -> Generator[None]:
    """Reserve the path of the database with a placeholder: neither a service nor another restore can use it."""
    if not place.exists():
        aside = place.with_name(f"{place.name}.{chance.token_hex(8)}{_MARK_SUFFIX}")
        try:
            durable.write_file(aside, PLACEHOLDER)
            with suppress(FileExistsError):  # another command was faster; the check below tells which
                os.link(aside, place)
        finally:
            aside.unlink(missing_ok=True)
        durable.flush_directory(place.parent)
    with place.open("rb") as mark:
        lock(mark.fileno(), fcntl.LOCK_EX, f"another restore is using {place}")
        if not os.path.samestat(os.fstat(mark.fileno()), place.stat()) or not _is_placeholder(place):
            raise ValueError(f"{place} exists now: another command made a registry there")
        for left in place.parent.iterdir():
            if left.name.startswith(f"{place.name}.") and left.name.endswith(_MARK_SUFFIX):
                left.unlink(missing_ok=True)
        yield


def _is_placeholder(place: Path) -> bool:
    """Whether the file at `place` is a placeholder. Raises `OSError`."""
    with place.open("rb") as file:
        return file.read(len(PLACEHOLDER) + 1) == PLACEHOLDER
