"""Checks of the database of either engine: migrations, rights, clock. `servers` has those of PostgreSQL alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from muniment.errors import Refusal, Unavailable
from muniment.maintenance.doctor.findings import Finding, fail, ok, warn
from muniment.storage import sqlite_file

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.settings import Settings
    from muniment.storage.database import Database

# The clock of a process is in doubt at five minutes; NTP keeps clocks within a tenth of a second.
CLOCK_MS_WARN: Final = 5_000
CLOCK_MS_FAIL: Final = 300_000


async def check_migrations(database: Database) -> Finding:
    """Whether the database answers, and has every migration of this release."""
    try:
        await database.check()
    except Unavailable as refusal:
        is_behind = "migrations" in (refusal.detail or "")
        remedy = "muniment migrate" if is_behind else "look at the database, its address and its log"
        return fail("database", refusal.detail, remedy)
    return ok("database", "it answers and has every migration")


async def check_clock(database: Database, now_ms: int) -> Finding:
    """Whether the clock of this machine agrees with that of the database server."""
    try:
        theirs = await database.time_ms()
    except Refusal as refusal:
        return fail("clock", refusal.detail, "look at the database")
    if theirs is None:
        return ok("clock", "SQLite has no clock of its own")
    ahead = now_ms - theirs
    shown = f"{abs(ahead) / 1000:.1f} s {'ahead of' if ahead > 0 else 'behind'} the database"
    if abs(ahead) > CLOCK_MS_FAIL:
        return fail("clock", shown, "set the clock that is wrong, by NTP: until then new records are refused")
    if abs(ahead) > CLOCK_MS_WARN:
        return warn("clock", shown, "set the clocks by NTP")
    return ok("clock", shown)


def check_file_rights(settings: Settings) -> list[Finding]:
    """Whether this user may write the files of an SQLite database."""
    path = sqlite_file(settings.database_url, data_dir=settings.data_dir)
    if path is None:
        return []
    files = [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))]
    closed = [str(each) for each in (path.parent, *files) if _is_closed(each)]
    if closed:
        remedy = "run doctor as the service's user; else repair owner and mode, or mount the disk for writing"
        return [fail("rights", f"this user cannot write {', '.join(closed)}", remedy)]
    owner = _owner(path.parent)
    strange = [str(each) for each in files if _owner(each) not in {None, owner}]
    if strange:
        remedy = "run every command as the service's user; chown these files to it"
        return [warn("rights", f"another user than that of the directory owns {', '.join(strange)}", remedy)]
    return [ok("rights", "this user may write the database")]


def _is_closed(path: Path) -> bool:
    """Whether the file is there and cannot be written.

    SQLite may remove its log and make it again at any moment, which is no fault. So a refusal counts only if the file
    was the same before and after it.
    """
    before = _status(path)
    if before is None or os.access(path, os.W_OK):
        return False
    after = _status(path)
    return after is not None and os.path.samestat(before, after)


def _owner(path: Path) -> int | None:
    status = _status(path)
    return None if status is None else status.st_uid


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
