"""Runs the works of a group in step, in one transaction: equal statements that they wait for are sent as one.

`writer` calls `commit` with each group. Most works read, and then add one row by `Transaction.add_last`. Such a group
needs no BEGIN and no COMMIT: its rows are one statement, which is a transaction by itself. This saves two round trips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from muniment.storage.postgres.batches import execute_batch, fetch_batch, insert_batch
from muniment.storage.postgres.driver_errors import is_refusal
from muniment.storage.postgres.steps import Expects, StepRunner, close_all, start_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from muniment.storage.database import Parameters, Work
    from muniment.storage.postgres.slot import Connection
    from muniment.storage.postgres.statements import Statement, Statements

T = TypeVar("T")


class CommitLost(Exception):
    """The connection was lost during the commit: nobody knows whether the changes are in the database."""


class _Conflict(Exception):
    """A work that had changed or locked a row wants a row of another work of the group that is not over.

    Neither can wait for the other inside one transaction.
    """


async def commit(
    connection: Connection, statements: Statements, works: Sequence[Work[Any]], *, needs_transaction: bool
) -> Sequence[StepRunner | None] | None:
    """Run `works` as one group and commit it; the runner of each, with its outcome.

    None in place of one runner: the row that this work wanted to add last was there. The work changed nothing; run it
    again with `needs_transaction`. None in place of the list: nothing was changed, and the works must be run one by
    one, because one raised after a change that cannot be undone alone, or two were in conflict.

    Raises the errors of the driver, when nothing was changed, and `CommitLost`.
    """
    runners = start_all(statements, works)
    try:
        was_answered = await _read(connection, runners)
        # A connection that has just answered a query is alive. On any other connection begin a transaction, which
        # finds out without harm: if it were lost together with a row, nobody would know whether the row is there.
        if was_answered and not needs_transaction and (statement := _common_last(runners)):
            return await _add_last(connection, statement, runners)
        return await _transact(connection, runners)
    finally:
        close_all(runners)


async def _read(connection: Connection, runners: Sequence[StepRunner]) -> bool:
    """Run all works up to their first statement that is not a plain query; whether the server answered any query.

    No transaction is needed: at READ COMMITTED a statement sees what is committed when it begins, in one or outside.
    """
    was_answered = False
    while batches := _batched([each for each in runners if each.step is not None and each.step[0].is_read]):
        await _send_batches(connection, batches)
        was_answered = True
    return was_answered


def _common_last(runners: Sequence[StepRunner]) -> Statement | None:
    """The statement by which all works that are not over add their last row, if it is the same for all."""
    steps = {(each.step[0], each.step[2]) for each in runners if each.step is not None}
    if len(steps) != 1:
        return None
    ((statement, expects),) = steps
    return statement if expects is Expects.IS_LAST and statement.is_insert else None


async def _add_last(
    connection: Connection, statement: Statement, runners: Sequence[StepRunner]
) -> Sequence[StepRunner | None]:
    """Add the last rows in one statement, which is its own transaction; None for a work whose row was there."""
    adding = [each for each in runners if each.step is not None]
    rows = _values(adding)
    try:
        counts = await _make_durable(lambda: insert_batch(connection, statement, rows))
    except BaseException as error:
        if is_refusal(error) and not connection.is_closed():
            raise
        connection.terminate()
        raise CommitLost from error
    refused: set[StepRunner] = set()
    for runner, count in zip(adding, counts, strict=True):
        if count:
            runner.advance(count)
        else:
            refused.add(runner)
    return [None if each in refused else each for each in runners]


async def _transact(connection: Connection, runners: Sequence[StepRunner]) -> Sequence[StepRunner] | None:
    """Run the rest of all works in one transaction; see `commit`."""
    if all(each.step is None for each in runners):
        return runners
    await connection.execute("BEGIN")
    try:
        await _run_in_step(connection, runners)
    except _Conflict:
        await _roll_back(connection)
        return None
    except BaseException:
        await _roll_back(connection)
        raise
    if any(each.error is not None and each.has_changed for each in runners):
        await _roll_back(connection)
        return runners if len(runners) == 1 else None
    try:
        await _make_durable(lambda: connection.execute("COMMIT"))
    except BaseException as error:
        connection.terminate()
        raise CommitLost from error
    return runners


async def _make_durable(commits: Callable[[], Awaitable[T]]) -> T:
    """Send the statement that commits. PostgreSQL answers when the commit is on disk (see `synchronous_commit`)."""
    return await commits()


async def _roll_back(connection: Connection) -> None:
    """Undo the transaction. If ROLLBACK fails, end the connection: the server undoes the transaction then."""
    try:
        await connection.execute("ROLLBACK")
    except BaseException:
        connection.terminate()
        raise


async def _run_in_step(connection: Connection, runners: Sequence[StepRunner]) -> None:
    """Run all works to their ends, those whose row was there after all others."""
    await _run_to_end(connection, runners)
    for runner in [each for each in runners if each.has_lost]:  # one by one: its row may be the row of one of these
        runner.has_lost, runner.runs_last = False, True
        await _run_to_end(connection, [runner])


async def _run_to_end(connection: Connection, runners: Sequence[StepRunner]) -> None:
    """Run the works in step while they only read and add rows, then one after the other.

    In transactions of their own, a work that changed or locked a row would make the others wait until it is over. In
    one transaction nothing makes them wait. So a work runs alone from its first such statement on.
    """
    while batches := _batched([each for each in runners if not each.has_lost]):
        await _send_batches(connection, batches)
    for runner in runners:
        if runner.has_lost:
            continue
        while runner.step is not None:
            statement, _, expects = runner.step
            (answer,) = await _send(connection, statement, expects, [runner])
            runner.advance(answer)
            if runner.has_lost and len(runners) > 1:
                raise _Conflict
            runner.has_lost = False


async def _send_batches(connection: Connection, batches: dict[tuple[Statement, Expects], list[StepRunner]]) -> None:
    """Send each batch, and advance its works by their answers."""
    for (statement, expects), members in batches.items():
        answers = await _send(connection, statement, expects, members)
        for runner, answer in zip(members, answers, strict=True):
            runner.advance(answer)


async def _send(
    connection: Connection, statement: Statement, expects: Expects, members: list[StepRunner]
) -> Sequence[object]:
    """Send the statement that all `members` wait for; the answer to each."""
    values = _values(members)
    if expects is Expects.ROWS:
        return await fetch_batch(connection, statement, values)
    return await execute_batch(connection, statement, values)


def _values(runners: Sequence[StepRunner]) -> list[Parameters]:
    """The values of the statements that the works wait for."""
    return [each.step[1] for each in runners if each.step is not None]


def _batched(runners: Sequence[StepRunner]) -> dict[tuple[Statement, Expects], list[StepRunner]]:
    """The works that wait for a query or an insertion, by that statement, in the order in which they came."""
    batches: dict[tuple[Statement, Expects], list[StepRunner]] = {}
    for runner in runners:
        if runner.step is not None:
            statement, _, expects = runner.step
            if statement.is_read or statement.is_insert:
                batches.setdefault((statement, expects), []).append(runner)
    return batches
