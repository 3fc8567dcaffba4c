"""A question that costs something, asked once in a while, however many want to know the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from muniment.errors import NotReady, Unavailable

# How old an answer may be. With the time that one may take, it is below five seconds that a change is noticed.
ANSWER_AGE_SECONDS_MAX: Final = 2.0
ANSWER_SECONDS_MAX: Final = 2.5


class Probe:
    """Whether something works that everybody may ask about, strangers too: asking more often costs nothing more."""

    def __init__(self, ask: Callable[[], Awaitable[None]], *, silence: str) -> None:
        """`ask` returns when it works and raises `Unavailable` when not; `silence` is said when it does neither."""
        self._ask = ask
        self._silence = silence
        self._asking: asyncio.Task[Unavailable | None] | None = None
        self._answered_at = 0.0

    async def check(self) -> None:
        """Return when it works; raise `NotReady` otherwise."""
        asking = self._asking
        if asking is None or (asking.done() and time.monotonic() - self._answered_at >= ANSWER_AGE_SECONDS_MAX):
            asking = self._asking = asyncio.get_running_loop().create_task(self._answer())
        await asyncio.wait({asking}, timeout=ANSWER_SECONDS_MAX)
        if not asking.done() or asking.cancelled():
            raise NotReady(self._silence)
        if refusal := asking.result():
            raise NotReady(refusal.detail)  # one of its own for each, since each adds to its traceback

    async def _answer(self) -> Unavailable | None:
        try:
            await self._ask()
        except Unavailable as refusal:
            return refusal
        finally:
            self._answered_at = time.monotonic()
        return None

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._asking
