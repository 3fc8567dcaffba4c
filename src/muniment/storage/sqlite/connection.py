"""A connection to an SQLite file, set as this engine needs it."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

# How long a process waits for another's write lock. Ten group commits of a slow disk; then 503.
BUSY_TIMEOUT_MS: Final = 5_000
# Pages that a connection keeps in memory, which takes as much when it is full; SQLite's own 2 MiB hold a few thousand
# rows and what leads to them, and whatever else is asked for is copied from the kernel page by page.
CACHE_KIBIBYTES: Final = 32 * 1024
# Pages in the log (32 MiB) before they are copied into the database. A new trigger changes a page in each of several
# indexes, and the next ones the same pages: with SQLite's own 1,000, what is written doubles.
CHECKPOINT_PAGES: Final = 8_192
_STATEMENTS_CACHED: Final = 256


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection as this engine needs it; one that writes reports `synchronous=FULL` (an fsync per commit).

    Where no file is, one that only reads makes none.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'rw' if read_only else 'rwc'}",
        uri=True, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS_CACHED,
    )  # fmt: skip
    try:
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        _use_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIBIBYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        if read_only:
            connection.execute("PRAGMA query_only=ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Turn a new file to write-ahead logging.

    When two processes do that at once, SQLite tells one of them that the file is locked without waiting for it
    (https://sqlite.org/c3ref/busy_handler.html: waiting could be a deadlock), so the waiting is done here.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)
    if mode != "wal":
        raise sqlite3.OperationalError("this file system has no write-ahead logging")
