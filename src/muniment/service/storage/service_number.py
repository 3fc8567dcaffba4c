"""The number of a service among those of one database: it gives out nonces of its own slots alone.

Two services never give one nonce to two devices of a wallet, although asking for a nonce stores nothing. A database
without a server has one service, whose number is 0.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from muniment.protocol.errors import Refusal, Unavailable
from muniment.service.storage.leases import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muniment.service.storage.database import Database, Transaction

# Each number costs a failing log-in as many recoveries again.
SERVICES: Final = 8
_NUMBERS: Final = Numbers("log-in nonces", SERVICES, lasts_ms=60_000)
_RENEWED_SECONDS: Final = 20.0
_RETRIED_SECONDS: Final = 1.0
# A nonce lives ten minutes at most, and the clocks of services may differ.
_RECENT_MS: Final = 15 * 60 * 1000

_log = structlog.get_logger(__name__)


class ServiceNumber:
    """The number of this service, and those whose nonces may still be good."""

    def __init__(
        self, database: Database, secret_ids: Callable[[], Sequence[str]], random_bytes: Callable[[int], bytes]
    ) -> None:
        """The number is 0 until `look` has taken one. `secret_ids` returns those of the service, newest first."""
        self._database = database
        self._secret_ids = secret_ids
        self._name = random_bytes(16).hex()
        self._holder = ""
        self._noted = ""
        self.own = 0
        # This service's own number, then those that are or were leased in the last 15 minutes.
        self.recent: tuple[int, ...] = (0,)

    async def keep(self) -> None:
        """Renew the lease until this is cancelled; then end it."""
        try:
            while True:
                is_renewed = await self.look()
                await asyncio.sleep(_RENEWED_SECONDS if is_renewed else _RETRIED_SECONDS)
        finally:
            with suppress(Refusal):  # the lease ends by itself
                await self.end()

    async def look(self) -> bool:
        """Take a number or renew its lease, and read the recent numbers; whether that succeeded."""
        try:
            await self._take()
        except Unavailable:
            return False
        except Exception as error:  # noqa: BLE001 - the next look may succeed; the task must not end
            _log.warning("number of this service not renewed", error=type(error).__name__, detail=str(error))
            return False
        return True

    async def _take(self) -> None:
        if (now_ms := await self._database.time_ms()) is None:
            return
        secret_ids = self._secret_ids()
        before, self._holder = self._holder, f"{secret_ids[0]} {self._name}"

        async def take(tx: Transaction) -> int | None:
            if before != self._holder:  # it is the first look, or the secrets were rotated
                await _NUMBERS.end(tx, before, now_ms)
            return await _NUMBERS.take(tx, self._holder, now_ms)

        number = await self._database.write(take)
        self.own = SERVICES - 1 if number is None else number
        holders = await self.read_recent()
        if any(each.partition(" ")[0] not in secret_ids for each in holders):
            self._note("another service of this database has another secret: give all of them the same MUNIMENT_SECRET")
        elif number is None:
            self._note(
                f"{SERVICES} other services use this database or were just killed: log-ins of a wallet may collide"
            )
        else:
            self._noted = ""

    async def read_recent(self) -> list[str]:
        """Read which numbers are or were leased in the last 15 minutes; the present holders.

        Raises `Unavailable`.
        """
        if (now_ms := await self._database.time_ms()) is None:
            return []
        leases = await _NUMBERS.leases(self._database)
        recent = {number for number, (_, until_ms) in leases.items() if until_ms > now_ms - _RECENT_MS}
        self.recent = (self.own, *sorted(recent - {self.own}))
        return [holder for holder, until_ms in leases.values() if until_ms > now_ms]

    async def end(self) -> None:
        """End the lease. Raises `Unavailable`."""
        if (now_ms := await self._database.time_ms()) is not None:
            await self._database.write(lambda tx: _NUMBERS.end(tx, self._holder, now_ms))

    def _note(self, fault: str) -> None:
        if fault != self._noted:
            _log.error(fault)
        self._noted = fault
