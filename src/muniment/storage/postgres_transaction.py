"""Work of many callers in one transaction, in step: statements that wait at the same step travel together.

Each piece of work is a coroutine that hands out its next statement and is given the answer.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from types import coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from muniment.storage.postgres_sql import Kind, Text, Texts
from muniment.storage.postgres_together import execute_together, fetch_together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.storage.database import Parameters, Row, Work
    from muniment.storage.postgres_line import Connection


class CommitLost(Exception):
    """The connection was lost while it committed: whether it did is not known."""


class _Entangled(Exception):
    """Work that had changed or locked a row lost another to a neighbour who is not done: they cannot go on together."""


class _Step(NamedTuple):
    """A statement that a piece of work waits for."""

    text: Text
    values: Parameters
    counts: bool  # the answer is how many rows changed, and not the rows


@coroutine
def _ask(step: _Step) -> Generator[_Step, Any, Any]:
    """Wait for the answer to `step`."""
    return (yield step)


class PostgresTransaction:
    """A `Transaction` whose statements are sent by whoever drives the work."""

    for_update: str = " FOR UPDATE"

    def __init__(self, texts: Texts) -> None:
        """Statements are looked up in `texts`."""
        self._texts = texts

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        return cast("list[Row]", await _ask(_Step(*self._texts.ask(sql, parameters), counts=False)))

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, if there is one."""
        rows = await self.fetch(sql, parameters)
        return rows[0] if rows else None

    async def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement; how many rows it changed."""
        return cast("int", await _ask(_Step(*self._texts.ask(sql, parameters), counts=True)))


@dataclass(slots=True, eq=False)
class Outcome:
    """What came of a piece of work: its result or what it raised, and whether it had changed anything before."""

    result: object = None
    error: BaseException | None = None
    changed: bool = False


@dataclass(slots=True, eq=False)
class _Run:
    work: Coroutine[_Step, Any, Any]
    step: _Step | None = None
    # Its row was there already. It may be a neighbour's who is not done yet: this one goes on when all others are.
    lost: bool = False
    is_behind: bool = False
    outcome: Outcome = field(default_factory=Outcome)

    def go_on(self, answer: object) -> None:
        """Give the answer to the last step, none to begin with; run up to the next."""
        if self.step is not None and (self.step.counts or self.step.text.kind is not Kind.READ):
            self.outcome.changed = self.outcome.changed or bool(answer)
            self.lost = not answer and self.step.text.kind is Kind.INSERT and not self.is_behind
        self.step = None
        try:
            self.step = self.work.send(answer)
        except StopIteration as stop:
            self.outcome.result = stop.value
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who gets it
            self.outcome.error = error


async def commit(connection: Connection, texts: Texts, works: Sequence[Work[Any]]) -> list[Outcome] | None:
    """Do `works` in one transaction; what came of each. The driver's errors come out, and nothing was done then.

    None, and nothing was done, when they must be done one by one: one raised after it had changed something, which can
    be undone only with the others, or they came into each other's way. Raises `CommitLost`.
    """
    await connection.execute("BEGIN")
    try:
        outcomes = await _in_step(connection, texts, works)
    except _Entangled:
        await _roll_back(connection)
        return None
    except BaseException:
        await _roll_back(connection)
        raise
    if any(outcome.error is not None and outcome.changed for outcome in outcomes):
        await _roll_back(connection)
        return outcomes if len(outcomes) == 1 else None
    try:
        await _make_durable(connection)
    except BaseException as error:
        connection.terminate()
        raise CommitLost from error
    return outcomes


async def _make_durable(connection: Connection) -> None:
    """Return once the transaction is on disk (and on synchronous standbys): what `synchronous_commit` says."""
    await connection.execute("COMMIT")


async def _roll_back(connection: Connection) -> None:
    """End the transaction without its changes; on a connection that cannot even say so the server does it."""
    try:
        await connection.execute("ROLLBACK")
    except BaseException:
        connection.terminate()
        raise


async def _in_step(connection: Connection, texts: Texts, works: Sequence[Work[Any]]) -> list[Outcome]:
    transaction = PostgresTransaction(texts)
    runs = [_Run(cast("Coroutine[_Step, Any, Any]", work(transaction))) for work in works]
    try:
        for run in runs:
            run.go_on(None)
        await _to_their_ends(connection, runs)
        for run in [run for run in runs if run.lost]:  # each to its end: it may have lost to one of these, too
            run.lost, run.is_behind = False, True
            await _to_their_ends(connection, [run])
    finally:
        for run in runs:
            run.work.close()
    return [run.outcome for run in runs]


async def _to_their_ends(connection: Connection, runs: list[_Run]) -> None:
    """Drive `runs` together as far as they are only reading and adding rows, then one after the other.

    In transactions of their own, a row that one has changed or locked would keep the others waiting until it is done.
    Here nothing keeps them, so from its first such statement on a piece of work is alone.
    """
    while groups := _grouped(runs):
        for (text, counts), members in groups.items():
            answers = await _together(connection, text, members, counts=counts)
            for run, answer in zip(members, answers, strict=True):
                run.go_on(answer)
    for run in runs:
        if run.lost:
            continue
        while run.step is not None:
            (answer,) = await _together(connection, run.step.text, [run], counts=run.step.counts)
            run.go_on(answer)
            if run.lost and len(runs) > 1:
                raise _Entangled
            run.lost = False


async def _together(connection: Connection, text: Text, members: list[_Run], *, counts: bool) -> Sequence[object]:
    asked = [run.step.values for run in members if run.step is not None]
    if counts:
        return await execute_together(connection, text, asked)
    return await fetch_together(connection, text, asked)


def _grouped(runs: list[_Run]) -> dict[tuple[Text, bool], list[_Run]]:
    """Those that wait for the same statement, in the order in which they came."""
    groups: dict[tuple[Text, bool], list[_Run]] = {}
    for run in runs:
        if run.step is not None and run.step.text.kind is not Kind.OTHER and not run.lost:
            groups.setdefault((run.step.text, run.step.counts), []).append(run)
    return groups
