"""A queue for long work: each turn of the event loop starts a little of it, and serves quick requests in between.

Without the queue a read or a deactivation would wait until all earlier creates are verified. The queue is fair: it
serves clients in rounds, so a client with many requests hardly delays the others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Final, NamedTuple

from muniment.protocol.errors import Overloaded

# Weight that begins in one turn: 16 creates take two to four milliseconds, enough for one commit.
PER_TURN: Final = 16
# Bytes of a body that weigh as much as a create: their decoding takes as long at worst.
BYTES_PER_WEIGHT: Final = 4 * 1024
# The most waiting requests: three rounds of 32 busy clients. Beyond it the client with most waiting requests gets a
# refusal, so waits are bounded.
WAITING_MAX: Final = 96


class _Waiter(NamedTuple):
    future: asyncio.Future[None]
    weight: int


class FairQueue:
    """The queue of one process: the requests of a client in their order, the clients in rounds."""

    def __init__(self, *, per_turn: int = PER_TURN, waiting_max: int = WAITING_MAX) -> None:
        """Begin at most `per_turn` in a turn of the event loop, and have at most `waiting_max` wait."""
        self._per_turn = self._left = per_turn
        self._waiting_max = waiting_max
        # By client, in the order of their turns. Every client in it has a waiter.
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._count = 0
        self._is_next_planned = False

    async def wait(self, client: str, weight: int = 1) -> None:
        """Return when work of `client` may begin: immediately while the present turn has room.

        Raises `Overloaded` when the queue is full and no other client has more requests in it.
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
        """Refuse the latest request of the client with most of them. Raises `Overloaded` where that is `client`."""
        refusal = Overloaded("too many requests are waiting in this process; try again in a second")
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
        """Begin a turn of the event loop, less the weight by which the turn before exceeded its share."""
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
            self._waiting[client] = waiters  # after all others
        return waiter
