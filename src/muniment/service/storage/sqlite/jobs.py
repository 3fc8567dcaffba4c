"""Runs the works of a group inside one transaction, each with its own outcome; `writer` calls it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

if TYPE_CHECKING:
    from muniment.service.storage.database import Parameters, Row, Transaction, Work

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Job:
    """A work, the future that its caller awaits, the monotonic time by which it must begin, and its outcome."""

    work: Work[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    until: float
    result: object = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class Group:
    """Jobs that share a transaction. After they have run, the commit follows, unless the transaction was undone.

    A group that `needs_care` runs each job in its own savepoint.
    """

    jobs: list[Job]
    is_run: bool = False
    is_undone: bool = False
    needs_care: bool = False

    def drop_works(self) -> None:
        """Drop the works, which will not run again, to free their memory on this thread, not on another core."""
        for job in self.jobs:
            job.work = _done


async def _done(_: Transaction) -> None:
    """Takes the place of a work that has ended."""


class SqliteTransaction:
    """A `Transaction` whose methods never suspend the coroutine that awaits them."""

    for_update: LiteralString = ""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use `connection`, which has an open transaction."""
        self._connection = connection
        self.has_executed = False

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        return self._connection.execute(sql, parameters).fetchall()

    async def fetch_one(self, sql: LiteralString, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, if there is one."""
        return self._connection.execute(sql, parameters).fetchone()

    async def execute(self, sql: LiteralString, parameters: Parameters = ()) -> int:
        """Run a statement; the number of rows that it changed."""
        self.has_executed = True
        return self._connection.execute(sql, parameters).rowcount


def is_run_cleanly(connection: sqlite3.Connection, job: Job) -> bool:
    """Run a job in the shared transaction; False if it failed and may have left changes.

    A savepoint around each job would cost about as much as its INSERT, and most failing jobs have only read.
    """
    transaction, before = SqliteTransaction(connection), connection.total_changes
    try:
        job.result = _drive(job.work(transaction))
    except BaseException as error:  # noqa: BLE001 - the caller of this job gets it; the other jobs go on
        _raise_failure(connection, error)
        job.error = error
    # Even a statement that changed no row may have taken a sequence number.
    return job.error is None or (not transaction.has_executed and connection.total_changes == before)


def run_apart(connection: sqlite3.Connection, job: Job) -> None:
    """Run a job in a savepoint, possibly for the second time, and undo only this job if it fails."""
    connection.execute("SAVEPOINT job")
    job.result = job.error = None
    try:
        job.result = _drive(job.work(SqliteTransaction(connection)))
    except BaseException as error:  # noqa: BLE001 - the caller of this job gets it; the other jobs go on
        _raise_failure(connection, error)
        job.error = error
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def _raise_failure(connection: sqlite3.Connection, error: BaseException) -> None:
    """Raise `error` if the database itself fails or the transaction has ended: then the whole group fails.

    SQLite ends a transaction when memory or the disk is full; later statements would be committed one by one.
    """
    if (isinstance(error, sqlite3.DatabaseError) and is_failure(error)) or not connection.in_transaction:
        raise error


def is_failure(error: sqlite3.DatabaseError) -> bool:
    """Whether the database itself fails: it is busy or full (OperationalError), or damaged (bare DatabaseError)."""
    return type(error) in {sqlite3.OperationalError, sqlite3.DatabaseError}


def _drive(work: Awaitable[T]) -> T:
    """Run a coroutine that never suspends to its end."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as stop:
        return stop.value
    steps.close()
    raise RuntimeError("a work awaits only the methods of its transaction")
