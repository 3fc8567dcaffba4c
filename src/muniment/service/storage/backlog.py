"""Decides when to refuse writes: too many are in the queue, or the oldest has waited for too long.

The writers of both engines call it. If the queue could grow without limit, every client would wait for longer than it
is willing to. A client that is refused immediately comes back when there is room.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import structlog

from muniment.protocol.errors import Overloaded
from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits

# The oldest write is late after this time, or after this many median commits if the disk is slow.
_OLDEST_SECONDS: Final = 0.25
_OLDEST_COMMITS: Final = 8
_COMMITS_REMEMBERED: Final = 100
# There may be thousands of refusals; one log line in this time counts them.
_LOG_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class Backlog:
    """Watches the queue of writes. Times are seconds of a monotonic clock. Threads need a lock around it."""

    def __init__(self, limits: DatabaseLimits = DATABASE_LIMITS) -> None:
        """The queue is empty; `limits` say how long it may become."""
        self._limits = limits
        self._commits: deque[float] = deque(maxlen=_COMMITS_REMEMBERED)
        self._late_since_s: float | None = None
        self._refused = 0
        self._logged_s = -math.inf

    def committed(self, seconds: float) -> None:
        """Note that a group took `seconds`, its commit included."""
        self._commits.append(seconds)

    def look(self, oldest_s: float | None, now_s: float) -> None:
        """Note that the oldest write in the queue was submitted at `oldest_s`; None for an empty queue."""
        if oldest_s is None or now_s - oldest_s <= _OLDEST_SECONDS or now_s - oldest_s <= self._patience_s():
            self._late_since_s = None
        elif self._late_since_s is None:
            self._late_since_s = now_s

    def check(self, count: int, oldest_s: float | None, now_s: float, *, urgent: bool) -> None:
        """Raise `Overloaded` unless one more write may join the `count` writes in the queue."""
        self.look(oldest_s, now_s)
        if urgent:
            is_full, is_late = count >= self._limits.urgent_writes_waiting_max, False
        else:
            is_full = count >= self._limits.writes_waiting_max
            late_max_s = self._limits.writes_late_seconds_max
            is_late = self._late_since_s is not None and now_s - self._late_since_s >= late_max_s
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
