"""Compares this process's clock with the database's, or with those of the machine's other processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from muniment.clock import Neighbours, Steadiness, Voice, outvoted_by
from muniment.errors import Unavailable

if TYPE_CHECKING:
    from muniment.clock import Clock
    from muniment.context import Context

# Between two comparisons. A process notices steps of its own clock whenever it reads the time.
_LOOK_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class Timekeeper:
    """Compares the clock of a process with others while the process runs."""

    def __init__(self, context: Context) -> None:
        """Compare `context.clock`, unless it is one that is never in doubt."""
        self._context = context
        self._servers = Steadiness(context.clock.steady_ms)
        self._servers_offset_ms: int | None = None
        self._neighbours: Neighbours | None = None

    async def run(self) -> None:
        """Compare every second until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Compare once."""
        if self._context.clock.is_believed:
            return
        try:
            await self._compare(self._context.clock)
        except Unavailable:  # nothing is written meanwhile
            return
        except Exception as error:  # noqa: BLE001 - the next comparison may succeed; this task must not end
            _log.warning("clocks not compared", error=type(error).__name__, detail=str(error))

    async def _compare(self, clock: Clock) -> None:
        asked_ms = clock.monotonic_ms()
        time_ms = await self._context.database.time_ms()
        if time_ms is None:
            self._compare_with_neighbours(clock)
        else:
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
        clock.compare(self._servers.read(offset_ms, now_ms), "the database")

    def _compare_with_neighbours(self, clock: Clock) -> None:
        """Compare with the machine's other processes.

        A clock that gives way though it never stepped still has a voice: with another it may be the majority. One that
        stepped has none until it is where the others are.
        """
        if self._neighbours is None:
            path = self._context.settings.data_dir / "clocks"
            self._neighbours = Neighbours(path, self._context.random_bytes)
        since_ms, shown_ms, now_ms = clock.steady_since_ms, clock.offset_ms, clock.monotonic_ms()
        own = None if since_ms is None else Voice(since_ms, shown_ms)
        other = outvoted_by(own, shown_ms, self._neighbours.voices(now_ms))
        clock.compare(None if other is None else other.offset_ms, "another process of this machine")
        self._neighbours.publish(None if other and clock.has_stepped else own, now_ms)
