"""Deadlines of blocking exchanges."""

from __future__ import annotations

import socket
from weakref import WeakSet

from muniment.deadlines import Exchange


class Stream:
    """A network stream of httpcore, as far as a deadline uses it."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected

    def get_extra_info(self, info: str) -> socket.socket:
        assert info == "socket"
        return self._connected


def test_a_connection_that_is_made_after_the_deadline_is_shut_down() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(60)
        exchange = Exchange(0, WeakSet())
        with exchange.watched():
            while not exchange.is_over:
                pass
            exchange.trace("connection.connect_tcp.complete", {"return_value": Stream(ours)})
            assert theirs.recv(1) == b""
