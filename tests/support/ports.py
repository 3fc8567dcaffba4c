"""Ports for servers that must come back where they were, or that cannot choose one themselves."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import count

# Below the ports that Linux gives to whoever asks for any (32768 and up, by ip_local_port_range): no connection and no
# other server takes one of these by chance while its own server is not listening yet, or for a moment not any more.
_FIRST, _PORTS = 10_000, 22_000
# Test processes have ids that follow each other, and begin so far apart.
_STRIDE = 997


def _ours() -> Iterator[int]:
    begin = os.getpid() * _STRIDE
    return (_FIRST + (begin + number) % _PORTS for number in count())


_candidates = _ours()


def free_port() -> int:
    """A port of this machine on which nobody listens; another one each time."""
    while True:
        port = next(_candidates)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
