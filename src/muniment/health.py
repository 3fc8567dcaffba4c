"""An endpoint of a program beside the service, for its monitoring: `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final

# A request of a monitor has a few hundred bytes.
_HEAD_BYTES_MAX: Final = 8 * 1024
_HEAD_SECONDS_MAX: Final = 5.0
# Monitors are few. More connections than these are closed at once, so that the program keeps its descriptors.
_CONNECTIONS_MAX: Final = 64
_PLACE: Final = re.compile(r"(\[(?P<six>[0-9a-fA-F:.]{2,45})\]|(?P<four>[0-9.]{7,15})):(?P<port>[0-9]{1,5})", re.ASCII)
# Several programs of a kind on one machine take one port after another.
PORTS_TRIED: Final = 10


def parse_place(text: str) -> tuple[str, int]:
    """Address and port in `text`, such as 127.0.0.1:9466 or [::1]:9466. Raises `ValueError`."""
    match = _PLACE.fullmatch(text)
    try:
        if match is not None and int(match["port"]) < 2**16:
            return str(ip_address(match["six"] or match["four"])), int(match["port"])
    except ValueError:
        pass
    raise ValueError(f"{text!r} is no address with a port, like 127.0.0.1:9466")


@asynccontextmanager
async def health_endpoint(
    place: tuple[str, int], *, trouble: Callable[[], str], metrics: Callable[[], bytes], ports: int = 1
) -> AsyncGenerator[str]:
    """Answer at an address and a port, 0 for any free one, until the end of the block; the URL is yielded.

    Where the port is taken, the next ones are tried, `ports` in all. `trouble` says why the program cannot do its work,
    or nothing. Raises `OSError` for an address that this machine does not have, or if all ports are taken.
    """
    count = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        try:
            if count <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_HEAD_SECONDS_MAX):
                    writer.write(_answer(await reader.readuntil(b"\r\n\r\n"), trouble, metrics))
                    await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # a monitor that sends no request gets no answer
        finally:
            count -= 1
            writer.close()

    async with await _listen(answer, place, ports) as server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _listen(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], place: tuple[str, int], ports: int
) -> asyncio.Server:
    host, first = place
    last = min(first + ports, 2**16) - 1
    for port in range(first, last + 1):
        try:
            return await asyncio.start_server(answer, None if host == "::" else host, port, limit=_HEAD_BYTES_MAX)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    taken = f"port {first} is" if last == first else f"the ports {first} to {last} are"
    raise OSError(errno.EADDRINUSE, f"{taken} taken at {host}: name another for health and metrics")


def _answer(head: bytes, trouble: Callable[[], str], metrics: Callable[[], bytes]) -> bytes:
    """The answer to a request (RFC 9112), after which the connection closes."""
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0]
    status, body = "404 Not Found", b"there are /healthz, /readyz and /metrics\n"
    if method not in {b"GET", b"HEAD"}:
        status, body = "405 Method Not Allowed", b"GET and HEAD only\n"
    elif path == b"/healthz":
        status, body = "200 OK", b"ok\n"
    elif path == b"/readyz":
        reason = trouble()
        status, body = ("503 Service Unavailable", f"{reason}\n".encode()) if reason else ("200 OK", b"ok\n")
    elif path == b"/metrics":
        status, body = "200 OK", metrics()
    fields = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    return fields.encode() + (b"" if method == b"HEAD" else body)
