"""The clock of a process: the machine's clock, checked against its monotonic clock and other clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from muniment.clock.steadiness import APART_MS_MAX, Steadiness
from muniment.errors import ClockInDoubt

# How long a clock that stepped must be steady before it is believed.
STEADY_MS: Final = 5 * 60 * 1000

_LONG_SECONDS: Final = 600

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Doubt:
    """The reason why the clock is in doubt, and the least number of milliseconds for which it will be."""

    reason: str
    ms: int

    def refusal(self) -> ClockInDoubt:
        """The refusal of a request that needs a time for a new row."""
        seconds = -(-self.ms // 1000)
        return ClockInDoubt(f"{self.reason}: nothing new is registered now", facts={"retryAfter": seconds})


class Clock:
    """The time of day, in milliseconds since 1970, and whether it is in doubt.

    While the machine's clock is in doubt, the time goes on from its last trusted value by the monotonic clock, so it
    stays near to the truth. With a reference clock (see `compare`) it is the time of that clock.
    """

    def __init__(
        self, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int], *, steady_ms: int = STEADY_MS
    ) -> None:
        """`wall_ms` is a clock that can be set; `monotonic_ms` only goes forward, even in a suspended machine."""
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self.steady_ms = steady_ms
        self._own = Steadiness(steady_ms)
        self._reference: int | None = None
        self._apart_at_ms: int | None = None
        self._apart = ""
        self._logged = ""
        self._read()

    @classmethod
    def believed(cls, now_ms: Callable[[], int]) -> Clock:
        """A clock that is never in doubt, for processes that compare none."""
        return cls(now_ms, now_ms)

    def now_ms(self) -> int:
        """The time."""
        monotonic_ms, offset_ms = self._read()
        return monotonic_ms + (offset_ms if self._reference is None else self._reference)

    def monotonic_ms(self) -> int:
        """The time of the monotonic clock."""
        return self._monotonic_ms()

    @property
    def is_believed(self) -> bool:
        """Whether it is never in doubt."""
        return self._wall_ms is self._monotonic_ms

    @property
    def has_stepped(self) -> bool:
        """Whether the machine's clock has stepped since its first trusted value, or is in doubt."""
        return self._own.has_moved or self.steady_since_ms is None

    @property
    def offset_ms(self) -> int:
        """The machine's present time minus the monotonic time, in milliseconds."""
        return self._wall_ms() - self._monotonic_ms()

    @property
    def steady_since_ms(self) -> int | None:
        """Since when, by the monotonic clock, the machine's clock has not stepped; None while that is in doubt."""
        monotonic_ms, _ = self._read()
        return None if self._own.doubt_ms(monotonic_ms) else self._own.steady_since_ms

    def compare(self, offset_ms: int | None, whose: str) -> None:
        """Follow a reference clock from now on, or with None the machine's again.

        `offset_ms` is its time minus the monotonic time; `whose` names its owner in messages, after "that of".
        """
        monotonic_ms, _ = self._read()
        self._reference = offset_ms
        apart_ms = 0 if offset_ms is None else self.offset_ms - offset_ms
        if abs(apart_ms) > APART_MS_MAX:
            self._apart_at_ms = monotonic_ms
            where = "ahead of" if apart_ms > 0 else "behind"
            self._apart = f"the clock is {span(apart_ms)} {where} that of {whose}"
        elif self._apart_at_ms is not None and monotonic_ms - self._apart_at_ms >= self.steady_ms:
            self._apart_at_ms = None

    def doubt(self) -> Doubt | None:
        """The present doubt about the clock; None if it is trusted."""
        monotonic_ms, _ = self._read()
        if left_ms := self._own.doubt_ms(monotonic_ms):
            step_ms = self._own.step_ms
            found = Doubt(f"the clock stepped by {'+' if step_ms > 0 else '-'}{span(step_ms)}", left_ms)
        elif self._apart_at_ms is not None:
            found = Doubt(self._apart, max(1, self._apart_at_ms + self.steady_ms - monotonic_ms))
        else:
            found = None
        self._log_change(found)
        return found

    def require(self) -> None:
        """Raise `ClockInDoubt` while the clock is in doubt."""
        if found := self.doubt():
            raise found.refusal()

    def _read(self) -> tuple[int, int]:
        monotonic_ms = self._monotonic_ms()
        return monotonic_ms, self._own.read(self._wall_ms() - monotonic_ms, monotonic_ms)

    def _log_change(self, found: Doubt | None) -> None:
        reason = found.reason if found else ""
        if reason != self._logged:
            self._logged = reason
            if reason:
                _log.warning("the clock is in doubt", reason=reason)
            else:
                _log.info("the clock is believed again")


def span(ms: int) -> str:
    """A length of time in words; a long one to the nearest minute."""
    seconds = round(abs(ms) / 1000)
    seconds = seconds if seconds < _LONG_SECONDS else round(seconds / 60) * 60
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (seconds % 60, "s")) if n]
    return " ".join(parts[:2]) or "0 s"
