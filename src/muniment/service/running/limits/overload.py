"""Overload of a process, and the requests that it refuses meanwhile.

The measure is the lag: how late a timer of the event loop fires. Every request waits that long before its work starts.
This module reads no clock and runs no timer; the server does.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from muniment.service.running.limits.costs import Shed

if TYPE_CHECKING:
    from collections.abc import Callable

_MS: Final = 1_000_000
# Between two calls of `Overload.tick`.
TICK_SECONDS: Final = 0.01
_TICK_NS: Final = 10 * _MS
# The lag of a window is the longest in it. A level is reached, or left, after three windows in a row: one long turn of
# the loop, such as a garbage collection, causes no refusal.
_WINDOW_NS: Final = 100 * _MS
_WINDOWS_HELD: Final = 3
# The lags from which EARLY, MIDDLE and LATE are refused. An idle process has under 1 ms, a busy one 10 to 50.
LEVELS_NS: Final = (100 * _MS, 200 * _MS, 400 * _MS)
# Requests that are being served. A process answers some thousands a second: the last of so many waits for 100 ms.
IN_FLIGHT_MAX: Final = 512

_LEVEL_OF: Final = {Shed.EARLY: 1, Shed.MIDDLE: 2, Shed.LATE: 3, Shed.READ: 3, Shed.PAGE: 3}


class Overload:
    """The load of one process. The server counts `in_flight`, without waits for clients and delayed refusals."""

    def __init__(self, chance: Callable[[], float], now_ns: int) -> None:
        """`chance` gives numbers from 0 up to 1; `now_ns` is the present time of the clock that `tick` gets."""
        self._chance = chance
        self.in_flight = 0
        # Requests refused since the last line in the log, which sets this to 0.
        self.refused = 0
        self.lag_ns = 0  # the lag of the last window
        self.level = 0  # of those in `LEVELS_NS`
        self._ticked_ns = now_ns
        self._began_ns = now_ns
        self._latest_ns = 0
        self._lags: deque[int] = deque([0] * _WINDOWS_HELD, maxlen=_WINDOWS_HELD)

    def tick(self, now_ns: int) -> int:
        """Record the time: the server's timer, set for 10 ms after the last call, fired.

        Returns how late it was, in nanoseconds.
        """
        late_ns = now_ns - self._ticked_ns - _TICK_NS
        self._ticked_ns = now_ns
        self._latest_ns = max(self._latest_ns, late_ns)
        if now_ns - self._began_ns < _WINDOW_NS:
            return late_ns
        self.lag_ns = self._latest_ns
        self._lags.append(self.lag_ns)
        self._began_ns, self._latest_ns = now_ns, 0
        lowest, highest = _level(min(self._lags)), _level(max(self._lags))
        self.level = min(max(self.level, lowest), highest)
        return late_ns

    def refuses(self, shed: Shed) -> bool:
        """Whether a request of this kind is refused now."""
        if shed is Shed.NEVER:
            return False
        if self.in_flight >= IN_FLIGHT_MAX:
            return True
        if not self.level:
            return False
        if self.level < _LEVEL_OF[shed]:
            return False
        return shed not in {Shed.READ, Shed.PAGE} or self._chance() < self.share_of_reads

    @property
    def share_of_reads(self) -> float:
        """The share of reads that is refused: 0.5 at twice the lag of the last level, 0.9 at ten times that lag."""
        if self.level < len(LEVELS_NS):
            return 0.0
        return 1 - LEVELS_NS[-1] / max(min(self._lags), LEVELS_NS[-1])


def _level(lag_ns: int) -> int:
    return sum(lag_ns >= level_ns for level_ns in LEVELS_NS)
