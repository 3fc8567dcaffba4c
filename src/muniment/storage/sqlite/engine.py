"""The SQLite engine: reads and writes on the event loop, commits in a thread, many writes to one of them.

A statement takes tens of microseconds, less than handing it to a thread. A commit waits for an fsync, so all writes
that wait at the same moment share one transaction and one fsync, each with its own outcome. Processes share the file:
SQLite's write lock gives them turns, and the sequence of a table is the order of commits, because a sequence number is
taken only by the holder of that lock.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from muniment.errors import DatabaseUnavailable, DeadlineExceeded, NotReady
from muniment.storage.client_slots import ClientSlots
from muniment.storage.last_commit import LastCommit
from muniment.storage.migrate import migrations
from muniment.storage.probe import ANSWER_AGE_SECONDS_MAX, Probe
from muniment.storage.sqlite.commits import Commits
from muniment.storage.sqlite.connection import BUSY_TIMEOUT_MS, connect
from muniment.storage.sqlite.files import Files
from muniment.storage.sqlite.jobs import is_failure
from muniment.storage.sqlite.migrate import migrate
from muniment.storage.sqlite.view import View
from muniment.storage.sqlite.writer import Writer

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.storage.database import Parameters, Row, Transaction, Work

T = TypeVar("T")

# STRICT tables, https://sqlite.org/stricttables.html
SQLITE_VERSION_MIN: Final = (3, 37, 0)
# What one long read may take, its turn included, before it is interrupted: a client's patience, not the disk's.
SLOW_READ_SECONDS_MAX: Final = 5.0
# Long reads at once; each may occupy a core.
SLOW_READERS: Final = 2
# Virtual machine steps between two looks at the clock: about a tenth of a millisecond.
_STEPS_PER_LOOK: Final = 10_000


class SqliteDatabase:
    """A `Database` in one file (and its -wal, -shm and -commits beside it)."""

    settled_before: str = ""
    merges_unions: bool = True
    times_differ_ms: int

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`; raises `DatabaseUnavailable` when that cannot be."""
        if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
            raise DatabaseUnavailable(f"SQLite {sqlite3.sqlite_version} is older than 3.37, which STRICT tables need")
        self._path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # SQLite gives the files beside it the same mode
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._last_commit = LastCommit(path.with_name(f"{path.name}-commits"))
            commits, reader = _open(path, self._last_commit)
            self._last_commit.share()  # not before: beside what is no database, nothing is made
        except (OSError, sqlite3.Error) as error:
            raise DatabaseUnavailable(f"cannot open the database: {error}") from error
        # 0, unless rows were copied here from an engine where times do not follow the order (`sqlite_copying`).
        (self.times_differ_ms,) = reader.execute("PRAGMA user_version").fetchone()
        self._view = View(reader, self._last_commit)
        self._writer = Writer(commits, patience_s=BUSY_TIMEOUT_MS / 1000)
        self._writes = Probe(self._prove_writing, silence="the database takes no write: another process holds its lock")
        self._slow = ThreadPoolExecutor(SLOW_READERS, thread_name_prefix="slow-read")
        self._slots = ClientSlots()
        self.rows_counted: dict[str, tuple[int, int]] = {}

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows, read on the event loop."""
        try:
            return self._view.connection().execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise _unavailable(error) from error

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row, read on the event loop."""
        try:
            return self._view.connection().execute(sql, parameters).fetchone()
        except sqlite3.DatabaseError as error:
            raise _unavailable(error) from error

    async def fetch_some(
        self, sql: str, parameters: Parameters, *, rows_max: int, bytes_max: int
    ) -> tuple[list[Row], int]:
        """The first rows, read on the event loop one by one."""
        del rows_max  # rows are read as they are taken
        try:
            cursor = self._view.connection().execute(sql, parameters)
            rows: list[Row] = []
            length = 0
            for row in cursor:
                rows.append(row)
                text: str = row[1]
                length += len(text) if text.isascii() else len(text.encode())
                if length >= bytes_max:
                    cursor.close()
                    break
        except sqlite3.DatabaseError as error:
            raise _unavailable(error) from error
        return rows, length

    async def fetch_slow(self, sql: str, parameters: Parameters = (), *, client: str = "") -> list[Row]:
        """All rows, read in a thread of its own connection, interrupted at the deadline."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # who cannot wait leaves here, with nothing begun
        is_over = threading.Event()
        try:
            async with asyncio.timeout(SLOW_READ_SECONDS_MAX), self._slots.of(client):
                try:
                    return await loop.run_in_executor(self._slow, self._fetch_until, is_over, sql, parameters)
                finally:  # nobody waits any more, and the slot is another's
                    is_over.set()
        except TimeoutError as error:
            raise DeadlineExceeded(f"the read took more than {SLOW_READ_SECONDS_MAX:g} s") from error

    def _fetch_until(self, is_over: threading.Event, sql: str, parameters: Parameters) -> list[Row]:
        if is_over.is_set():  # it waited for a reader all the while
            return []
        self._writer.commits.files.check()
        try:
            with closing(connect(self._path, read_only=True)) as connection:
                connection.set_progress_handler(is_over.is_set, _STEPS_PER_LOOK)
                return connection.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            if is_over.is_set():
                return []
            raise _unavailable(error) from error

    async def write(self, work: Work[T], *, order: bytes = b"", urgent: bool = False) -> T:
        """Queue `work` for the next group; its result once the group it travelled in is on disk."""
        del order  # one writer at a time locks everything
        if self._writer.commits.is_read_only:
            self._open_again()
        return await self._writer.submit(work, urgent=urgent)

    async def migrate(self) -> list[str]:
        """Apply what is missing while holding the write lock, so that a second process waits and finds it done."""
        applied = await asyncio.to_thread(_migrate, self._path)
        self._last_commit.advance()
        return applied

    async def time_ms(self) -> int | None:
        """None: a file has no clock."""
        return None

    async def check(self) -> None:
        """Answer a read, have every migration, and have a writer."""
        if self._writer.is_over:
            raise NotReady("the database has no writer any more: start the service again")
        ledger = await self.fetch("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'")
        rows = await self.fetch("SELECT name FROM schema_migrations") if ledger else []
        applied = {str(name) for (name,) in rows}
        absent = [migration.name for migration in migrations("sqlite") if migration.name not in applied]
        if absent:
            raise NotReady(f"the database lacks migrations: {', '.join(absent)}")

    async def check_writes(self) -> None:
        """Have the files in their places, and write."""
        try:
            self._writer.commits.files.check()
        except DatabaseUnavailable as error:
            raise NotReady(error.detail) from error
        await self._writes.check()

    async def _prove_writing(self) -> None:
        """Return when a commit was on disk just now; where there was none, of a page as it is.

        Beginning a transaction, and changing a row to what it is, would leave the disk alone.
        """
        if time.monotonic() - self._writer.commits.succeeded_at > ANSWER_AGE_SECONDS_MAX:
            await self.write(_write_first_page, urgent=True)

    def _open_again(self) -> None:
        """Open once more what was opened where nothing could be written, if that has changed: SQLite never tries.

        All connections of a process share what the first one found, so they are closed before.
        """

        def opened() -> Commits:
            self._view.close()
            try:
                commits, reader = _open(self._path, self._last_commit)
            except (OSError, sqlite3.Error):  # nothing is known of a database without tables: 503, and tried again
                reader = sqlite3.connect(":memory:", isolation_level=None)
                writing = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
                commits = Commits(writing, files, self._last_commit)
                commits.is_read_only = True
            self._view = View(reader, self._last_commit)
            return commits

        files = self._writer.commits.files
        if files.are_writable():
            self._writer.exchange(opened)

    async def close(self) -> None:
        """Commit what is queued, then close."""
        await self._writes.close()
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self._slow.shutdown)
        self._view.close()


async def _write_first_page(tx: Transaction) -> None:
    """Write the page that says the version of the file, which stays the same."""
    row = await tx.fetch_one("PRAGMA user_version")
    await tx.execute(f"PRAGMA user_version={row[0] if row else 0}")


def _open(path: Path, last_commit: LastCommit) -> tuple[Commits, sqlite3.Connection]:
    """A connection that writes, and one that reads. Raises `OSError` or `sqlite3.Error`."""
    with ExitStack() as opened:
        writing = opened.enter_context(closing(connect(path)))
        reading = opened.enter_context(closing(connect(path, read_only=True)))
        for each in (writing, reading):
            each.execute("SELECT 1 FROM sqlite_master").fetchone()  # by then every file is open
        commits = Commits(writing, Files(path), last_commit)
        opened.pop_all()
    return commits, reading


def _migrate(path: Path) -> list[str]:
    try:
        with closing(connect(path)) as connection:
            return migrate(connection)
    except sqlite3.Error as error:
        raise DatabaseUnavailable(f"the database cannot be migrated: {error}") from error


def _unavailable(error: sqlite3.DatabaseError) -> DatabaseUnavailable:
    """What to say of a database that fails. A statement of ours that is wrong is no such thing, and goes on."""
    if not is_failure(error):
        raise error
    return DatabaseUnavailable(f"the database does not answer: {getattr(error, 'sqlite_errorname', error)}")
