"""The epoch of a registry. A new epoch makes old cursors invalid after the registry was restored from a backup.

A restored registry gives the sequence numbers of lost rows to new rows, and an old cursor would skip the new rows. So
an operator begins a new epoch, a random number of 32 bits, and cursors of earlier epochs are refused. The first epoch
begins with the registry; its cursors carry no epoch.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.service.storage.database import Database, Reader, Transaction

# How long a process keeps the epoch that it has read: one read serves all requests of this time. After another process
# begins a new epoch, this process accepts old cursors for at most this long.
FRESH_SECONDS: Final = 2.0
NUMBERS: Final = 2**32
READ: Final = "SELECT number, renewals FROM epoch"
PUT: Final = """INSERT INTO epoch (id, number, renewals) VALUES (1, ?, ?)
ON CONFLICT (id) DO UPDATE SET number = excluded.number, renewals = excluded.renewals"""


async def renew(transaction: Transaction, number: int) -> None:
    """Begin the epoch `number`, a random number below `NUMBERS`."""
    if not await transaction.execute("UPDATE epoch SET number = ?, renewals = renewals + 1", (number,)):
        await transaction.execute("INSERT INTO epoch (id, number, renewals) VALUES (1, ?, 1)", (number,))


class Epochs:
    """The epoch and the highest sequence numbers of a process, read again after `FRESH_SECONDS`."""

    def __init__(self, database: Database, *, seconds: Callable[[], float] = time.monotonic) -> None:
        """The first check of a cursor reads them; `seconds` is a monotonic clock."""
        self._database = database
        self._seconds = seconds
        self._until = float("-inf")
        self._current: int | None = None
        self._number = 0
        self._highest: dict[str, int] = {}
        self._settled, self._settled_until = 0, float("-inf")

    def numbers(self, reader: Reader, table: LiteralString) -> Numbers:
        """The sequence numbers of `table` for a request that is answered from `reader`."""
        return Numbers(self, reader, table)

    async def current(self, reader: Reader) -> int | None:
        """The epoch of new cursors, None in the first epoch."""
        if self._seconds() >= self._until:
            await self._read(reader)
        return self._current

    async def number(self, reader: Reader) -> int:
        """The number of the epoch; the first epoch has one too."""
        if self._seconds() >= self._until:
            await self._read(reader)
        return self._number

    async def number_now(self) -> int:
        """The epoch's number, read from the database: for values that clients keep long."""
        await self._read(self._database)
        return self._number

    async def is_number(self, reader: Reader, number: int) -> bool:
        """Whether the epoch has this number."""
        if number != await self.number(reader):
            await self._read(self._database)  # this process or the replica may be behind
        return number == self._number

    async def has_given(self, reader: Reader, table: LiteralString, epoch: int | None, seq: int) -> bool:
        """Whether `table` has a row with this or a higher number in this epoch; always true for 0."""
        if epoch != await self.current(reader):
            await self._read(self._database)  # this process or the replica may be behind
            if epoch != self._current:
                return False
        if seq <= self._highest.get(table, 0):
            return True
        if seq <= await self._read_highest(reader, table):
            return True
        return reader is not self._database and seq <= await self._read_highest(self._database, table)

    async def settled(self, reader: Reader) -> int:
        """A number below which no more rows of `reader` will appear.

        The primary's number may be `FRESH_SECONDS` old and so too low. A replica is asked each time: it is behind.
        """
        if reader is not self._database:
            return await settled_seq(reader)
        if self._seconds() >= self._settled_until:
            until = self._seconds() + FRESH_SECONDS
            self._settled = await settled_seq(reader)
            self._settled_until = until
        return self._settled

    async def _read(self, reader: Reader) -> None:
        until = self._seconds() + FRESH_SECONDS
        rows = await reader.fetch(READ)
        self._number, renewals = rows[0] if rows else (0, 0)
        self._current = self._number if renewals else None
        self._highest.clear()
        self._until = until

    async def _read_highest(self, reader: Reader, table: LiteralString) -> int:
        ((highest,),) = await reader.fetch(f"SELECT max(seq) FROM {table}")
        self._highest[table] = highest or 0
        return highest or 0


async def settled_seq(reader: Reader) -> int:
    """The number below which no more rows of `reader` will appear."""
    ((number,),) = await reader.fetch("SELECT settled_seq()")
    return number


class Numbers(NamedTuple):
    """The sequence numbers of one listing, for its cursors."""

    epochs: Epochs
    reader: Reader
    table: LiteralString

    async def epoch(self) -> int | None:
        """The epoch of new cursors, None in the first epoch."""
        return await self.epochs.current(self.reader)

    async def has_given(self, epoch: int | None, seq: int) -> bool:
        """Whether a cursor with this number may have been issued in this epoch."""
        return await self.epochs.has_given(self.reader, self.table, epoch, seq)

    async def settled(self) -> int:
        """A number below which no more rows will appear."""
        return await self.epochs.settled(self.reader)
