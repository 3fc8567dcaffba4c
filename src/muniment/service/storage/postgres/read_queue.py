"""Queues the reads of one database by their statement, and sends each group as one statement; `engine` calls it.

A group starts as soon as a slot is free. While all slots are busy, more reads join the next group.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeAlias

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.postgres.batches import fetch_batch
from muniment.service.storage.postgres.dispatcher import Dispatcher
from muniment.service.storage.postgres.driver_errors import DRIVER_ERRORS, for_caller
from muniment.service.storage.postgres.slot import Connector, Slot

if TYPE_CHECKING:
    from muniment.service.running.metrics.recorder import DatabaseMetrics
    from muniment.service.storage.database import Parameters, Row
    from muniment.service.storage.postgres.statements import Statement, Statements

# Connections for reads: the server works on one group while this process takes the answer to the other.
READ_SLOTS: Final = 2
# Reads in one group. The server answers them one after the other, in a few microseconds each.
GROUP_SIZE_MAX: Final = 128
# Reads in the queue: about a second of one process's work. More are refused.
READS_WAITING_MAX: Final = 20_000


# The values of a read, and the future that its caller awaits. Tens of thousands are made each second; a plain tuple is
# the fastest to make.
_Read: TypeAlias = "tuple[Parameters, asyncio.Future[list[Row]]]"


class ReadQueue:
    """Answers the reads of one process from one database."""

    def __init__(
        self, connector: Connector, statements: Statements, *,
        metrics: DatabaseMetrics, reads_waiting_max: int = READS_WAITING_MAX,
    ) -> None:  # fmt: skip
        """Connect on first use."""
        self._metrics = metrics
        self._reads_waiting_max = reads_waiting_max
        self._statements = statements
        self._queue: dict[Statement, list[_Read]] = {}
        self._queue_length = 0
        slots = [Slot(connector) for _ in range(READ_SLOTS)]
        self._dispatcher = Dispatcher(slots, self._next_group, self._serve, queue_length=lambda: self._queue_length)

    def fetch(self, sql: str, parameters: Parameters) -> asyncio.Future[list[Row]]:
        """All rows of a query. Raises `DatabaseUnavailable` when too many reads are in the queue."""
        if self._queue_length >= self._reads_waiting_max:
            raise DatabaseUnavailable("too many reads are waiting for the database")
        statement, values = self._statements.find(sql, parameters)
        future: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        self._queue.setdefault(statement, []).append((values, future))
        self._queue_length += 1
        self._dispatcher.wake()
        return future

    async def close(self) -> None:
        """Answer the reads in the queue, then close the connections."""
        await self._dispatcher.close()

    def _next_group(self) -> tuple[Statement, list[_Read]] | None:
        """The statement that has waited longest, with its reads."""
        for statement, reads in self._queue.items():
            group, rest = reads[:GROUP_SIZE_MAX], reads[GROUP_SIZE_MAX:]
            del self._queue[statement]
            if rest:  # at the end of the queue
                self._queue[statement] = rest
            self._queue_length -= len(group)
            return statement, group
        return None

    async def _serve(self, slot: Slot, group: tuple[Statement, list[_Read]]) -> None:
        """Answer a group. If the server refuses it, send each read alone, so that only the refused read fails."""
        statement, reads = group
        begun = time.perf_counter()
        try:
            answers = await _fetch(slot, statement, reads)
        except Exception as error:  # noqa: BLE001 - every caller must get an outcome, and later groups need the slot
            refusal = for_caller(error)
            if len(reads) == 1 or isinstance(refusal, DatabaseUnavailable):
                self._metrics.fail("read")
                _refuse(reads, refusal)
                return
            for read in reads:
                await self._serve(slot, (statement, [read]))
        else:
            self._metrics.reads.observe(time.perf_counter() - begun)
            for (_, future), rows in zip(reads, answers, strict=True):
                if not future.done():
                    future.set_result(rows)


async def _fetch(slot: Slot, statement: Statement, reads: list[_Read]) -> list[list[Row]]:
    """The rows of each read; asks once more on a new connection if this one was lost, for example while idle."""
    batch = [values for values, _ in reads]
    try:
        return await fetch_batch(await slot.open(), statement, batch)
    except DRIVER_ERRORS as error:
        if not slot.drop_if_lost(error) or isinstance(error, TimeoutError):
            raise
    try:
        return await fetch_batch(await slot.open(), statement, batch)
    except DRIVER_ERRORS as error:
        slot.drop_if_lost(error)
        raise


def _refuse(reads: list[_Read], error: BaseException) -> None:
    """Give each caller the error, as a separate exception, because each caller adds to its traceback."""
    for _, future in reads:
        if not future.done():
            own = DatabaseUnavailable(error.detail) if isinstance(error, DatabaseUnavailable) else error
            future.set_exception(own)
