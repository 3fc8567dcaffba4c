"""Reads on a few fixed connections: what waits at the same moment, with the same text, travels as one statement.

Nothing waits for company. A read goes as soon as a connection is free; while all are busy, others gather behind.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

from muniment.errors import DatabaseUnavailable
from muniment.storage.postgres.batches import fetch_together
from muniment.storage.postgres.dispatcher import Lanes
from muniment.storage.postgres.slot import DRIVER_ERRORS, Door, Line, as_raised

if TYPE_CHECKING:
    from muniment.storage.database import Parameters, Row
    from muniment.storage.postgres.statements import Text, Texts

# Connections for reads: one that the server works on while this process reads the answer of the other.
READ_LINES: Final = 2
# Reads in one statement. Its server process answers them one after the other, a few microseconds each.
READS_TOGETHER_MAX: Final = 128
# Reads that wait: a second of what a process can serve. More are refused at once.
READS_WAITING_MAX: Final = 20_000


# The values of a read, and where its caller waits. Tens of thousands are made in a second, and a plain tuple is made
# quickest.
_Read: TypeAlias = "tuple[Parameters, asyncio.Future[list[Row]]]"


class Reader:
    """Answers reads of one database."""

    def __init__(self, door: Door, texts: Texts) -> None:
        """Connections are made when they are needed."""
        self._texts = texts
        self._waiting: dict[Text, list[_Read]] = {}
        self._count = 0
        lines = [Line(door) for _ in range(READ_LINES)]
        self._lanes = Lanes(lines, self._next, self._answer, waiting=lambda: self._count)

    def fetch(self, sql: str, parameters: Parameters) -> asyncio.Future[list[Row]]:
        """All rows of a query, once they are there. Raises `DatabaseUnavailable` when too many wait."""
        if self._count >= READS_WAITING_MAX:
            raise DatabaseUnavailable("too many reads are waiting for the database")
        text, values = self._texts.ask(sql, parameters)
        future: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(text, []).append((values, future))
        self._count += 1
        self._lanes.wake()
        return future

    async def close(self) -> None:
        """Answer what waits, then close the connections."""
        await self._lanes.close()

    def _next(self) -> tuple[Text, list[_Read]] | None:
        """The text that has waited longest, and those who wait for it."""
        for text, reads in self._waiting.items():
            taken, rest = reads[:READS_TOGETHER_MAX], reads[READS_TOGETHER_MAX:]
            del self._waiting[text]
            if rest:  # behind the others
                self._waiting[text] = rest
            self._count -= len(taken)
            return text, taken
        return None

    async def _answer(self, line: Line, waiting: tuple[Text, list[_Read]]) -> None:
        text, reads = waiting
        try:
            answers = await _ask(line, text, reads)
        except Exception as error:  # noqa: BLE001 - whatever it is, these callers wait for it, and others for the line
            raised = as_raised(error)
            if len(reads) == 1 or isinstance(raised, DatabaseUnavailable):
                _refuse(reads, raised)
                return
            for read in reads:  # one of them is wrong: each by itself, so that no neighbour pays
                await self._answer(line, (text, [read]))
        else:
            for (_, future), rows in zip(reads, answers, strict=True):
                if not future.done():
                    future.set_result(rows)


async def _ask(line: Line, text: Text, reads: list[_Read]) -> list[list[Row]]:
    """Ask once, and once more on a new connection when this one was lost, for instance while nobody used it."""
    asked = [values for values, _ in reads]
    try:
        return await fetch_together(await line.open(), text, asked)
    except DRIVER_ERRORS as error:
        if not line.lost(error) or isinstance(error, TimeoutError):
            raise
    try:
        return await fetch_together(await line.open(), text, asked)
    except DRIVER_ERRORS as error:
        line.lost(error)
        raise


def _refuse(reads: list[_Read], error: BaseException) -> None:
    """Tell each of them; an exception of its own, since each adds to its traceback."""
    for _, future in reads:
        if not future.done():
            own = DatabaseUnavailable(error.detail) if isinstance(error, DatabaseUnavailable) else error
            future.set_exception(own)
