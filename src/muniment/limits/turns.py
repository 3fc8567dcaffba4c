"""Long work in small portions, one in each turn of the event loop, so that quick requests are answered in between.

Without this, creates that arrive together are all verified one after another, and a read or a deactivation behind them
waits for the last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from muniment.errors import Overloaded

# Pieces of work that begin in one turn: together some two milliseconds, and enough creates to share a commit.
PER_TURN: Final = 16
# Pieces of work that wait for their turn. The last of them waits about three times as long as each of 32 clients that
# send without pause. A further one is refused, which bounds the wait.
WAITING_MAX: Final = 96


class Turns:
    """The long work of one process, in the order in which it came."""

    def __init__(self, *, per_turn: int = PER_TURN, waiting_max: int = WAITING_MAX) -> None:
        """Begin at most `per_turn` pieces in a turn of the event loop; at most `waiting_max` pieces wait."""
        self._per_turn = self._left = per_turn
        self._waiting_max = waiting_max
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_next_planned = False

    async def wait(self) -> None:
        """Return when the work may begin: immediately while a turn has room. Raises `Overloaded` when too many wait."""
        if not self._waiting and self._left:
            self._left -= 1
            self._plan_next()
            return
        if len(self._waiting) >= self._waiting_max:
            raise Overloaded("too much work waits in this process; try again in a second")
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._plan_next()
        await waiter

    def _plan_next(self) -> None:
        if not self._is_next_planned:
            self._is_next_planned = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """A turn of the event loop begins."""
        self._is_next_planned = False
        self._left = self._per_turn
        while self._waiting and self._left:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else its client went away
                waiter.set_result(None)
                self._left -= 1
        if self._left < self._per_turn:
            self._plan_next()
