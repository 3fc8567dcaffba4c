"""When no more writes are taken: those that wait are too many, or have waited for too long.

A queue that only grows makes every client wait for longer than it will, and loses them all in the end. A client that is
refused at once comes back when there is room.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import structlog

from muniment.errors import Overloaded

# Writes of a process that wait: about four groups, a tenth of a second of what it can serve.
WAITING_MAX: Final = 1_000
# The same with those that are urgent: the work of half a second, however little memory they take.
URGENT_WAITING_MAX: Final = 10_000
# The oldest write may have waited for so long, or for so many usual commits where the disk is slow, ...
_OLDEST_SECONDS: Final = 0.25
_OLDEST_COMMITS: Final = 8
_COMMITS_REMEMBERED: Final = 100
# ... and for this long on end: one slow commit refuses nobody.
_ON_END_SECONDS: Final = 0.5
# Refusals come by the thousand; the log says so this often.
_LOG_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class Backlog:
    """The writes of a process that wait. Times are seconds of one monotonic clock; callers keep threads apart."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._commits: deque[float] = deque(maxlen=_COMMITS_REMEMBERED)
        self._late_since_s: float | None = None
        self._refused = 0
        self._logged_s = -math.inf

    def committed(self, seconds: float) -> None:
        """A group took so long."""
        self._commits.append(seconds)

    def look(self, oldest_s: float | None, now_s: float) -> None:
        """The oldest write that waits was submitted at `oldest_s`; None when none does."""
        if oldest_s is None or now_s - oldest_s <= _OLDEST_SECONDS or now_s - oldest_s <= self._patience_s():
            self._late_since_s = None
        elif self._late_since_s is None:
            self._late_since_s = now_s

    def check(self, count: int, oldest_s: float | None, now_s: float, *, urgent: bool) -> None:
        """Raise `Overloaded` where another write would be one too many behind the `count` that wait."""
        self.look(oldest_s, now_s)
        if urgent:
            is_full, is_late = count >= URGENT_WAITING_MAX, False
        else:
            is_full = count >= WAITING_MAX
            is_late = self._late_since_s is not None and now_s - self._late_since_s >= _ON_END_SECONDS
        if is_full or is_late:
            self._log_refusal(count, now_s)
        if is_full:
            raise Overloaded("too many writes are waiting for the database")
        if is_late:
            raise Overloaded("writes are waiting for the database for too long")

    def _log_refusal(self, count: int, now_s: float) -> None:
        self._refused += 1
        if now_s - self._logged_s >= _LOG_SECONDS:
            _log.warning("writes refused", refused=self._refused, waiting=count)
            self._logged_s, self._refused = now_s, 0

    def _patience_s(self) -> float:
        if not self._commits:
            return 0.0
        return _OLDEST_COMMITS * sorted(self._commits)[len(self._commits) // 2]
