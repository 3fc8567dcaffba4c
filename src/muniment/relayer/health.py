"""A port on this machine that says whether a relayer works: `/healthz` and `/metrics`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

# A request of a monitor has a few hundred bytes.
_HEAD_BYTES_MAX: Final = 8 * 1024
_HEAD_SECONDS_MAX: Final = 5.0
_HOST: Final = "127.0.0.1"


@asynccontextmanager
async def health_port(port: int, *, trouble: Callable[[], str], metrics: Callable[[], str]) -> AsyncGenerator[int]:
    """Answer on `port` of the loopback address until the end of the block; 0 is any free port, which is yielded.

    `trouble` says why the relayer does not work, or nothing. Raises `OSError` for a port that is taken.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head, trouble, metrics))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # a monitor that sends no request gets no answer
        finally:
            writer.close()

    server = await asyncio.start_server(answer, _HOST, port, limit=_HEAD_BYTES_MAX)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _answer(head: bytes, trouble: Callable[[], str], metrics: Callable[[], str]) -> bytes:
    """The answer to a request (RFC 9112), after which the connection closes."""
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0]
    status, body = "404 Not Found", "there are /healthz and /metrics\n"
    if method not in {b"GET", b"HEAD"}:
        status, body = "405 Method Not Allowed", "GET and HEAD only\n"
    elif path == b"/healthz":
        found = trouble()
        status, body = ("503 Service Unavailable", f"{found}\n") if found else ("200 OK", "ok\n")
    elif path == b"/metrics":
        status, body = "200 OK", metrics()
    content = body.encode()
    fields = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"content-length: {len(content)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    return fields.encode() + (b"" if method == b"HEAD" else content)
