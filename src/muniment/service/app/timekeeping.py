"""Looks at the clock of a service every second, and compares it with that of the database's server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from muniment.protocol.errors import Unavailable
from muniment.service.running.clock import Steadiness

if TYPE_CHECKING:
    from muniment.service.context import Context
    from muniment.service.running.clock import Clock

# Between two looks. A step of the own clock is noticed whenever the time is read, too.
_LOOK_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class Timekeeper:
    """Judges the clock of a process while the process runs."""

    def __init__(self, context: Context) -> None:
        """Judge `context.clock`, unless it is always trusted."""
        self._context = context
        self._servers = Steadiness(context.clock.steady_ms)
        self._servers_offset_ms: int | None = None

    async def run(self) -> None:
        """Look every second until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        if self._context.clock.is_always_trusted:
            return
        try:
            await self._compare(self._context.clock)
        except Unavailable:  # nothing is written meanwhile
            return
        except Exception as error:  # noqa: BLE001 - the next comparison may succeed; this task must not end
            _log.warning("clocks not compared", error=type(error).__name__, detail=str(error))

    async def _compare(self, clock: Clock) -> None:
        asked_ms = clock.monotonic_ms()
        if (time_ms := await self._context.database.time_ms()) is not None:
            self._compare_with_server(clock, time_ms, asked_ms)
        clock.doubt()  # which logs it

    def _compare_with_server(self, clock: Clock, time_ms: int, asked_ms: int) -> None:
        """Compare with the time of the database's server, which it had at some moment since `asked_ms`.

        The last trusted offset is kept while it is possible: the answer to a query that waited is imprecise.
        """
        now_ms = clock.monotonic_ms()
        earliest, latest, last = time_ms - now_ms, time_ms - asked_ms, self._servers_offset_ms
        offset_ms = (earliest + latest) // 2 if last is None else min(max(last, earliest), latest)
        self._servers_offset_ms = offset_ms
        clock.compare(self._servers.read(offset_ms, now_ms))
