"""Work of many callers in one transaction, in step: statements that wait at the same step travel together.

Most work reads, and then adds one row: that one statement is its transaction, and neither a beginning nor an end of it
has to be said. Whether it is the last one only the work itself can say, so it is asked before (`_guess`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from muniment.storage.postgres.batches import add_together, execute_together, fetch_together
from muniment.storage.postgres.jobs import Run, begin, end
from muniment.storage.postgres.slot import is_refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from muniment.storage.database import Parameters, Work
    from muniment.storage.postgres.slot import Connection
    from muniment.storage.postgres.statements import Text, Texts

T = TypeVar("T")


class CommitLost(Exception):
    """The connection was lost while it committed: whether it did is not known."""


class _Entangled(Exception):
    """Work that had changed or locked a row lost another to a neighbour who is not done: they cannot go on together."""


async def commit(
    connection: Connection, texts: Texts, works: Sequence[Work[Any]], *, may_guess: bool
) -> Sequence[Run | None] | None:
    """Do `works` together; what came of each. The driver's errors come out, and nothing was done then.

    None for one of them: its row was there already, where the guess was that it is new. It did nothing, and must be
    done again without a guess. None for all: nothing was done, and they must be done one by one, because one raised
    after it had changed something, which can be undone only with the others, or they came into each other's way.
    Raises `CommitLost`.
    """
    runs = begin(texts, works)
    try:
        was_answered = await _read(connection, runs)
        # A connection that has just answered was not lost while nobody used it. On any other a transaction is begun,
        # which finds that out without harm: a single statement that is lost may have been committed or not.
        if may_guess and was_answered and (text := _text_in_common(runs)):
            adding = [run for run in runs if run.step is not None]
            rows = _values(adding)
            if _guess(text, adding):
                return await _add(connection, text, rows, runs, adding)
            end(runs)
            runs = begin(texts, works)
            await _read(connection, runs)
        return await _transact(connection, runs)
    finally:
        end(runs)


async def _read(connection: Connection, runs: Sequence[Run]) -> bool:
    """Drive all up to their first statement that is no query; whether there was an answer to any.

    No transaction is needed for that: also inside of one each statement would see what is committed when it begins.
    """
    was_answered = False
    while groups := _grouped([run for run in runs if run.step is not None and run.step[0].is_read]):
        await _answer(connection, groups)
        was_answered = True
    return was_answered


def _text_in_common(runs: Sequence[Run]) -> Text | None:
    """The insertion that all wait for who are not over, if it is one that work ended with so far."""
    waiting = {(run.step[0], run.step[2]) for run in runs if run.step is not None}
    if len(waiting) != 1:
        return None
    ((text, counts),) = waiting
    return text if counts and text.is_insert and text.is_last else None


def _guess(text: Text, adding: Sequence[Run]) -> bool:
    """Tell each that its row went in, before it is sent: whether all are over with that, and none has raised.

    If they are, their rows are all that they change.
    """
    for run in adding:
        run.go_on(1)
    if any(run.step is not None for run in adding):
        text.is_last = False
        return False
    return all(run.error is None for run in adding)


async def _add(
    connection: Connection, text: Text, rows: Sequence[Parameters], runs: Sequence[Run], adding: Sequence[Run]
) -> Sequence[Run | None]:
    """Add the rows of `adding` in one statement, which is its own transaction; None for those told so wrongly."""
    try:
        counts = await _make_durable(lambda: add_together(connection, text, rows))
    except BaseException as error:
        if is_refusal(error) and not connection.is_closed():
            raise
        connection.terminate()
        raise CommitLost from error
    if all(counts):
        return runs
    wrong = {run for run, count in zip(adding, counts, strict=True) if not count}
    return [None if run in wrong else run for run in runs]


async def _transact(connection: Connection, runs: Sequence[Run]) -> Sequence[Run] | None:
    """Do the rest of all in one transaction; see `commit`."""
    if all(run.step is None for run in runs):
        return runs
    await connection.execute("BEGIN")
    try:
        await _in_step(connection, runs)
    except _Entangled:
        await _roll_back(connection)
        return None
    except BaseException:
        await _roll_back(connection)
        raise
    if any(run.error is not None and run.changed for run in runs):
        await _roll_back(connection)
        return runs if len(runs) == 1 else None
    try:
        await _make_durable(lambda: connection.execute("COMMIT"))
    except BaseException as error:
        connection.terminate()
        raise CommitLost from error
    return runs


async def _make_durable(ending: Callable[[], Awaitable[T]]) -> T:
    """Send what commits; its answer, once that is on disk (and on synchronous standbys, see `synchronous_commit`)."""
    return await ending()


async def _roll_back(connection: Connection) -> None:
    """End the transaction without its changes; on a connection that cannot even say so the server does it."""
    try:
        await connection.execute("ROLLBACK")
    except BaseException:
        connection.terminate()
        raise


async def _in_step(connection: Connection, runs: Sequence[Run]) -> None:
    await _to_their_ends(connection, runs)
    for run in [run for run in runs if run.lost]:  # each to its end: it may have lost to one of these, too
        run.lost, run.is_behind = False, True
        await _to_their_ends(connection, [run])


async def _to_their_ends(connection: Connection, runs: Sequence[Run]) -> None:
    """Drive `runs` together as far as they are only reading and adding rows, then one after the other.

    In transactions of their own, a row that one has changed or locked would keep the others waiting until it is done.
    Here nothing keeps them, so from its first such statement on a piece of work is alone.
    """
    while groups := _grouped([run for run in runs if not run.lost]):
        await _answer(connection, groups)
    for run in runs:
        if run.lost:
            continue
        while run.step is not None:
            text, _, counts = run.step
            (answer,) = await _together(connection, text, [run], counts=counts)
            run.go_on(answer)
            if run.lost and len(runs) > 1:
                raise _Entangled
            run.lost = False


async def _answer(connection: Connection, groups: dict[tuple[Text, bool], list[Run]]) -> None:
    for (text, counts), members in groups.items():
        answers = await _together(connection, text, members, counts=counts)
        for run, answer in zip(members, answers, strict=True):
            run.go_on(answer)


async def _together(connection: Connection, text: Text, members: list[Run], *, counts: bool) -> Sequence[object]:
    asked = _values(members)
    if counts:
        return await execute_together(connection, text, asked)
    return await fetch_together(connection, text, asked)


def _values(runs: Sequence[Run]) -> list[Parameters]:
    """The values of the statements that they wait for."""
    return [run.step[1] for run in runs if run.step is not None]


def _grouped(runs: Sequence[Run]) -> dict[tuple[Text, bool], list[Run]]:
    """Those that wait for the same statement, in the order in which they came."""
    groups: dict[tuple[Text, bool], list[Run]] = {}
    for run in runs:
        if run.step is not None:
            text, _, counts = run.step
            if text.is_read or text.is_insert:
                groups.setdefault((text, counts), []).append(run)
    return groups
