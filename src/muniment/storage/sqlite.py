"""The SQLite engine: reads and writes on the event loop, commits in a thread, many writes to one of them.

A statement takes tens of microseconds, less than handing it to a thread. A commit waits for an fsync, so all writes
that wait at the same moment share one transaction and one fsync, each with its own outcome. Processes share the file:
SQLite's write lock gives them turns, and the sequence of a table is the order of commits, because a sequence number is
taken only by the holder of that lock.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from muniment.errors import DatabaseUnavailable, DeadlineExceeded, NotReady
from muniment.storage.migrate import LEDGER, migrations, missing
from muniment.storage.sqlite_work import is_failure
from muniment.storage.sqlite_writer import Writer

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.storage.database import Parameters, Row, Work

T = TypeVar("T")

# STRICT tables, https://sqlite.org/stricttables.html
SQLITE_VERSION_MIN: Final = (3, 37, 0)
# How long a process waits for another's write lock. Ten group commits of a slow disk; then 503.
BUSY_TIMEOUT_MS: Final = 5_000
# How long a process waits for another's migrations, which may rebuild an index over every row.
MIGRATION_TIMEOUT_MS: Final = 60_000
# What one long read may take, its turn included, before it is interrupted: a client's patience, not the disk's.
SLOW_READ_SECONDS_MAX: Final = 5.0
# Long reads at once; each may occupy a core.
SLOW_READERS: Final = 2
# Pages that a connection keeps in memory, which takes as much when it is full; SQLite's own 2 MiB hold a few thousand
# rows and what leads to them, and whatever else is asked for is copied from the kernel page by page.
CACHE_KIBIBYTES: Final = 32 * 1024
# Pages in the log (32 MiB) before they are copied into the database. A new trigger changes a page in each of several
# indexes, and the next ones the same pages: with SQLite's own 1,000, what is written doubles.
CHECKPOINT_PAGES: Final = 8_192
# Virtual machine steps between two looks at the clock: about a tenth of a millisecond.
_STEPS_PER_LOOK: Final = 10_000
_STATEMENTS_CACHED: Final = 256


class SqliteDatabase:
    """A `Database` in one file (and its -wal and -shm beside it)."""

    is_at_hand: bool = True
    settled_before: str = ""
    merges_unions: bool = True
    times_differ_ms: int

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`; raises `DatabaseUnavailable` when that cannot be."""
        if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
            raise DatabaseUnavailable(f"SQLite {sqlite3.sqlite_version} is older than 3.37, which STRICT tables need")
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as opened:
                writing = opened.enter_context(closing(connect(path)))
                self._reader = opened.enter_context(closing(connect(path, read_only=True)))
                # 0, unless rows were copied here from an engine where times do not follow the order (`sqlite_copying`).
                (self.times_differ_ms,) = self._reader.execute("PRAGMA user_version").fetchone()
                opened.pop_all()
        except (OSError, sqlite3.Error) as error:
            raise DatabaseUnavailable(f"cannot open the database: {error}") from error
        self._is_tasks_view = False
        self._writer = Writer(writing, patience_s=BUSY_TIMEOUT_MS / 1000)
        self._slow = ThreadPoolExecutor(SLOW_READERS, thread_name_prefix="slow-read")

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows, read on the event loop."""
        try:
            if not self._reader.in_transaction or (self._is_tasks_view and asyncio.current_task() is None):
                self._open_view()
            return self._reader.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise _unavailable(error) from error

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row, read on the event loop."""
        try:
            if not self._reader.in_transaction or (self._is_tasks_view and asyncio.current_task() is None):
                self._open_view()
            return self._reader.execute(sql, parameters).fetchone()
        except sqlite3.DatabaseError as error:
            raise _unavailable(error) from error

    def _open_view(self) -> None:
        """Begin the read transaction of this turn of the loop; the locks of one each would cost as much as a read.

        It ends before the loop turns to anything that came later: callbacks run in the order in which they were
        called for. So whoever was told of a commit, or heard of it from a client, reads in a transaction begun since.

        What is received is no callback on every loop: libuv calls protocols when the tasks of a turn have had theirs
        and those of the next have not. Who reads there, in no task, may know more than a view that a task has opened.
        """
        if self._reader.in_transaction:
            self._reader.execute("COMMIT")
        else:
            asyncio.get_running_loop().call_soon(self._close_view)
        self._reader.execute("BEGIN")
        self._is_tasks_view = asyncio.current_task() is not None

    def _close_view(self) -> None:
        try:
            if self._reader.in_transaction:
                self._reader.execute("COMMIT")
        except sqlite3.Error:  # the database is closed, or fails, and will say so to who asks next
            with suppress(sqlite3.Error):
                self._reader.execute("ROLLBACK")

    async def fetch_slow(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows, read in a thread of its own connection, interrupted at the deadline."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # who cannot wait leaves here, with nothing begun
        deadline = time.monotonic() + SLOW_READ_SECONDS_MAX
        return await loop.run_in_executor(self._slow, self._fetch_until, deadline, sql, parameters)

    def _fetch_until(self, deadline: float, sql: str, parameters: Parameters) -> list[Row]:
        too_long = f"the read took more than {SLOW_READ_SECONDS_MAX:g} s"
        if time.monotonic() > deadline:  # it waited for a reader all the while
            raise DeadlineExceeded(too_long)
        try:
            with closing(connect(self._path, read_only=True)) as connection:
                connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_PER_LOOK)
                return connection.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise DeadlineExceeded(too_long) from error
            raise _unavailable(error) from error

    async def write(self, work: Work[T], *, order: bytes = b"") -> T:
        """Queue `work` for the next group; its result once the group it travelled in is on disk."""
        del order  # one writer at a time locks everything
        return await self._writer.submit(work)

    async def migrate(self) -> list[str]:
        """Apply what is missing while holding the write lock, so that a second process waits and finds it done."""
        return await asyncio.to_thread(_migrate, self._path)

    async def check(self) -> None:
        """Answer a read, have every migration, and be able to write."""
        if self._writer.is_over:
            raise NotReady("the database has no writer any more: start the service again")
        ledger = await self.fetch("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'")
        rows = await self.fetch("SELECT name FROM schema_migrations") if ledger else []
        applied = {str(name) for (name,) in rows}
        absent = [migration.name for migration in migrations("sqlite") if migration.name not in applied]
        if absent:
            raise NotReady(f"the database lacks migrations: {', '.join(absent)}")

    async def close(self) -> None:
        """Commit what is queued, then close."""
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self._slow.shutdown)
        self._reader.close()


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection as this engine needs it; one that writes reports `synchronous=FULL` (an fsync per commit)."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS_CACHED
    )
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


