"""Work of callers as coroutines: each hands out its next statement, and is given the answer by whoever drives it."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from muniment.storage.database import Parameters, Row, Work
    from muniment.storage.postgres.statements import Text, Texts

# A statement that a piece of work waits for, its values, and whether the answer is how many rows it changed and not the
# rows. Thousands are made in a second, and a plain tuple is made quickest.
Step: TypeAlias = "tuple[Text, Parameters, bool]"


@coroutine
def _ask(text: Text, values: Parameters, counts: bool) -> Generator[Step, Any, Any]:  # noqa: FBT001 - the parts of a `Step`, in its order
    """Wait for the answer to a step."""
    return (yield (text, values, counts))


class PostgresTransaction:
    """A `Transaction` whose statements are sent by whoever drives the work."""

    for_update: str = " FOR UPDATE"

    def __init__(self, texts: Texts) -> None:
        """Statements are looked up in `texts`."""
        self._texts = texts

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        return await _ask(*self._texts.ask(sql, parameters), False)

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, if there is one."""
        rows: list[Row] = await _ask(*self._texts.ask(sql, parameters), False)
        return rows[0] if rows else None

    async def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement; how many rows it changed."""
        return await _ask(*self._texts.ask(sql, parameters), True)


class Run:
    """A piece of work that has begun: what it waits for, and in the end what came of it."""

    __slots__ = ("_work", "changed", "error", "is_behind", "lost", "result", "step")

    def __init__(self, work: Coroutine[Step, Any, Any]) -> None:
        """Before the first step of `work`."""
        self._work = work
        # None when it is over. Then it has a result, or an error that it raised.
        self.step: Step | None = None
        self.result: object = None
        self.error: BaseException | None = None
        # It changed something.
        self.changed = False
        # Its row was there already. It may be a neighbour's who is not done yet: this one goes on when all others are.
        self.lost = False
        self.is_behind = False

    def go_on(self, answer: object) -> None:
        """Give the answer to the last step, none to begin with; run up to the next."""
        if self.step is not None:
            text, _, counts = self.step
            if counts or not text.is_read:
                self.changed = self.changed or bool(answer)
                self.lost = not answer and text.is_insert and not self.is_behind
        try:
            self.step = self._work.send(answer)
        except StopIteration as stop:
            self.step, self.result = None, stop.value
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who gets it
            self.step, self.error = None, error

    def end(self) -> None:
        """Let go of work that is not over."""
        self._work.close()


def begin(texts: Texts, works: Sequence[Work[Any]]) -> list[Run]:
    """Each of `works` up to its first statement."""
    transaction = PostgresTransaction(texts)
    runs = [Run(cast("Coroutine[Step, Any, Any]", work(transaction))) for work in works]
    for run in runs:
        run.go_on(None)
    return runs


def end(runs: Iterable[Run]) -> None:
    """Let go of work that is not over."""
    for run in runs:
        run.end()
