"""Work that takes long, a little in each turn of the event loop, so that what is quick is answered in between.

Without it the creates that arrive together are all verified one after another, and a read or a deactivation that comes
behind them waits for the last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from muniment.errors import Overloaded

# Pieces of work that begin in one turn: creates of some two milliseconds together, and enough of them for a commit.
PER_TURN: Final = 16
# Pieces of work that wait for their turn. Behind so many one waits some three times as long as each of 32 clients that
# ask on and on; one more is refused, so that nobody waits for much longer however many ask.
WAITING_MAX: Final = 96


class Turns:
    """The long work of one process, in the order in which it came."""

    def __init__(self, *, per_turn: int = PER_TURN, waiting_max: int = WAITING_MAX) -> None:
        """Begin at most `per_turn` in a turn of the event loop, and have at most `waiting_max` wait."""
        self._per_turn = self._left = per_turn
        self._waiting_max = waiting_max
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_next_planned = False

    async def wait(self) -> None:
        """Return when the work may begin: at once while a turn has room. Raises `Overloaded` when too many wait."""
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
