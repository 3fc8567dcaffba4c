"""The epoch of a registry: in which life of its sequence numbers a cursor was given out.

A registry that was set back to an earlier state gives the numbers of lost rows to new ones, and a cursor of before
would pass those by. So another epoch begins then, a number of 32 random bits, and cursors of every earlier one are
refused. In the first epoch, which the migration begins, cursors carry none.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.storage.database import Database, Reads, Transaction

# How old a process's knowledge of the epoch may be: when another process has begun one, cursors of before are accepted
# for so long. Then one read serves every request of the next two seconds.
FRESH_SECONDS: Final = 2.0
NUMBERS: Final = 2**32
MIGRATION: Final = "0004_epoch.sql"
READ: Final = "SELECT number, renewals FROM epoch"
PUT: Final = """INSERT INTO epoch (id, number, renewals) VALUES (1, ?, ?)
ON CONFLICT (id) DO UPDATE SET number = excluded.number, renewals = excluded.renewals"""


async def renew(transaction: Transaction, number: int) -> None:
    """Begin the epoch `number`, which is below `NUMBERS` and drawn at random."""
    if not await transaction.execute("UPDATE epoch SET number = ?, renewals = renewals + 1", (number,)):
        await transaction.execute("INSERT INTO epoch (id, number, renewals) VALUES (1, ?, 1)", (number,))


class Epochs:
    """What a process knows of the epoch and of the highest numbers; none of it is older than `FRESH_SECONDS`."""

    def __init__(self, database: Database, *, seconds: Callable[[], float] = time.monotonic) -> None:
        """Nothing is read before a cursor is checked or made; `seconds` is a clock that only goes forward."""
        self._database = database
        self._seconds = seconds
        self._until = float("-inf")
        self._current: int | None = None
        self._highest: dict[str, int] = {}

    def numbers(self, reads: Reads, table: str) -> Numbers:
        """The numbers of `table`, as a request that is answered from `reads` sees them."""
        return Numbers(self, reads, table)

    async def current(self, reads: Reads) -> int | None:
        """The epoch that cursors carry now, None in the first one."""
        if self._seconds() >= self._until:
            await self._ask(reads)
        return self._current

    async def has_given(self, reads: Reads, table: str, epoch: int | None, seq: int) -> bool:
        """Whether `seq` was given to a row of `table` in this epoch, or is below one that was; 0 always is."""
        if epoch != await self.current(reads):
            await self._ask(self._database)  # what is known may be old, and a replica late
            if epoch != self._current:
                return False
        if seq <= self._highest.get(table, 0):
            return True
        if seq <= await self._ask_highest(reads, table):
            return True
        return reads is not self._database and seq <= await self._ask_highest(self._database, table)

    async def _ask(self, reads: Reads) -> None:
        until = self._seconds() + FRESH_SECONDS
        rows = await reads.fetch(READ)
        self._current = rows[0][0] if rows and rows[0][1] else None
        self._highest.clear()
        self._until = until

    async def _ask_highest(self, reads: Reads, table: str) -> int:
        ((highest,),) = await reads.fetch(f"SELECT max(seq) FROM {table}")  # noqa: S608 - a table of ours
        self._highest[table] = highest or 0
        return highest or 0


class Numbers(NamedTuple):
    """The sequence numbers that the cursors of one listing are made of."""

    epochs: Epochs
    reads: Reads
    table: str

    async def epoch(self) -> int | None:
        """The epoch that cursors carry now, None in the first one."""
        return await self.epochs.current(self.reads)

    async def has_given(self, epoch: int | None, seq: int) -> bool:
        """Whether a cursor with this number may have been given out in this epoch."""
        return await self.epochs.has_given(self.reads, self.table, epoch, seq)
