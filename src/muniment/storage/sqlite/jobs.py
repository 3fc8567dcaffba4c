"""Work inside a transaction of SQLite: many pieces of it in one, each with an outcome of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from muniment.storage.database import Parameters, Row, Transaction, Work

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Job:
    """A piece of work, where its caller waits, until when it may begin, and what came of it."""

    work: Work[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    until: float
    result: object = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class Group:
    """Jobs that share a transaction. Once they are run, their commit is due, unless it is undone.

    With care, each is run apart.
    """

    jobs: list[Job]
    is_run: bool = False
    is_undone: bool = False
    needs_care: bool = False

    def let_go(self) -> None:
        """Forget the work, which will not be run again: what it holds is freed here, not by another core's thread."""
        for job in self.jobs:
            job.work = _done


async def _done(_: Transaction) -> None:
    """Work that was done."""


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


def is_run_cleanly(connection: sqlite3.Connection, job: Job) -> bool:
    """Run a job among others, and say whether what it leaves is right: all it wrote, or nothing if it failed.

    A savepoint around each job would cost about as much as its insert, and most that fail have only read.
    """
    transaction, before = SqliteTransaction(connection), connection.total_changes
    try:
        job.result = _drive(job.work(transaction))
    except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who gets it; the others go on
        _raise_failure(connection, error)
        job.error = error
    # A statement that changed no row may have taken a sequence number.
    return job.error is None or (not transaction.has_executed and connection.total_changes == before)


def run_apart(connection: sqlite3.Connection, job: Job) -> None:
    """Run a job, perhaps again, and undo it alone if it fails."""
    connection.execute("SAVEPOINT job")
    job.result = job.error = None
    try:
        job.result = _drive(job.work(SqliteTransaction(connection)))
    except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who gets it; the others go on
        _raise_failure(connection, error)
        job.error = error
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def _raise_failure(connection: sqlite3.Connection, error: BaseException) -> None:
    """Pass on a failure of the database itself, or one that has ended the transaction: nobody's work is kept.

    SQLite ends it when memory or the disk is not enough, and what came after would be committed on its own.
    """
    if (isinstance(error, sqlite3.DatabaseError) and is_failure(error)) or not connection.in_transaction:
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
