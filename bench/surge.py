"""Many new connections at once, each of which asks several times in a row: how long the first answers take.

Run as a process of its own: `surge.py PORT CONNECTIONS PATH`. Prints seconds from each connection's beginning to its
first answer, as JSON; a connection that ends without one has none. An answer has come when the kernel has it: to read
9,000 of them takes this process as long as it takes the server to send them.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time

from server import get

# As many loopback addresses as keep each far below the connections that one client may have.
ADDRESSES = [f"127.0.5.{number}" for number in range(1, 17)]
REQUESTS_EACH = 10
_SECONDS_MAX = 20
# Linux has it tell when a segment came (socket(7), SO_TIMESTAMPNS): seconds and nanoseconds of the time of day.
_TIMESTAMPS, _TIMESTAMP = 35, struct.Struct("qq")


class Caller:
    """One connection: what it waits for."""

    def __init__(self, address: str, port: int, request: bytes) -> None:
        self._request, self._received, self._left = request, b"", REQUESTS_EACH
        self._started, self.first_seconds = time.time(), 0.0
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS_MAX, source_address=(address, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
        self.socket.setblocking(False)
        self.socket.send(request)

    def read(self) -> bool:
        """Take what has come, and ask again; False at the end."""
        try:
            data, told, _, _ = self.socket.recvmsg(65_536, socket.CMSG_SPACE(_TIMESTAMP.size))
        except ConnectionError:
            data, told = b"", []
        if not data:
            return False
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0]):
            return True
        if not self.first_seconds and head.startswith(b"HTTP/1.1 200 "):
            # The kernel begins to take the time a moment after it was asked to for the first time.
            seconds, nanoseconds = _TIMESTAMP.unpack(told[0][2]) if told else divmod(time.time_ns(), 1_000_000_000)
            self.first_seconds = seconds + nanoseconds / 1e9 - self._started
        self._received = b""
        self._left -= 1
        if self._left:
            self.socket.send(self._request)
        return bool(self._left)


def call(port: int, connections: int, request: bytes) -> list[float]:
    """Seconds to the first answer of each connection that has had one."""
    deadline = time.monotonic() + _SECONDS_MAX
    with selectors.DefaultSelector() as waiting:
        callers = [Caller(ADDRESSES[number % len(ADDRESSES)], port, request) for number in range(connections)]
        for caller in callers:
            waiting.register(caller.socket, selectors.EVENT_READ, caller)
        while waiting.get_map() and time.monotonic() < deadline:
            for key, _ in waiting.select(timeout=1):
                if not key.data.read():
                    waiting.unregister(key.fileobj)
    for caller in callers:
        caller.socket.close()
    return [caller.first_seconds for caller in callers if caller.first_seconds]


if __name__ == "__main__":
    print(json.dumps(call(int(sys.argv[1]), int(sys.argv[2]), get(sys.argv[3]))))
