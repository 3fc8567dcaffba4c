"""Opens connections to an SQLite file with the settings of this engine; all modules of the engine use it."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

# How long a process waits for the write lock of another: ten group commits of a slow disk. Then clients get a 503.
BUSY_TIMEOUT_MS: Final = 5_000
# The page cache of a connection. SQLite's default of 2 MiB holds a few thousand rows with their indexes; each read of
# another page copies it from the kernel.
CACHE_KIBIBYTES: Final = 32 * 1024
# Pages in the log (32 MiB) before they are copied into the database. A new trigger changes a page in each of several
# indexes, and the next triggers change the same pages: SQLite's default of 1,000 would double the bytes written.
CHECKPOINT_PAGES: Final = 8_192
_STATEMENTS_CACHED: Final = 256
# Of `settled_seq()`, above every row: there is one writer at a time, so no row appears below another.
_SETTLED_SEQ: Final = 2**63 - 1


def connect(path: Path, *, read_only: bool = False, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> sqlite3.Connection:
    """A connection with the settings of this engine, such as `synchronous=FULL` (an fsync per commit).

    With `read_only` the file must exist. `busy_timeout_ms` is its wait for the lock of another process.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'rw' if read_only else 'rwc'}",
        uri=True, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS_CACHED,
    )  # fmt: skip
    try:
        connection.create_function("settled_seq", 0, lambda: _SETTLED_SEQ, deterministic=True)
        connection.execute(f"PRAGMA busy_timeout={busy_timeout_ms}")
        use_wal(connection, busy_timeout_ms=busy_timeout_ms)
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


def use_wal(connection: sqlite3.Connection, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
    """Set a new file to write-ahead logging.

    If two processes do that at the same time, SQLite refuses one of them without waiting, because it could deadlock
    (https://sqlite.org/c3ref/busy_handler.html). So this function waits.
    """
    deadline = time.monotonic() + busy_timeout_ms / 1000
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
