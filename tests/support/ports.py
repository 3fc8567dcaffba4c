"""Ports for servers that restart at the same port, or that cannot choose one."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from pathlib import Path

# Below the ports that Linux gives to whoever asks for any (32768 and up, by ip_local_port_range): no connection and no
# other server takes one of these by chance while its own server is not listening yet, or for a moment not any more.
# Above 10,080, the last port that browsers and Node.js refuse to ask (Fetch standard, section 2.9, "port blocking").
_FIRST, _END = 10_100, 32_000
# Ports of one test process: no other process of any checkout takes them while this one holds the lock.
_EACH = 100


def _first_of_ours() -> int:
    folder = Path(tempfile.gettempdir()) / f"muniment-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for first in range(_FIRST, _END, _EACH):
        lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return first  # the lock is let go with the process
    raise AssertionError("too many test processes: all ports are taken")


@cache
def _ours() -> Iterator[int]:
    first = _first_of_ours()
    return cycle(range(first, first + _EACH))


def free_port() -> int:
    """A free port of this machine, another one each time."""
    while True:
        port = next(_ours())
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
