"""Runs an expensive check at most once every few seconds, for any number of callers; engines use it for readiness."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from muniment.protocol.errors import NotReady, Unavailable

# The age of an answer. Together with the time for an answer, a change is noticed in less than five seconds.
ANSWER_AGE_SECONDS_MAX: Final = 2.0
ANSWER_SECONDS_MAX: Final = 2.5


class Probe:
    """Checks whether something works. Callers within `ANSWER_AGE_SECONDS_MAX` share an answer, so strangers may ask."""

    def __init__(self, ask: Callable[[], Awaitable[None]], *, silence: str) -> None:
        """`ask` returns when it works and raises `Unavailable` if not; `silence` is the refusal if it does neither."""
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
            raise NotReady(refusal.detail)  # a new one for each caller, because each caller adds to its traceback

    async def _answer(self) -> Unavailable | None:
        try:
            await self._ask()
        except Unavailable as refusal:
            return refusal
        finally:
            self._answered_at = time.monotonic()
        return None

    async def close(self) -> None:
        """Cancel the check that runs."""
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._asking
