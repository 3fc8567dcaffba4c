"""Whether a clock goes forward at the rate of the monotonic clock. Pure."""

from __future__ import annotations

from typing import Final

# How far a clock may be moved within the time in which it must be steady, and how far two clocks may differ: the
# length of a nonce's window, so that a log-in succeeds at each of two processes.
APART_MS_MAX: Final = 5 * 60 * 1000


class Steadiness:
    """A clock, judged by its offset: its time less that of the machine's monotonic clock. All in milliseconds.

    A step is a difference of more than `APART_MS_MAX` from an offset of up to `steady_ms` ago, so several small steps
    count as one large step. A clock that drifts, or is slewed, is steady.
    """

    def __init__(self, steady_ms: int) -> None:
        """After a step the clock is in doubt for `steady_ms`."""
        self._steady_ms = steady_ms
        self._is_read = False
        # The offset with which others are compared, and when that began.
        self._base_ms = self._base_at_ms = 0
        self._stepped_at_ms: int | None = None
        # The trusted offset; during doubt the one from before the step.
        self.offset_ms = 0
        # By how much the clock was moved at its last step.
        self.step_ms = 0
        # The monotonic time since which the offset is trusted; and whether another one was trusted before.
        self.steady_since_ms = 0
        self.has_moved = False

    def read(self, offset_ms: int, now_ms: int) -> int:
        """Record the offset at `now_ms` of the monotonic clock; returns the trusted one."""
        if not self._is_read:
            self._is_read = True
            self.steady_since_ms = now_ms
            self._accept(offset_ms, now_ms)
        elif abs(offset_ms - self._base_ms) > APART_MS_MAX:
            self.step_ms = offset_ms - self._base_ms
            self._base_ms, self._stepped_at_ms = offset_ms, now_ms
        elif self._stepped_at_ms is None:
            self.offset_ms = offset_ms
            if now_ms - self._base_at_ms >= self._steady_ms:
                self._accept(offset_ms, now_ms)
        elif now_ms - self._stepped_at_ms >= self._steady_ms:
            if abs(offset_ms - self.offset_ms) > APART_MS_MAX:
                self.steady_since_ms, self.has_moved = now_ms, True
            self._stepped_at_ms = None
            self._accept(offset_ms, now_ms)
        if self._stepped_at_ms is not None and abs(offset_ms - self.offset_ms) <= APART_MS_MAX:
            self.offset_ms = offset_ms  # it is back where it was
        return self.offset_ms

    def doubt_ms(self, now_ms: int) -> int:
        """The milliseconds for which the clock must still be steady; 0 if it is not in doubt."""
        if self._stepped_at_ms is None:
            return 0
        return max(1, self._stepped_at_ms + self._steady_ms - now_ms)

    def _accept(self, offset_ms: int, now_ms: int) -> None:
        self.offset_ms = self._base_ms = offset_ms
        self._base_at_ms = now_ms
