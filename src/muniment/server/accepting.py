"""Accepting all waiting connections together: the event loop itself accepts only one in each turn.

In a turn the loop also answers every request that arrived, so the last of 900 new connections would wait for 900 turns.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Connections accepted in one turn: ten to twenty milliseconds, for which other connections wait.
ALONE_PER_TURN: Final = 256
# Beside other processes: who accepts all that wait leaves none to them, and a client that opens 32 connections at once
# would have them all at one process, in half of the cases (`bench/two_processes.py`; with 16 in a quarter).
SHARED_PER_TURN: Final = 4


class Accepting:
    """Accepts the connections that wait at one listener."""

    def __init__(
        self,
        listener: socket.socket,
        loop: asyncio.AbstractEventLoop,
        room: Callable[[], int] = lambda: sys.maxsize,
        per_turn: int = ALONE_PER_TURN,
    ) -> None:
        """`listener` does not block; `room` is the number of further connections that the process may have."""
        self._room = room
        self._per_turn = per_turn
        self._listener = listener
        self._loop = loop
        self._begun: set[asyncio.Task[object]] = set()
        self._is_planned = False

    def plan(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        """Accept waiting connections later in this turn; `make_protocol` makes the protocol of one."""
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._accept, make_protocol)

    def _accept(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._is_planned = False
        for _ in range(min(self._per_turn, self._room() - len(self._begun))):
            try:
                accepted, _ = self._listener.accept()
            except OSError:  # no connection waits, or no descriptor is free, which the event loop handles
                return
            accepted.setblocking(False)
            begun = self._loop.create_task(self._loop.connect_accepted_socket(make_protocol, accepted))
            self._begun.add(begun)
            begun.add_done_callback(self._begun.discard)
