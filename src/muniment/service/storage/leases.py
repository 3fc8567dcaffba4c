"""Leases: rows that name the process that does a work which one process may do at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
