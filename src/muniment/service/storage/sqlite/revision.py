"""Reads which revision made an SQLite file, before the file is opened: to open it makes files, or changes it."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from muniment.service.storage.migrate import migrations, missing


def refuse_another_revision(path: Path) -> None:
    """Raise `AnotherRevision` for a file that another revision made. Nothing is written, and no lock is taken.

    Returns for every other file, also one that is missing or cannot be read: whoever opens it says so.
    """
    try:
        applied = _ledger_without_log(path) or _ledger_with_log(path)
    except (OSError, sqlite3.Error):  # perhaps another process writes to it
        return
    missing(migrations("sqlite"), applied)


def _ledger_without_log(path: Path) -> dict[str, str]:
    """The migrations in the file alone, without its log: name to hash."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        return _rows(connection)


def _ledger_with_log(path: Path) -> dict[str, str]:
    """The migrations in a file whose log has all rows yet: its first service was killed. Read in a copy of both."""
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        return {}
    with tempfile.TemporaryDirectory() as directory:
        for each in (path, log):
            shutil.copyfile(each, Path(directory, each.name))
        with closing(sqlite3.connect(Path(directory, path.name))) as connection:
            return _rows(connection)


def _rows(connection: sqlite3.Connection) -> dict[str, str]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'").fetchall():
        return {}
    return dict(connection.execute("SELECT name, sha256 FROM schema_migrations").fetchall())
