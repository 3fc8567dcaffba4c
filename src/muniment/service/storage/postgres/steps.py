"""Runs a work up to its next statement; `transaction` sends the statement and hands the answer back.

A work is a coroutine that awaits only the methods of its transaction. Each of these methods yields one `Step`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from enum import IntEnum, auto
from types import coroutine
from typing import TYPE_CHECKING, Any, LiteralString, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from muniment.service.storage.database import Parameters, Row, Work
    from muniment.service.storage.postgres.statements import Statement, Statements


class Expects(IntEnum):
    """The kind of answer that a work expects. An integer, because it is hashed for each statement."""

    ROWS = auto()
    COUNT = auto()  # the number of changed rows
    IS_LAST = auto()  # the same number; the work promised to end if its row is inserted


# A statement that a work waits for, its values, and the expected answer. Thousands are made each second; a plain tuple
# is the fastest to make.
Step: TypeAlias = "tuple[Statement, Parameters, Expects]"


@coroutine
def _answer_to(statement: Statement, values: Parameters, expects: Expects) -> Generator[Step, Any, Any]:
    """Wait for the answer to a step."""
    return (yield (statement, values, expects))


class PostgresTransaction:
    """A `Transaction` that yields its statements to the `StepRunner` of the work."""

    for_update: LiteralString = " FOR UPDATE"
    adds_events: bool = True

    def __init__(self, statements: Statements) -> None:
        """`statements` gives the statement for each SQL text."""
        self._statements = statements

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        return await _answer_to(*self._statements.find(sql, parameters), Expects.ROWS)

    async def fetch_one(self, sql: LiteralString, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, if there is one."""
        rows: list[Row] = await _answer_to(*self._statements.find(sql, parameters), Expects.ROWS)
        return rows[0] if rows else None

    async def execute(self, sql: LiteralString, parameters: Parameters = ()) -> int:
        """Run a statement; the number of rows that it changed."""
        return await _answer_to(*self._statements.find(sql, parameters), Expects.COUNT)

    async def add_last(self, sql: LiteralString, parameters: Parameters = ()) -> bool:
        """Insert a row; whether it was inserted. If it was, the work ends (see `Transaction.add_last`)."""
        return bool(await _answer_to(*self._statements.find(sql, parameters), Expects.IS_LAST))


class StepRunner:
    """Runs one work from statement to statement, and keeps its outcome."""

    __slots__ = ("_has_ended", "_work", "error", "has_changed", "has_lost", "result", "runs_last", "step")

    def __init__(self, work: Coroutine[Step, Any, Any]) -> None:
        """Before the first step of `work`."""
        self._work = work
        # None when the work has ended. Then `result` or `error` is its outcome.
        self.step: Step | None = None
        self.result: object = None
        self.error: BaseException | None = None
        self.has_changed = False
        # The row that the work wanted to insert existed. Another work of this group, which has not ended, may have
        # inserted it. So this work waits until all others have ended, and then `runs_last`.
        self.has_lost = False
        self.runs_last = False
        # The row that the work wanted to add last was inserted.
        self._has_ended = False

    def advance(self, answer: object) -> None:
        """Give the work the answer to its step (None at the start), and run it up to its next step."""
        if self.step is not None:
            self._note(self.step, answer)
        try:
            self.step = self._work.send(answer)
            if self._has_ended:
                raise RuntimeError("the work sends a statement after `add_last` has added its row")  # noqa: TRY301 - one way out for every error
        except StopIteration as stop:
            self.step, self.result = None, stop.value
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who gets it
            self.step, self.error = None, error

    def _note(self, step: Step, answer: object) -> None:
        """Update the flags of the work from the answer."""
        statement, _, expects = step
        if expects is not Expects.ROWS or not statement.is_read:
            self.has_changed = self.has_changed or bool(answer)
            self.has_lost = not answer and statement.is_insert and not self.runs_last
        self._has_ended = expects is Expects.IS_LAST and bool(answer)

    def close(self) -> None:
        """Close a work that has not ended."""
        self._work.close()


def start_all(statements: Statements, works: Sequence[Work[Any]]) -> list[StepRunner]:
    """Run each of `works` up to its first statement."""
    transaction = PostgresTransaction(statements)
    runners = [StepRunner(cast("Coroutine[Step, Any, Any]", work(transaction))) for work in works]
    for runner in runners:
        runner.advance(None)
    return runners


def close_all(runners: Iterable[StepRunner]) -> None:
    """Close the works that have not ended."""
    for runner in runners:
        runner.close()
