"""The clock of a process: the machine's clock, checked against its monotonic clock and the database's clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from muniment.protocol.errors import ClockInDoubt

# How far a clock may be moved within the time in which it must be steady, and how far two clocks may differ: the
# length of a nonce's window, so that a log-in succeeds at each of two services.
APART_MS_MAX: Final = 5 * 60 * 1000
# How long a clock that stepped must be steady before it is trusted.
STEADY_MS: Final = 5 * 60 * 1000

_LONG_SECONDS: Final = 600

_log = structlog.get_logger(__name__)


class Steadiness:
    """Whether a clock goes forward at the rate of the machine's monotonic clock. All in milliseconds.

    An offset is the time of the clock minus the monotonic time. A step is a difference of more than `APART_MS_MAX` from
    an offset of up to `steady_ms` ago, so several small steps count as one. A clock that drifts or is slewed is steady.
    """

    def __init__(self, steady_ms: int) -> None:
        """After a step the clock is in doubt for `steady_ms`."""
        self._steady_ms = steady_ms
        self._is_read = False
        # The offset that others are compared with, and since when.
        self._base_ms = self._base_at_ms = 0
        self._stepped_at_ms: int | None = None
        # The trusted offset; during doubt the one from before the step.
        self.offset_ms = 0
        # By how much the clock was moved at its last step.
        self.step_ms = 0

    def read(self, offset_ms: int, now_ms: int) -> int:
        """Record the offset at the monotonic time `now_ms`; returns the trusted offset."""
        if not self._is_read:
            self._is_read = True
            self._accept(offset_ms, now_ms)
        elif abs(offset_ms - self._base_ms) > APART_MS_MAX:
            self.step_ms = offset_ms - self._base_ms
            self._base_ms, self._stepped_at_ms = offset_ms, now_ms
        elif self._stepped_at_ms is None:
            self.offset_ms = offset_ms
            if now_ms - self._base_at_ms >= self._steady_ms:
                self._accept(offset_ms, now_ms)
        elif now_ms - self._stepped_at_ms >= self._steady_ms:
            self._stepped_at_ms = None
            self._accept(offset_ms, now_ms)
        if self._stepped_at_ms is not None and abs(offset_ms - self.offset_ms) <= APART_MS_MAX:
            self.offset_ms = offset_ms  # back where it was
        return self.offset_ms

    def doubt_ms(self, now_ms: int) -> int:
        """The milliseconds for which the clock must still be steady; 0 if it is not in doubt."""
        if self._stepped_at_ms is None:
            return 0
        return max(1, self._stepped_at_ms + self._steady_ms - now_ms)

    def _accept(self, offset_ms: int, now_ms: int) -> None:
        self.offset_ms = self._base_ms = offset_ms
        self._base_at_ms = now_ms


@dataclass(frozen=True, slots=True)
class Doubt:
    """The reason why the clock is in doubt, and the least number of milliseconds for which it will be."""

    reason: str
    ms: int

    def refusal(self) -> ClockInDoubt:
        """The refusal of a request that needs a time for a new row."""
        seconds = -(-self.ms // 1000)
        return ClockInDoubt(f"{self.reason}: no new records until it is trusted again", facts={"retryAfter": seconds})


class Clock:
    """The time of day, in milliseconds since 1970, and whether it is in doubt.

    While the machine's clock is in doubt, the time goes on from its last trusted value by the monotonic clock, so it
    stays near to the truth. Once it was compared with the database's clock, it is the time of that clock.
    """

    def __init__(
        self, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int], *, steady_ms: int = STEADY_MS
    ) -> None:
        """`wall_ms` is a clock that can be set; `monotonic_ms` only goes forward, even in a suspended machine."""
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self.steady_ms = steady_ms
        self._own = Steadiness(steady_ms)
        # The time of the database's clock minus the monotonic time.
        self._database_ms: int | None = None
        self._apart_at_ms: int | None = None
        self._apart = ""
        self._logged = ""
        self._read()

    @classmethod
    def trusted(cls, now_ms: Callable[[], int]) -> Clock:
        """A clock that is never in doubt, for processes that do not compare clocks."""
        return cls(now_ms, now_ms)

    def now_ms(self) -> int:
        """The time."""
        return self._read()[1]

    def monotonic_ms(self) -> int:
        """The time of the monotonic clock."""
        return self._monotonic_ms()

    @property
    def is_always_trusted(self) -> bool:
        """Whether the clock is never in doubt."""
        return self._wall_ms is self._monotonic_ms

    def compare(self, offset_ms: int) -> None:
        """Follow the database's clock from now on, whose time minus the monotonic time is `offset_ms`."""
        monotonic_ms, _ = self._read()
        self._database_ms = offset_ms
        apart_ms = self._wall_ms() - monotonic_ms - offset_ms
        if abs(apart_ms) > APART_MS_MAX:
            self._apart_at_ms = monotonic_ms
            where = "ahead of" if apart_ms > 0 else "behind"
            self._apart = f"the clock is {span(apart_ms)} {where} the database's clock"
        elif self._apart_at_ms is not None and monotonic_ms - self._apart_at_ms >= self.steady_ms:
            self._apart_at_ms = None

    def doubt(self) -> Doubt | None:
        """The present doubt about the clock; None if it is trusted."""
        return self.look()[1]

    def look(self) -> tuple[int, Doubt | None]:
        """The time, as `now_ms`, and the doubt about the clock, from one reading."""
        monotonic_ms, now_ms = self._read()
        if left_ms := self._own.doubt_ms(monotonic_ms):
            step_ms = self._own.step_ms
            found = Doubt(f"the clock stepped by {'+' if step_ms > 0 else '-'}{span(step_ms)}", left_ms)
        elif self._apart_at_ms is not None:
            found = Doubt(self._apart, max(1, self._apart_at_ms + self.steady_ms - monotonic_ms))
        else:
            found = None
        self._log_change(found)
        return now_ms, found

    def require(self) -> None:
        """Raise `ClockInDoubt` while the clock is in doubt."""
        if found := self.doubt():
            raise found.refusal()

    def _read(self) -> tuple[int, int]:
        """The monotonic time, and the time."""
        monotonic_ms = self._monotonic_ms()
        offset_ms = self._own.read(self._wall_ms() - monotonic_ms, monotonic_ms)
        return monotonic_ms, monotonic_ms + (offset_ms if self._database_ms is None else self._database_ms)

    def _log_change(self, found: Doubt | None) -> None:
        reason = found.reason if found else ""
        if reason != self._logged:
            self._logged = reason
            if reason:
                _log.warning("the clock is in doubt", reason=reason)
            else:
                _log.info("the clock is trusted again")


def span(ms: int) -> str:
    """A length of time in words; a long one to the nearest minute."""
    seconds = round(abs(ms) / 1000)
    seconds = seconds if seconds < _LONG_SECONDS else round(seconds / 60) * 60
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (seconds % 60, "s")) if n]
    return " ".join(parts[:2]) or "0 s"
