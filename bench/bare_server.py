"""A server that answers anything that arrives with the same bytes: the least that a request costs on uvloop.

Run as a process of its own: `bare_server.py BYTES`, the length of the answer's body. It does not even read the request.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

# The length of a head of Muniment's.
_FIELD = b"x-filling: " + b"x" * 420


class Connection(asyncio.Protocol):
    """Answers every piece that arrives."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer."""
        del data
        self._transport.write(self._answer)


async def main() -> None:
    size = int(sys.argv[1])
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%b\r\n\r\n%b" % (size, _FIELD, b"x" * size)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(answer), "127.0.0.1", 0)
    print(f"listens on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
