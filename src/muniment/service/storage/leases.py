"""Leases: rows that name the process that does a work which one process may do at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from muniment.service.storage.database import Reader, Transaction

# A lease that ends later was taken with a clock that was ahead, and does not count. Synchronised clocks differ by less.
_AHEAD_MS_MAX: Final = 5 * 60 * 1000


class LeaseLostError(Exception):
    """Another process holds the lease; this transaction stored nothing."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The row `name`. A process that has not renewed its lease for `lasts_ms` is dead."""

    name: str
    lasts_ms: int

    async def is_free(self, reader: Reader, now_ms: int) -> bool:
        """Whether `take` would succeed for a new holder; a standby process asks this without a write."""
        rows = await reader.fetch("SELECT until_ms FROM leases WHERE name = ?", (self.name,))
        return not rows or not now_ms < rows[0][0] <= now_ms + self.lasts_ms + _AHEAD_MS_MAX

    async def take(self, tx: Transaction, holder: str, now_ms: int) -> bool:
        """Take the lease if it is free or has expired; whether this process holds it now."""
        await tx.execute(
            "INSERT INTO leases (name, holder, until_ms) VALUES (?, ?, 0) ON CONFLICT DO NOTHING", (self.name, "")
        )
        taken = await tx.execute(
            """UPDATE leases SET holder = ?, until_ms = ?
               WHERE name = ? AND (holder = ? OR until_ms <= ? OR until_ms > ?)""",
            (holder, now_ms + self.lasts_ms, self.name, holder, now_ms, now_ms + self.lasts_ms + _AHEAD_MS_MAX),
        )
        return taken == 1

    async def renew(self, tx: Transaction, holder: str, now_ms: int) -> None:
        """Renew the lease. Every transaction that stores something calls this, so that only the holder can store.

        An expired lease stays with its holder until another process takes it. Raises `LeaseLostError`.
        """
        renewed = await tx.execute(
            "UPDATE leases SET until_ms = ? WHERE name = ? AND holder = ?", (now_ms + self.lasts_ms, self.name, holder)
        )
        if renewed != 1:
            raise LeaseLostError

    async def release(self, tx: Transaction, holder: str) -> None:
        """Release the lease, so that another process need not wait for its end."""
        await tx.execute("UPDATE leases SET until_ms = 0 WHERE name = ? AND holder = ?", (self.name, holder))


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers from 0 to `count` - 1, each with a lease of its own: for services that must differ."""

    name: LiteralString
    count: int
    lasts_ms: int

    def lease(self, number: int) -> Lease:
        """The lease of a number."""
        return Lease(f"{self.name} {number}", self.lasts_ms)

    async def leases(self, reader: Reader | Transaction) -> dict[int, tuple[str, int]]:
        """The holder of each number that was ever leased, and the end of its lease in milliseconds."""
        rows = await reader.fetch("SELECT name, holder, until_ms FROM leases WHERE name LIKE ?", (f"{self.name} %",))
        return {int(name.rpartition(" ")[2]): (holder, until_ms) for name, holder, until_ms in rows}

    async def take(self, tx: Transaction, holder: str, now_ms: int) -> int | None:
        """Renew the lease of a holder, or take the number that has been free for the longest time.

        Returns the number; None if others hold all of them.
        """
        leases = await self.leases(tx)

        def order(number: int) -> tuple[bool, int]:
            holder_before, until_ms = leases.get(number, ("", 0))
            return holder_before != holder, until_ms

        for number in sorted(range(self.count), key=order):
            if await self.lease(number).take(tx, holder, now_ms):
                return number
        return None

    async def end(self, tx: Transaction, holder: str, now_ms: int) -> None:
        """End the lease of a holder now; when it ended stays known."""
        await tx.execute(
            "UPDATE leases SET until_ms = ? WHERE name LIKE ? AND holder = ?", (now_ms, f"{self.name} %", holder)
        )
