"""Requests and their answers over HTTP connections that are kept.

Connections are kept by name, so TLS verifies the certificate against the name and no two names share a connection.
Redirects are never followed.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

import httpcore2
from anyio.lowlevel import checkpoint

from muniment.outgoing.answers import Unreachable
from muniment.outgoing.connections import CheckedConnections
from muniment.tls import tls_context

if TYPE_CHECKING:
    import ssl

CONNECTIONS_MAX: Final = 64
_KEEPALIVE_SECONDS: Final = 30
T = TypeVar("T")


class Exchanges:
    """The connections of a client."""

    def __init__(
        self, *, allow_private: bool, connect_seconds_max: float, lookup_threads: int,
        tls: ssl.SSLContext | None,
    ) -> None:  # fmt: skip
        """The arguments are those of `Outgoing`."""
        self._connect_seconds_max = connect_seconds_max
        self._connections = CheckedConnections(allow_private=allow_private, lookup_threads=lookup_threads)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls or tls_context(),
            max_connections=CONNECTIONS_MAX,
            keepalive_expiry=_KEEPALIVE_SECONDS,
            network_backend=self._connections,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()
        self._connections.close()

    async def run(
        self,
        method: str,
        target: httpcore2.URL,
        headers: list[tuple[str, str]],
        body: bytes | None,
        seconds_max: float,
        read: Callable[[httpcore2.Response], Awaitable[T]],
    ) -> T:
        """The value of `read` for the response. Raises `Unreachable`."""
        limits = {"connect": min(self._connect_seconds_max, seconds_max), "read": seconds_max, "write": seconds_max}
        try:
            async with asyncio.timeout(seconds_max), AsyncExitStack() as stack:
                response = await stack.enter_async_context(
                    self._pool.stream(method, target, headers=headers, content=body, extensions={"timeout": limits})
                )
                return await read(response)
        except (TimeoutError, httpcore2.TimeoutException):
            raise Unreachable("timeout") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise Unreachable("unreachable", type(error).__name__) from None

    @staticmethod
    def target(url: str) -> tuple[httpcore2.URL, list[tuple[str, str]]]:
        """The target of a request to `url`, and its headers. Raises `Unreachable` for a malformed URL."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
            is_ipv6 = ":" in host
            host = host if is_ipv6 else host.encode("idna").decode("ascii")
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            target = httpcore2.URL(scheme=parts.scheme, host=host, port=port, target=path)
        except (ValueError, TypeError):  # TypeError: httpcore2's word for letters beyond ASCII
            raise Unreachable("bad-url") from None
        if parts.scheme not in {"http", "https"} or not host:
            raise Unreachable("bad-url")
        shown = (f"[{host}]" if is_ipv6 else host) + (f":{port}" if port is not None else "")
        headers = [("host", shown), ("accept", "application/json"), ("accept-encoding", "identity")]
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            headers.append(("authorization", "Basic " + base64.b64encode(credentials).decode("ascii")))
        return target, headers


def load_backend() -> None:
    """Load what anyio, on which the connections are built, loads at its first use. No event loop may run here."""
    asyncio.run(checkpoint())
