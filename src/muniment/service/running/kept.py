"""A value that is costly to compute, and may be some seconds old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from muniment.service.running.clock import Clock

T = TypeVar("T")


class Kept(Generic[T]):
    """A value of a process, which is computed again at most every `kept_ms`, once for concurrent readers."""

    def __init__(self, clock: Clock, kept_ms: int) -> None:
        """Compute on the first read."""
        self._clock = clock
        self._kept_ms = kept_ms
        self._until_ms = 0
        self._known: list[T] = []
        self._computing = asyncio.Lock()

    async def read(self, compute: Callable[[], Awaitable[T]]) -> T:
        """The value, or what `compute` gives if it is too old. Errors of `compute` are not kept."""
        async with self._computing:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._until_ms or not self._known:
                self._known = [await compute()]
                self._until_ms = now_ms + self._kept_ms
            return self._known[0]
