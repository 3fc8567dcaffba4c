"""A lock that clients have in rounds: one with many tasks that want it hardly delays the others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Rounds:
    """The lock. Tasks of one client have it in the order in which they asked."""

    def __init__(self) -> None:
        """Begin with nobody inside."""
        self._is_taken = False
        # By client, in the order of their turns.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn_of(self, client: str) -> AsyncGenerator[None]:
        """Be the only one inside, when it is the turn of `client`."""
        if self._is_taken:
            await self._wait(client)
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on(client)

    async def _wait(self, client: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn came at the same moment
                self._pass_on(client)
            raise

    def _pass_on(self, client: str) -> None:
        """Let the next one in after a turn of `client`; the lock stays taken."""
        if client in self._waiting:
            self._waiting.move_to_end(client)
        while self._waiting:
            following, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            if not turns:
                del self._waiting[following]
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                return
        self._is_taken = False
