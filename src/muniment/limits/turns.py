"""Work that takes long, a little in each turn of the event loop, so that what is quick is answered in between.

Without it the creates that arrive together are all verified one after another, and a read or a deactivation that comes
behind them waits for the last. Clients take turns, too: however much one of them asks, another's work is soon begun.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Final, NamedTuple

from muniment.errors import Overloaded

# Weight that begins in one turn: creates of two to four milliseconds together, and enough of them for a commit.
PER_TURN: Final = 16
# Bytes of a body that weigh as much as a create: to read them takes as long at worst.
BYTES_PER_WEIGHT: Final = 4 * 1024
# Pieces of work that wait for their turn. Behind so many one waits some three times as long as each of 32 clients that
# ask on and on; then one of whoever has most of them is refused, so that nobody waits much longer however many ask.
WAITING_MAX: Final = 96


class _Waiter(NamedTuple):
    future: asyncio.Future[None]
    weight: int


class Turns:
    """The long work of one process: of each client in the order in which it came, of all clients in rounds."""

    def __init__(self, *, per_turn: int = PER_TURN, waiting_max: int = WAITING_MAX) -> None:
        """Begin at most `per_turn` in a turn of the event loop, and have at most `waiting_max` wait."""
        self._per_turn = self._left = per_turn
        self._waiting_max = waiting_max
        # By client, the one whose turn is next first. Nobody is in it without a waiter.
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._count = 0
        self._is_next_planned = False

    async def wait(self, client: str, weight: int = 1) -> None:
        """Return when work of `client` may begin: at once while a turn has room.

        Raises `Overloaded` when too much waits and no other client has more of it.
        """
        if not self._count and self._left > 0:
            self._left -= weight
            self._plan_next()
            return
        if self._count >= self._waiting_max:
            self._make_room(client)
        waiter = _Waiter(asyncio.get_running_loop().create_future(), weight)
        self._waiting.setdefault(client, deque()).append(waiter)
        self._count += 1
        self._plan_next()
        await waiter.future

    def _make_room(self, client: str) -> None:
        """Refuse the latest of the client that has most waiting. Raises `Overloaded` where that is `client`."""
        refusal = Overloaded("too much work waits in this process; try again in a second")
        greediest = max(self._waiting, key=lambda each: len(self._waiting[each]))
        if len(self._waiting[greediest]) <= len(self._waiting.get(client, ())) + 1:
            raise refusal
        refused = self._waiting[greediest].pop()
        self._count -= 1
        if not refused.future.done():
            refused.future.set_exception(refusal)

    def _plan_next(self) -> None:
        if not self._is_next_planned:
            self._is_next_planned = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """A turn of the event loop begins. What was too heavy for the one before is taken off this one."""
        self._is_next_planned = False
        self._left = min(self._per_turn, self._left + self._per_turn)
        while self._count and self._left > 0:
            waiter = self._next()
            if not waiter.future.done():  # else its client went away
                waiter.future.set_result(None)
                self._left -= waiter.weight
        if self._left < self._per_turn:
            self._plan_next()

    def _next(self) -> _Waiter:
        client, waiters = self._waiting.popitem(last=False)
        waiter = waiters.popleft()
        self._count -= 1
        if waiters:
            self._waiting[client] = waiters  # behind all others
        return waiter
