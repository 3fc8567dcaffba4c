"""Commits a group of writes: works one after the other in one transaction, or rows with one INSERT.

`writer` calls `commit_inserts` with the `InsertOnce` of a group, and `commit_works` with its other works. An INSERT is
a transaction by itself, which saves the round trips for BEGIN and COMMIT.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple, TypeVar

from muniment.service.storage.postgres.batches import execute, fetch, fetch_batch, insert_batch
from muniment.service.storage.postgres.driver_errors import is_refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from muniment.service.running.metrics.recorder import Histogram
    from muniment.service.storage.database import InsertOnce, Parameters, Row, Work
    from muniment.service.storage.postgres.connection import Connection
    from muniment.service.storage.postgres.statements import Insertion, Statements

T = TypeVar("T")


class CommitLost(Exception):
    """The connection was lost during the commit, so it is unknown whether the changes are in the database."""


class Outcome(NamedTuple):
    """The outcome of a work for its caller: error or result."""

    result: object
    error: BaseException | None = None
    has_changed: bool = False


class PostgresTransaction:
    """A `Transaction` of one work; the works of a group share the transaction of the server."""

    for_update: LiteralString = " FOR UPDATE"

    def __init__(self, connection: Connection, statements: Statements) -> None:
        """Use `connection`, which has an open transaction."""
        self._connection = connection
        self._statements = statements
        self.has_changed = False
        # The error of a statement. The server takes no further statement in this transaction.
        self.failure: BaseException | None = None

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        statement, values = self._statements.find(sql, parameters)
        rows = await self._answer(fetch(self._connection, statement.single, values))
        self.has_changed = self.has_changed or (bool(rows) and "RETURNING" in sql)
        return rows

    async def fetch_one(self, sql: LiteralString, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, if there is one."""
        rows = await self.fetch(sql, parameters)
        return rows[0] if rows else None

    async def execute(self, sql: LiteralString, parameters: Parameters = ()) -> int:
        """Run a statement; the number of rows that it changed."""
        statement, values = self._statements.find(sql, parameters)
        count = await self._answer(execute(self._connection, statement.single, values))
        self.has_changed = self.has_changed or count > 0
        return count

    async def _answer(self, answering: Awaitable[T]) -> T:
        try:
            return await answering
        except BaseException as error:
            self.failure = error
            raise


async def commit_works(
    connection: Connection, statements: Statements, works: Sequence[Work[Any]], times: Histogram
) -> list[Outcome | None]:
    """Run `works` in one transaction and commit it; the outcome of each.

    All None: nothing was changed, and the works must run one by one, because one of them raised after a change that
    cannot be undone alone. `times` observes the commit. Raises `CommitLost`. Raises an error of the driver only when
    nothing was changed.
    """
    outcomes: list[Outcome | None] = []
    try:
        await connection.execute("BEGIN")
        for work in works:
            outcome = await _run(work, PostgresTransaction(connection, statements))
            outcomes.append(outcome)
            if outcome.error is not None and outcome.has_changed:
                await _roll_back(connection)
                return [Outcome(None, outcome.error)] if len(works) == 1 else [None] * len(works)
    except BaseException:
        await _roll_back(connection)
        raise
    try:
        await _measure(lambda: connection.execute("COMMIT"), times)
    except BaseException as error:
        connection.terminate()
        raise CommitLost from error
    return outcomes


async def _run(work: Work[Any], transaction: PostgresTransaction) -> Outcome:
    """The outcome of a work. Raises the error of a statement, whatever the work made of it."""
    try:
        outcome = Outcome(await work(transaction), None, transaction.has_changed)
    except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who gets it
        outcome = Outcome(None, error, transaction.has_changed)
    if transaction.failure is not None:
        raise transaction.failure
    return outcome


async def commit_inserts(
    connection: Connection, statements: Statements, inserts: Sequence[InsertOnce[Any]], times: Histogram
) -> list[Outcome | None]:
    """Look up and insert the rows of `inserts`, which differ only in their values; the outcome of each.

    None: the row was not inserted. It existed, another row of the group has its key, or only the work can decide. If it
    is looked up once more, a row that another writer has inserted is found. Errors and `times` as for `commit_works`.
    """
    first = inserts[0]
    statement, _ = statements.find(first.look_up, first.parameters)
    answers = await fetch_batch(connection, statement, [each.parameters for each in inserts])
    outcomes: list[Outcome | None] = [None] * len(inserts)
    # The rows to insert by their keys: of several rows with one key, the first.
    rows: dict[object, tuple[int, Parameters, object]] = {}
    for index, (insert, (found,)) in enumerate(zip(inserts, answers, strict=True)):
        try:
            made = insert.make(found)
        except Exception as error:  # noqa: BLE001 - it belongs to the caller, who gets it
            outcomes[index] = Outcome(None, error)
            continue
        if made is None:
            continue
        if made.values:
            rows.setdefault(made.values[0], (index, made.values, made.result))
        else:
            outcomes[index] = Outcome(made.result)
    if rows:
        insertion = statements.insertion(first.table, first.columns)
        for key in await _insert(connection, insertion, [values for _, values, _ in rows.values()], times):
            index, _, result = rows[key]
            outcomes[index] = Outcome(result, None, has_changed=True)
    return outcomes


async def _insert(
    connection: Connection, insertion: Insertion, rows: Sequence[Parameters], times: Histogram
) -> set[object]:
    """Insert rows; the keys of those that were not there.

    The connection is alive, because it has just answered the look-up. If it is lost now, the outcome is unknown.
    """
    try:
        return await _measure(lambda: insert_batch(connection, insertion, rows), times)
    except BaseException as error:
        if is_refusal(error) and not connection.is_closed():
            raise
        connection.terminate()
        raise CommitLost from error


async def _measure(commits: Callable[[], Awaitable[T]], times: Histogram) -> T:
    """Commit, and observe how long that took."""
    begun = time.perf_counter()
    result = await _make_durable(commits)
    times.observe(time.perf_counter() - begun)
    return result


async def _make_durable(commits: Callable[[], Awaitable[T]]) -> T:
    """Send the statement that commits. PostgreSQL answers when the commit is on disk (see `connection.connect`)."""
    return await commits()


async def _roll_back(connection: Connection) -> None:
    """Undo the transaction. If ROLLBACK fails, drop the connection; then the server undoes the transaction."""
    try:
        await connection.execute("ROLLBACK")
    except BaseException:
        connection.terminate()
        raise
