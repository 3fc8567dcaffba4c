"""The `Database` in an SQLite file, made by `open_database`: statements run on the event loop, commits in a thread.

A statement takes tens of microseconds, less than a call into a thread. A commit waits for an fsync, so all queued
writes share one transaction and one fsync; each has its own outcome. Commands share the file with a service. Only the
process that holds SQLite's write lock takes sequence numbers, so they are in the order of commits.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString, TypeVar

from muniment.protocol.errors import DatabaseUnavailable, DeadlineExceeded, NotReady
from muniment.service.running.metrics.recorder import DatabaseMetrics
from muniment.service.storage.client_slots import ClientSlots
from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits
from muniment.service.storage.migrate import require_all
from muniment.service.storage.probe import ANSWER_AGE_SECONDS_MAX, Probe
from muniment.service.storage.sql import number_text
from muniment.service.storage.sqlite.commits import LOG_BYTES, Commits
from muniment.service.storage.sqlite.connection import BUSY_TIMEOUT_MS, connect
from muniment.service.storage.sqlite.files import Files
from muniment.service.storage.sqlite.jobs import is_failure
from muniment.service.storage.sqlite.migrate import migrate
from muniment.service.storage.sqlite.revision import noted_as_open, refuse_another_revision
from muniment.service.storage.sqlite.view import VIEW_SECONDS_MAX, View
from muniment.service.storage.sqlite.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from muniment.service.storage.database import Parameters, Row, Transaction, Work

T = TypeVar("T")

# STRICT tables, https://sqlite.org/stricttables.html
SQLITE_VERSION_MIN: Final = (3, 37, 0)
# Concurrent long reads of a process; each may occupy a core.
SLOW_READERS: Final = 2
# Virtual machine steps between two checks of the deadline: about a tenth of a millisecond.
_STEPS_PER_LOOK: Final = 10_000


class SqliteDatabase:
    """A `Database` in one file, with the files `-wal` and `-shm` next to it."""

    is_shared: bool = False
    plans_as_written: bool = True
    times_differ_ms: int

    def __init__(
        self,
        path: Path,
        limits: DatabaseLimits = DATABASE_LIMITS,
        *,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        log_bytes: int = LOG_BYTES,
        metrics: DatabaseMetrics | None = None,
    ) -> None:
        """Open or create the file at `path`; raises `DatabaseUnavailable` when that fails, and `AnotherRevision`.

        `busy_timeout_ms` is the wait for the lock of another process; a log of more than `log_bytes` is copied into the
        database.
        """
        if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
            raise DatabaseUnavailable(f"SQLite {sqlite3.sqlite_version} is older than 3.37, which STRICT tables need")
        self._path = path
        self._limits = limits
        self._busy_timeout_ms = busy_timeout_ms
        self._log_bytes = log_bytes
        self._metrics = metrics or DatabaseMetrics()
        refuse_another_revision(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # SQLite gives its other files the same mode
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            commits, reader = self._open()
        except (OSError, sqlite3.Error) as error:
            raise DatabaseUnavailable(f"cannot open the database: {error}") from error
        self._until_closed = ExitStack()
        self._until_closed.enter_context(noted_as_open(commits.files.database))
        # 0, unless rows were copied here from an engine whose times do not follow the order (`copying`).
        (self.times_differ_ms,) = reader.execute("PRAGMA user_version").fetchone()
        self._view = View(reader, commits)
        self._writer = Writer(commits, patience_s=busy_timeout_ms / 1000, limits=limits)
        self._writing_probe = Probe(
            self._prove_writing, silence="the database takes no write: another process holds its lock"
        )
        self._slow_readers = ThreadPoolExecutor(SLOW_READERS, thread_name_prefix="slow-read")
        self._client_slots = ClientSlots()

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows, read on the event loop."""
        begun = time.monotonic()
        try:
            rows = self._view.connection(begun).execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._failed("read", error) from error
        self._metrics.reads.observe(time.monotonic() - begun)
        return rows

    async def fetch_one(self, sql: LiteralString, parameters: Parameters = ()) -> Row | None:
        """The first row, read on the event loop."""
        begun = time.monotonic()
        try:
            row = self._view.connection(begun).execute(sql, parameters).fetchone()
        except sqlite3.DatabaseError as error:
            raise self._failed("read", error) from error
        self._metrics.reads.observe(time.monotonic() - begun)
        return row

    async def fetch_some(
        self, sql: LiteralString, parameters: Parameters, *, rows_max: int, bytes_max: int
    ) -> tuple[list[Row], int]:
        """The first rows, read on the event loop one by one."""
        del rows_max  # only PostgreSQL needs it: here rows are read one by one
        begun = time.monotonic()
        try:
            cursor = self._view.connection(begun).execute(sql, parameters)
            rows: list[Row] = []
            length = 0
            for row in cursor:
                rows.append(row)
                record = row[1]  # as `utf8_length`, without a call for each row of the page that is read most
                length += len(record) if record.isascii() else len(record.encode())
                if length >= bytes_max:
                    cursor.close()
                    break
        except sqlite3.DatabaseError as error:
            raise self._failed("read", error) from error
        self._metrics.reads.observe(time.monotonic() - begun)
        return rows, length

    def charge_long_reads(self, owe: Callable[[str, int], object]) -> None:
        """Call `owe` with the CPU time of each long read for a client."""
        self._client_slots.owe = owe

    async def fetch_slow(self, sql: LiteralString, parameters: Parameters = (), *, client: str = "") -> list[Row]:
        """All rows, read in a thread on a new connection, and interrupted at the deadline."""
        loop, slots, seconds_max = asyncio.get_running_loop(), self._client_slots, self._limits.slow_read_seconds_max
        is_over, begun = threading.Event(), time.perf_counter()
        try:
            async with asyncio.timeout(seconds_max), slots.of(client):
                await asyncio.sleep(0)  # a caller that is cancelled, or has no time left, ends before its read begins
                try:
                    read = partial(self._fetch_until, is_over, sql, parameters)
                    rows = await loop.run_in_executor(self._slow_readers, slots.charged, client, loop, read)
                finally:  # the caller has its outcome: the thread must stop
                    is_over.set()
        except TimeoutError as error:
            self._metrics.fail("long_read")
            raise DeadlineExceeded(f"the read took more than {seconds_max:g} s") from error
        except DatabaseUnavailable:
            self._metrics.fail("long_read")
            raise
        self._view.expire()  # later reads must see what this one saw
        self._metrics.long_reads.observe(time.perf_counter() - begun)
        return rows

    def _fetch_until(self, is_over: threading.Event, sql: LiteralString, parameters: Parameters) -> list[Row]:
        if is_over.is_set():  # its caller left while it waited for a thread
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
        """Queue `work` for the next group; its result once that group is on disk."""
        del order  # not needed: one writer at a time locks the whole file
        if self._writer.commits.is_read_only:
            self._open_again()
        return await self._writer.submit(work, urgent=urgent)

    def call_after_commits(self, call: Callable[[], object]) -> None:
        """As `Database.call_after_commits`; in the writer's thread."""
        self._writer.after_commit = call

    async def migrate(self) -> list[str]:
        """Apply the missing migrations under the write lock. A second process waits, and then finds them applied."""
        try:
            return await asyncio.to_thread(_migrate, self._path)
        finally:
            self._view.expire()

    async def until_seen(self) -> None:
        """Return once the views of other processes that lack the last commit have ended."""
        left = self._writer.commits.succeeded_at + VIEW_SECONDS_MAX - time.monotonic()
        if left > 0:
            await asyncio.sleep(left + 0.001)  # a timer of uvloop may be early by that

    async def time_ms(self) -> int | None:
        """None: a file has no clock."""
        return None

    async def check(self) -> None:
        """Return when the file answers a read, has every migration and has a writer; raise `NotReady` otherwise."""
        if self._writer.is_over:
            raise NotReady("the database no longer has a writer: start the service again")
        ledger = await self.fetch("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'")
        rows = await self.fetch("SELECT name, sha256 FROM schema_migrations") if ledger else []
        require_all("sqlite", {str(name): str(sha256) for name, sha256 in rows})

    async def check_writes(self) -> None:
        """Return when the files are in their places and take a write; raise `NotReady` otherwise."""
        try:
            self._writer.commits.files.check()
        except DatabaseUnavailable as error:
            raise NotReady(error.detail) from error
        await self._writing_probe.check()

    async def _prove_writing(self) -> None:
        """Return when a write was committed lately, or after rewriting an unchanged page.

        An empty transaction, or an UPDATE that changes no value, does not reach the disk.
        """
        if time.monotonic() - self._writer.commits.succeeded_at > ANSWER_AGE_SECONDS_MAX:
            await self.write(_write_first_page, urgent=True)

    def _open(self) -> tuple[Commits, sqlite3.Connection]:
        """A connection that writes, and one that reads. Raises `OSError` or `sqlite3.Error`."""
        with ExitStack() as opened:
            writing = opened.enter_context(closing(connect(self._path, busy_timeout_ms=self._busy_timeout_ms)))
            reading = opened.enter_context(
                closing(connect(self._path, read_only=True, busy_timeout_ms=self._busy_timeout_ms))
            )
            for each in (writing, reading):
                each.execute("SELECT 1 FROM sqlite_master").fetchone()  # this opens every file
            # A statement that fires triggers of the database keeps the former content of each page that it changes, so
            # that it can be undone by itself. SQLite puts more than 64 KiB of that into a file: 10 of the 22 writes to
            # files for each new trigger.
            writing.execute("PRAGMA temp_store=MEMORY")
            commits = Commits(writing, Files(self._path), log_bytes=self._log_bytes, metrics=self._metrics)
            opened.pop_all()
        return commits, reading

    def _open_again(self) -> None:
        """Open the file again if it was opened read-only and is writable now; SQLite itself never tries again.

        All connections of a process share the mode of the first one, so all are closed first.
        """

        def opened() -> Commits:
            self._view.close()
            try:
                commits, reader = self._open()
            except (OSError, sqlite3.Error):  # a database without tables answers 503 until the next try
                reader = sqlite3.connect(":memory:", isolation_level=None)
                writing = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
                commits = Commits(writing, files, metrics=self._metrics)
                commits.is_read_only = True
            self._view = View(reader, commits)
            return commits

        files = self._writer.commits.files
        if files.are_writable():
            self._writer.exchange(opened)

    def _failed(self, kind: str, error: sqlite3.DatabaseError) -> DatabaseUnavailable:
        """As `_unavailable`, and counted."""
        unavailable = _unavailable(error)
        self._metrics.fail(kind)
        return unavailable

    async def close(self) -> None:
        """Commit the queue, then close every connection."""
        await self._writing_probe.close()
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self._slow_readers.shutdown)
        self._view.close()
        self._until_closed.close()


async def _write_first_page(tx: Transaction) -> None:
    """Write the page of the file that holds the user version, without changing it."""
    row = await tx.fetch_one("PRAGMA user_version")
    await tx.execute(f"PRAGMA user_version={number_text(row[0] if row else 0)}")


def _migrate(path: Path) -> list[str]:
    try:
        with closing(connect(path)) as connection:
            return migrate(connection)
    except sqlite3.Error as error:
        raise DatabaseUnavailable(f"the database cannot be migrated: {error}") from error


def _unavailable(error: sqlite3.DatabaseError) -> DatabaseUnavailable:
    """The error for a failing database. An error in a store's own statement is raised unchanged."""
    if not is_failure(error):
        raise error
    return DatabaseUnavailable(f"the database does not answer: {getattr(error, 'sqlite_errorname', error)}")
