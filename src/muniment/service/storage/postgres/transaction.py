"""Runs the works of a group in step, in one transaction, and sends their equal statements as one.

`writer` calls `commit` with each group. Most works only read before they add one row with `Transaction.add_last`. A
group of such works needs no BEGIN and no COMMIT: one statement inserts all rows, and is a transaction by itself. This
saves two round trips.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from muniment.service.storage.postgres.batches import execute_batch, fetch_batch, insert_batch
from muniment.service.storage.postgres.driver_errors import is_refusal
from muniment.service.storage.postgres.steps import Expects, StepRunner, close_all, start_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from muniment.service.running.metrics.recorder import Histogram
    from muniment.service.storage.database import Parameters, Work
    from muniment.service.storage.postgres.connection import Connection
    from muniment.service.storage.postgres.statements import Statement, Statements

T = TypeVar("T")


class CommitLost(Exception):
    """The connection was lost during the commit, so it is unknown whether the changes are in the database."""


class _Conflict(Exception):
    """A work has changed or locked a row, and its INSERT meets a row that another work of the group may have inserted.

    Inside one transaction it cannot wait for the other work.
    """


async def commit(
    connection: Connection,
    statements: Statements,
    works: Sequence[Work[Any]],
    *,
    needs_transaction: bool,
    times: Histogram,
) -> Sequence[StepRunner | None] | None:
    """Run `works` as one group and commit it; the runner of each work, with its outcome.

    None in place of a runner: the row that this work wanted to add last existed. The work changed nothing; run it again
    with `needs_transaction`. None in place of the list: nothing was changed, and the works must run one by one, because
    one raised after a change that cannot be undone alone, or two were in conflict.

    `times` observes the commit. Raises `CommitLost`. Raises an error of the driver only when nothing was changed.
    """
    runners = start_all(statements, works)
    try:
        was_answered = await _read(connection, runners)
        # A connection that has just answered a query is alive. On any other connection BEGIN comes first: if that
        # fails, nothing was sent. If an INSERT failed with the connection, its outcome would be unknown.
        if was_answered and not needs_transaction and (statement := _common_last(runners)):
            return await _add_last(connection, statement, runners, times)
        return await _transact(connection, runners, times)
    finally:
        close_all(runners)


async def _read(connection: Connection, runners: Sequence[StepRunner]) -> bool:
    """Run all works up to their first statement that is no plain query; whether the server answered any query.

    Plain queries need no transaction: at READ COMMITTED each statement has its own snapshot in any case.
    """
    was_answered = False
    while batches := _batched([each for each in runners if each.step is not None and each.step[0].is_read]):
        await _send_batches(connection, batches)
        was_answered = True
    return was_answered


def _common_last(runners: Sequence[StepRunner]) -> Statement | None:
    """The statement with which all unfinished works add their last row, if they share one; otherwise None."""
    steps = {(each.step[0], each.step[2]) for each in runners if each.step is not None}
    if len(steps) != 1:
        return None
    ((statement, expects),) = steps
    return statement if expects is Expects.IS_LAST and statement.is_insert else None


async def _add_last(
    connection: Connection, statement: Statement, runners: Sequence[StepRunner], times: Histogram
) -> Sequence[StepRunner | None]:
    """Add the last rows in one statement, which is its own transaction; None for a work whose row existed."""
    adding = [each for each in runners if each.step is not None]
    rows = _values(adding)
    try:
        counts = await _measure(lambda: insert_batch(connection, statement, rows), times)
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


async def _transact(
    connection: Connection, runners: Sequence[StepRunner], times: Histogram
) -> Sequence[StepRunner] | None:
    """Run the rest of all works in one transaction; see `commit`."""
    if all(each.step is None for each in runners):
        return runners
    try:
        await connection.execute("BEGIN")
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
        await _measure(lambda: connection.execute("COMMIT"), times)
    except BaseException as error:
        connection.terminate()
        raise CommitLost from error
    return runners


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


async def _run_in_step(connection: Connection, runners: Sequence[StepRunner]) -> None:
    """Run all works to their ends; the works whose row existed run after all others."""
    await _run_to_end(connection, runners)
    for runner in [each for each in runners if each.has_lost]:  # one by one: two of them may want the same row
        runner.has_lost, runner.runs_last = False, True
        await _run_to_end(connection, [runner])


async def _run_to_end(connection: Connection, runners: Sequence[StepRunner]) -> None:
    """Run the works in step while they only read and insert, then one after the other.

    In separate transactions, a work that changes or locks a row makes the others wait for its end. Inside one
    transaction no lock does that. So a work runs alone from its first UPDATE, DELETE or locking query on.
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
    """Send each batch, and give its works their answers."""
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
    """The works that wait for a query or an INSERT, by statement, in the order of `runners`."""
    batches: dict[tuple[Statement, Expects], list[StepRunner]] = {}
    for runner in runners:
        if runner.step is not None:
            statement, _, expects = runner.step
            if statement.is_read or statement.is_insert:
                batches.setdefault((statement, expects), []).append(runner)
    return batches
