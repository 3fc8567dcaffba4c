"""The one thread through which a process writes to its SQLite file, in group commits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import structlog

from muniment.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from muniment.storage.database import Parameters, Row, Work

T = TypeVar("T")

# Jobs in one transaction. Beyond a few hundred the fsync is a small part of each, and the first waits for the last.
GROUP_SIZE_MAX: Final = 256

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Job:
    """A piece of work, where its caller waits, and what came of it."""

    work: Work[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    result: object = None
    error: BaseException | None = None


class SqliteTransaction:
    """A `Transaction` whose methods are done when they return: awaiting them suspends nothing."""

    for_update: str = ""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Work on `connection`, inside the transaction that it has open."""
        self._connection = connection
        self.has_executed = False

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        return self._connection.execute(sql, parameters).fetchall()

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, if there is one."""
        return self._connection.execute(sql, parameters).fetchone()

    async def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement; how many rows it changed."""
        self.has_executed = True
        return self._connection.execute(sql, parameters).rowcount


class Writer:
    """Takes work from any task of any loop and commits it in the order in which it came."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Own `connection` from here on; the thread ends with `close`."""
        self._connection = connection
        self._queue: deque[_Job] = deque()
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._closing = False
        self._door = threading.Condition()  # around all three; it is notified of jobs, and that there will be no more
        self._thread = threading.Thread(target=self._commit_groups, name="sqlite-writer", daemon=True)
        self._thread.start()

    async def submit(self, work: Work[T]) -> T:
        """Wait until `work` is committed, or raise what it, or the commit, raised."""
        loop = asyncio.get_running_loop()
        job = _Job(work, loop.create_future(), loop)
        with self._door:
            if self._closing:
                raise DatabaseUnavailable("the database is closed")
            waiting = self._waiting.setdefault(loop, [])
            waiting.append(job)
        if len(waiting) == 1:
            loop.call_soon(self._hand_over, loop)
        return await job.future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the writer what came in one turn of the loop.

        One by one, it would begin with the first while the loop is still busy with the others: smaller groups, more
        fsyncs, and two threads that take the interpreter from each other at every statement.
        """
        with self._door:
            self._queue.extend(self._waiting.pop(loop, ()))
            self._door.notify()

    def close(self) -> None:
        """Commit what is queued, then close the connection."""
        with self._door:
            self._closing = True
            for jobs in self._waiting.values():
                self._queue.extend(jobs)
            self._waiting.clear()
            self._door.notify()
        self._thread.join()
        self._connection.close()

    def _commit_groups(self) -> None:
        while group := self._next_group():
            try:
                self._commit(group)
            except Exception as error:  # noqa: BLE001 - a thread that ended would leave every later caller waiting
                self._undo(group, error)
            _report(group)

    def _next_group(self) -> list[_Job]:
        """Wait for a job, and take all that wait with it; empty when there will be no more."""
        with self._door:
            while not self._queue and not self._closing:
                self._door.wait()
            return [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_SIZE_MAX))]

    def _commit(self, group: list[_Job]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        if not all(self._is_run_cleanly(job) for job in group):
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
            for job in group:
                self._run_apart(job)
        self._make_durable()

    def _is_run_cleanly(self, job: _Job) -> bool:
        """Run a job among others, and say whether what it leaves is right: all it wrote, or nothing if it failed.

        A savepoint around each job would cost about as much as its insert, and most that fail have only read.
        """
        transaction, before = SqliteTransaction(self._connection), self._connection.total_changes
        try:
            job.result = _drive(job.work(transaction))
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who gets it; the others go on
            _raise_failure(error)
            job.error = error
        # A statement that changed no row may have taken a sequence number.
        return job.error is None or (not transaction.has_executed and self._connection.total_changes == before)

    def _run_apart(self, job: _Job) -> None:
        """Run a job, perhaps again, and undo it alone if it fails."""
        self._connection.execute("SAVEPOINT job")
        job.result = job.error = None
        try:
            job.result = _drive(job.work(SqliteTransaction(self._connection)))
        except BaseException as error:  # noqa: BLE001 - as above
            _raise_failure(error)
            job.error = error
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")

    def _make_durable(self) -> None:
        """Return once the group is on disk: in WAL mode with synchronous=FULL a COMMIT ends with an fsync."""
        self._connection.execute("COMMIT")

    def _undo(self, group: list[_Job], error: Exception) -> None:
        """After a failure of the database itself nothing of the group is kept, and every caller is told.

        Also those whose work was refused: the reason may be a neighbour's row, which is gone now.
        """
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        for job in group:
            job.error = DatabaseUnavailable(f"the database cannot write now: {name}")
        with suppress(sqlite3.Error):  # or BEGIN fails for the next group, and this is tried again
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        _log.error("write failed", error=name, detail=str(error), jobs=len(group))


def _raise_failure(error: BaseException) -> None:
    """Pass on a failure of the database itself, which may have ended the transaction: nobody's work is kept."""
    if isinstance(error, sqlite3.DatabaseError) and is_failure(error):
        raise error


def is_failure(error: sqlite3.DatabaseError) -> bool:
    """Whether the database itself fails: it is busy or full (the operational kind), or damaged (the bare kind)."""
    return type(error) in {sqlite3.OperationalError, sqlite3.DatabaseError}


def _drive(work: Awaitable[T]) -> T:
    """Run to its end a coroutine that awaits only what never suspends."""
    coroutine = cast("Coroutine[Any, Any, T]", work)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    coroutine.close()
    raise RuntimeError("a transaction awaits nothing but its own statements")


def _report(group: list[_Job]) -> None:
    """Wake the callers, with one call into each event loop."""
    for loop in {job.loop for job in group}:
        mine = [job for job in group if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_resolve, mine)
        except RuntimeError:  # the loop is closed: nobody waits any more
            _log.warning("nobody waits for a write", jobs=len(mine))


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():  # its caller was cancelled
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