def _migrate(path: Path) -> list[str]:
    try:
        with closing(connect(path)) as connection:
            connection.execute(f"PRAGMA busy_timeout={MIGRATION_TIMEOUT_MS}")
            connection.execute("BEGIN IMMEDIATE")
            return _apply_missing(connection)
    except sqlite3.Error as error:
        raise DatabaseUnavailable(f"the database cannot be migrated: {error}") from error


def _apply_missing(connection: sqlite3.Connection) -> list[str]:
    """Apply the missing migrations and commit; what fails before leaves the transaction open, to be lost."""
    connection.execute(LEDGER)
    applied = dict(connection.execute("SELECT name, sha256 FROM schema_migrations").fetchall())
    pending = missing(migrations("sqlite"), applied)
    for migration in pending:
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO schema_migrations (name, sha256, applied_at_ms) VALUES (?, ?, ?)",
            (migration.name, migration.sha256, time.time_ns() // 1_000_000),
        )
    connection.execute("COMMIT")
    return [migration.name for migration in pending]


def _statements(script: str) -> list[str]:
    """The statements of a script one by one: `executescript` would commit the transaction around it."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return [*found, pending] if pending.strip() else found


def _unavailable(error: sqlite3.DatabaseError) -> DatabaseUnavailable:
    """What to say of a database that fails. A statement of ours that is wrong is no such thing, and goes on."""
    if not is_failure(error):
        raise error
    return DatabaseUnavailable(f"the database does not answer: {getattr(error, 'sqlite_errorname', error)}")
