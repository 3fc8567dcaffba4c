"""A load generator: sends ready-made requests over keep-alive connections, one at a time on each, as fast as it can.

Run as a process of its own: `load.py PORT CONNECTIONS FILE`, where FILE holds the requests as JSON, in base64. Each is
sent once. Prints seconds and the number of answers that were not 200, as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import uvloop

_LENGTH = b"content-length: "


class Connection(asyncio.Protocol):
    """Sends the next request when the answer to the last is complete."""

    def __init__(self, requests: Iterator[bytes], failures: list[bytes]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests, self._failures, self._received = requests, failures, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class
        self._send()

    def data_received(self, data: bytes) -> None:
        """Count an answer that is complete, and send the next request."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        at = head.lower().index(_LENGTH) + len(_LENGTH)
        if len(body) < int(head[at:].split(b"\r\n", 1)[0]):
            return
        if not head.startswith(b"HTTP/1.1 200 "):
            self._failures.append(self._received)
        self._received = b""
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """An early end is an error."""
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
            self._transport.close()
        else:
            self._transport.write(request)


async def send_all(port: int, connections: int, requests: list[bytes]) -> dict[str, object]:
    waiting, failures, loop = iter(requests), list[bytes](), asyncio.get_running_loop()
    started = time.perf_counter()
    opened = [
        await loop.create_connection(lambda: Connection(waiting, failures), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(connection.done for _, connection in opened))
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "failed": len(failures), "first": failures[0].decode() if failures else ""}


def main() -> None:
    port, connections, file = sys.argv[1:]
    requests = [base64.b64decode(each) for each in json.loads(Path(file).read_bytes())]
    print(json.dumps(uvloop.run(send_all(int(port), int(connections), requests))))


if __name__ == "__main__":
    main()
