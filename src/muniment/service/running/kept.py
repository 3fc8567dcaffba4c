"""Counts that are costly, and may be some seconds old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from muniment.protocol.errors import DeadlineExceeded

if TYPE_CHECKING:
    from muniment.service.running.clock import Clock

T = TypeVar("T")

# How long a count is reused: it reads every record of a day.
_KEPT_MS: Final = 30_000


class KeptCount(Generic[T]):
    """A count of a process: counted at most twice a minute, once for concurrent readers."""

    def __init__(self, clock: Clock) -> None:
        """Count on the first read."""
        self._clock = clock
        self._until_ms: int | None = None
        self._known: T | None = None
        self._counting = asyncio.Lock()

    async def read(self, count: Callable[[], Awaitable[T]]) -> T | None:
        """The kept count, or a new one by `count`; None while there are too many records to count them in time."""
        async with self._counting:
            now_ms = self._clock.monotonic_ms()
            if self._until_ms is None or now_ms >= self._until_ms:
                try:
                    self._known = await count()
                except DeadlineExceeded:
                    self._known = None
                self._until_ms = now_ms + _KEPT_MS
            return self._known
