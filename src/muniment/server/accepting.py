"""Connections that wait behind the one that was accepted: the event loop takes one of them in each of its turns.

A turn lasts as long as everybody who asks is answered, so the last of 900 that come together would wait for as many.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Accepted in one turn: ten to twenty milliseconds of work, for which those who are connected wait.
_TOGETHER: Final = 256


class Accepting:
    """Takes what waits at one listener, whenever somebody says that it may be more than one."""

    def __init__(
        self, listener: socket.socket, loop: asyncio.AbstractEventLoop, room: Callable[[], int] = lambda: sys.maxsize
    ) -> None:
        """`listener` does not block; `room` tells how many more connections the process has descriptors for."""
        self._room = room
        self._listener = listener
        self._loop = loop
        self._begun: set[asyncio.Task[object]] = set()
        self._is_planned = False

    def plan(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        """Look in this turn whether more connections wait; `make_protocol` makes what serves one."""
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._accept, make_protocol)

    def _accept(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._is_planned = False
        for _ in range(min(_TOGETHER, self._room() - len(self._begun))):
            try:
                accepted, _ = self._listener.accept()
            except OSError:  # nobody waits, or there is no descriptor left, which the event loop deals with
                return
            accepted.setblocking(False)
            begun = self._loop.create_task(self._loop.connect_accepted_socket(make_protocol, accepted))
            self._begun.add(begun)
            begun.add_done_callback(self._begun.discard)
