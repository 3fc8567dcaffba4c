"""Reads which revision made an SQLite file, before the file is opened: to open it makes files, or changes it."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from muniment.service.storage.migrate import migrations, missing

if TYPE_CHECKING:
    from collections.abc import Generator

# How many times each file is open in this process, by device and inode. The kernel drops all locks of a process on a
# file when the process closes any descriptor of it, and the code below takes no part in SQLite's count of descriptors.
# Without its lock another process would delete the log (https://sqlite.org/howtocorrupt.html, section 2.2).
_open_here: Final = Counter[tuple[int, int]]()


@contextmanager
def noted_as_open(identity: tuple[int, int]) -> Generator[None]:
    """In the block, this process has the file with this device and inode open."""
    _open_here[identity] += 1
    try:
        yield
    finally:
        _open_here[identity] -= 1


def refuse_another_revision(path: Path) -> None:
    """Raise `AnotherRevision` for a file that another revision made. Nothing is written, and no lock is taken.

    Returns for every other file, also one that is missing or cannot be read: whoever opens it says so. Returns for a
    file that is open in this process, because it was examined before.
    """
    try:
        status = path.stat()
        if _open_here[status.st_dev, status.st_ino] > 0:
            return
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
