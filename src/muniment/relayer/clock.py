"""The time of a relayer: its own clock, held against the `Date` of the registry's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from muniment.relayer.schedule.due import agreed_now

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

# An older `Date` proves little: a machine that was suspended counts no monotonic time meanwhile.
_FRESH_S: Final = 60.0


@dataclass(slots=True)
class RegistryClock:
    """The time by which a relayer decides. `own_ms` is the clock of this machine, `steady_s` a monotonic one."""

    own_ms: Callable[[], int]
    steady_s: Callable[[], float]
    # The last `Date`, in milliseconds since 1970, and when it came.
    _told: tuple[int, float] | None = field(default=None, init=False)
    # The last time that both clocks allowed, and when.
    _agreed: tuple[int, float] | None = field(default=None, init=False)

    def hear(self, date: str | None) -> None:
        """Take the `Date` of an answer (RFC 9110 section 6.6.1). One that is missing or no date is ignored."""
        try:
            told_ms = round(parsedate_to_datetime(date or "").timestamp() * 1_000)
        except (ValueError, OverflowError):
            return
        self._told = (told_ms, self.steady_s())

    async def heard(self, response: httpx2.Response) -> None:
        """Take the `Date` of an answer: a hook of the HTTP client."""
        self.hear(response.headers.get("date"))

    def is_fresh(self) -> bool:
        """Whether the registry told the time within the last minute."""
        return self._told is not None and self.steady_s() - self._told[1] <= _FRESH_S

    def now_ms(self) -> int | None:
        """The time that both clocks allow, see `agreed_now`; None: they are too far apart, or the registry is silent.

        After a suspension the registry seems to lag: ask it again before this is an alarm.
        """
        if self._told is None:
            return None
        (told_ms, at_s), now_s = self._told, self.steady_s()
        now_ms = agreed_now(self.own_ms(), told_ms + round(1_000 * (now_s - at_s)))
        if now_ms is not None:
            self._agreed = now_ms, now_s
        return now_ms

    def likely_ms(self) -> int:
        """The same, also while it is in doubt: then the last time that both allowed, and what has passed since.

        A clock that steps for a moment must not put what is remembered of a run, or said of it, at another day.
        """
        now_ms = self.now_ms()
        if now_ms is not None:
            return now_ms
        if self._agreed is None:
            return self.own_ms()
        agreed_ms, at_s = self._agreed
        return agreed_ms + round(1_000 * (self.steady_s() - at_s))
