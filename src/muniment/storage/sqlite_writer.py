"""The one way by which a process writes to its SQLite file: in group commits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import structlog

from muniment.errors import DatabaseUnavailable
from muniment.storage.turns import QUIET_TURNS, TURNS_MAX

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


@dataclass(slots=True, eq=False)
class _Group:
    """Jobs that share a transaction. Once they are run, their commit is due; with care, each is run apart."""

    jobs: list[_Job]
    is_run: bool = False
    needs_care: bool = False


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
    """Takes work from any task of any loop and commits it, group after group, in the order in which it came.

    The statements of a group run on the event loop, and a thread commits. Statements take microseconds each, like
    reads: a thread would wait for the interpreter at every one of them, and take it from the loop, which costs more
    than they do. A commit waits for the disk, and the loop serves others meanwhile. When another process is writing,
    the whole group goes to the thread, which waits for its turn.
    """

    def __init__(self, connection: sqlite3.Connection, *, patience_ms: int) -> None:
        """Own `connection` from here on; the thread ends with `close`. `patience_ms` is for other processes."""
        self._connection = connection
        self._patience_ms = patience_ms
        connection.execute("PRAGMA busy_timeout=0")
        self._queue: deque[_Job] = deque()
        # One group at a time has the connection, from its first statement to the end of its commit.
        self._is_busy = False
        # Until then a loop is waiting for more jobs to come, and starts the next one.
        self._is_gathering = False
        self._closing = False
        self._door = threading.Condition()  # around all of these; it is notified when a group is done
        self._given: SimpleQueue[_Group | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._finish_groups, name="sqlite-writer", daemon=True)
        self._thread.start()

    async def submit(self, work: Work[T]) -> T:
        """Wait until `work` is committed, or raise what it, or the commit, raised."""
        loop = asyncio.get_running_loop()
        job = _Job(work, loop.create_future(), loop)
        with self._door:
            if self._closing:
                raise DatabaseUnavailable("the database is closed")
            self._queue.append(job)
            is_first = not self._is_gathering and not self._is_busy
            self._is_gathering |= is_first
        if is_first:
            loop.call_soon(self._gather, 0, 0, 0)
        return await job.future

    def close(self) -> None:
        """Commit what is queued, then close the connection. Blocks; not to be called on a loop that has jobs."""
        with self._door:
            self._closing = True
            while self._is_busy or self._queue:
                if group := self._take():
                    self._given.put(group)
                self._door.wait()
        self._given.put(None)
        self._thread.join()
        self._connection.close()

    def _gather(self, seen: int, quiet: int, turns: int) -> None:
        """Start the next group once the loop has turned without more coming, or often enough."""
        with self._door:
            count = len(self._queue)
            quiet = quiet + 1 if count == seen else 0
            waits = not self._is_busy and quiet < QUIET_TURNS and turns < TURNS_MAX
            self._is_gathering = waits
        if waits:
            asyncio.get_running_loop().call_soon(self._gather, count, quiet, turns + 1)
        else:
            self._start_next()

    def _start_next(self) -> None:
        """Run the next group, on the loop, unless one is being run or committed: the end of that one calls again."""
        with self._door:
            group = self._take()
        if group is None:
            return
        try:
            if self._begin_at_once():
                group.is_run = all(self._is_run_cleanly(job) for job in group.jobs)
                if not group.is_run:
                    group.needs_care = True
                    self._connection.execute("ROLLBACK")
        except Exception as error:  # noqa: BLE001 - it is the group's outcome
            self._undo(group.jobs, error)
            group.is_run = True
        self._given.put(group)

    def _take(self) -> _Group | None:
        """What is queued, if nobody has the connection; the door is held."""
        if self._is_busy or not self._queue:
            return None
        self._is_busy = True
        return _Group([self._queue.popleft() for _ in range(min(len(self._queue), GROUP_SIZE_MAX))])

    def _finish_groups(self) -> None:
        while group := self._given.get():
            try:
                if not group.is_run:
                    self._run(group)
                if self._connection.in_transaction:
                    self._make_durable()
            except Exception as error:  # noqa: BLE001 - a thread that ended would leave every later caller waiting
                self._undo(group.jobs, error)
            with self._door:
                self._is_busy = False
                self._door.notify_all()
            _report(group.jobs)
            self._call_next()

    def _call_next(self) -> None:
        """Have the next group run on the loop of its first job, or here if that loop is no more."""
        with self._door:
            if not self._queue or self._is_busy or self._is_gathering or self._closing:
                return
            self._is_gathering = True
            loop = self._queue[0].loop
        try:
            loop.call_soon_threadsafe(self._gather, 0, 0, 0)
        except RuntimeError:  # it is closed
            with self._door:
                self._is_gathering = False
                group = self._take()
            if group is not None:
                self._given.put(group)

    def _begin_at_once(self) -> bool:
        """Open a transaction; False when another process is writing."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return False
            raise
        return True

    def _begin_in_turn(self) -> None:
        """Open a transaction as soon as the other processes let us."""
        self._connection.execute(f"PRAGMA busy_timeout={self._patience_ms}")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        finally:
            self._connection.execute("PRAGMA busy_timeout=0")

    def _run(self, group: _Group) -> None:
        """Run a group in the thread, which may wait."""
        self._begin_in_turn()
        if not group.needs_care:
            if all(self._is_run_cleanly(job) for job in group.jobs):
                return
            self._connection.execute("ROLLBACK")
            self._begin_in_turn()
        for job in group.jobs:
            self._run_apart(job)

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

    def _undo(self, jobs: list[_Job], error: Exception) -> None:
        """After a failure of the database itself nothing of the group is kept, and every caller is told.

        Also those whose work was refused: the reason may be a neighbour's row, which is gone now.
        """
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        for job in jobs:
            job.error = DatabaseUnavailable(f"the database cannot write now: {name}")
        with suppress(sqlite3.Error):  # or BEGIN fails for the next group, and this is tried again
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        _log.error("write failed", error=name, detail=str(error), jobs=len(jobs))


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


def _report(jobs: list[_Job]) -> None:
    """Wake the callers, with one call into each event loop."""
    for loop in {job.loop for job in jobs}:
        mine = [job for job in jobs if job.loop is loop]
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
