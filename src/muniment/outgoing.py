"""Requests by this service, bounded in size and time: to hosts that an operator named, and to receivers of webhooks.

A name is resolved where its connection is opened, every address it has is checked, and the connection goes to an
address that was checked: a name that later points inward (DNS rebinding) changes nothing. Connections are kept by
name, so TLS verifies the certificate against the name and no two names share a connection. Redirects are never
followed.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar, cast
from urllib.parse import unquote, urlsplit

import httpcore2

from muniment.metrics.recorder import Metrics

if TYPE_CHECKING:
    from muniment.tracing.tracer import Tracer

# The largest token list in use has 1.5 MB, the logs of a thousand blocks some megabytes.
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
# The largest answer that is decoded on the event loop, in at most 20 ms. An RPC answer of 500 tokens is under 100 KB.
SMALL_ANSWER_BYTES_MAX: Final = 256 * 1024
CONNECT_SECONDS_MAX: Final = 1.0
CONNECTIONS_MAX: Final = 64
# After the head of an answer to `deliver`, its content counts as far as it comes within this time.
_CONTENT_SECONDS_MAX: Final = 2.0
_KEEPALIVE_SECONDS: Final = 30
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # a translator sends it on to IPv4 (RFC 6052 section 2.1)
# Blocks that Python's releases differ on, or take for global: protocol assignments (RFC 6890, 2928), translation (RFC
# 8215, 2765), documentation (9637), site-local (3879), segments (9602), IPv4 in IPv6 (4291 section 2.5.5.1).
_SPECIAL: Final = tuple(map(ipaddress.ip_network, (
    "192.0.0.0/24", "2001::/23", "64:ff9b:1::/48", "::ffff:0:0:0/96", "3fff::/20", "fec0::/10", "5f00::/16", "::/96",
)))  # fmt: skip
_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Fields = Sequence[tuple[str, str]]
T = TypeVar("T")


class Unreachable(Exception):
    """Another server gave no usable answer; `reason` is one word for the cause, such as `timeout` or `http-500`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        """Say why, without the URL: RPC URLs carry keys."""
        super().__init__(detail or reason)
        self.reason = reason


class Answer(NamedTuple):
    """An answer of any status, with its whole content."""

    status: int
    content: bytes


class Receipt(NamedTuple):
    """The answer to a delivery: its status, its `Retry-After` (None: it has none), and the beginning of its content."""

    status: int
    retry_after: str | None
    content: bytes


def is_public(address: _IPAddress) -> bool:
    """Whether a request may go to `address`: not private, loopback, link-local, multicast, or a disguise of one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast and not any(address in block for block in _SPECIAL)


class _CheckedConnections(httpcore2.AsyncNetworkBackend):
    """Opens connections to addresses that were checked."""

    def __init__(self, *, allow_private: bool, lookups: ThreadPoolExecutor | None = None) -> None:
        self._allow_private = allow_private
        self._lookups = lookups
        # httpcore2 types it by whether anyio is installed, which it is here.
        self._connections = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore2's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address of `host` that answers. Raises `Unreachable`, httpcore2's errors."""
        refused: Exception = Unreachable("unknown-host")
        for address in await self._resolve(host, port):
            try:
                return await self._connections.connect_tcp(
                    str(address), port, timeout=timeout, local_address=local_address, socket_options=socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                refused = error
        raise refused

    async def sleep(self, seconds: float) -> None:
        """Between attempts of httpcore, of which there are none here."""
        await asyncio.sleep(seconds)

    async def _resolve(self, host: str, port: int) -> list[_IPAddress]:
        """Raises `Unreachable` for a host that has no address, or any that requests must not go to."""
        loop, wanted = asyncio.get_running_loop(), {"type": socket.SOCK_STREAM}
        look_up = partial(socket.getaddrinfo, host, port, **wanted)
        own = self._lookups
        try:
            found = await (loop.run_in_executor(own, look_up) if own else loop.getaddrinfo(host, port, **wanted))
        except (OSError, UnicodeError):  # UnicodeError: a label that is too long for a name
            raise Unreachable("unknown-host") from None
        addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
        if not self._allow_private and not all(is_public(address) for address in addresses):
            raise Unreachable("forbidden-address", "the host has a private, loopback or link-local address")
        return list(dict.fromkeys(addresses))


class Outgoing:
    """The HTTP client of a process; webhooks have one of their own, so that slow receivers delay nothing else."""

    def __init__(
        self,
        *,
        allow_private: bool,
        connect_seconds_max: float = CONNECT_SECONDS_MAX,
        lookups_max: int = 0,
        tls: ssl.SSLContext | None = None,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """`allow_private` lets requests go to private, loopback and link-local addresses: for development.

        At most `lookups_max` host names are looked up at the same time, in threads of this client; 0: in those of the
        event loop. `tls` says which certificates are trusted; by default those that the operating system trusts. With
        a `tracer`, a request to another server is a span of the request that waits for it, and carries its trace.
        """
        self.metrics = metrics or Metrics.of_process()
        self._tracer = tracer
        self._connect_seconds_max = connect_seconds_max
        # Threads are made when they are used. One that waits for a resolver cannot be stopped.
        self._lookups = ThreadPoolExecutor(lookups_max, "look-up") if lookups_max else None
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=CONNECTIONS_MAX,
            keepalive_expiry=_KEEPALIVE_SECONDS,
            network_backend=_CheckedConnections(allow_private=allow_private, lookups=self._lookups),
        )

    async def __aenter__(self) -> Self:
        """Use it as a context to have it closed."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()
        if self._lookups is not None:
            self._lookups.shutdown(wait=False, cancel_futures=True)

    async def post(
        self, url: str, body: bytes, *, seconds_max: float, bytes_max: int = SMALL_ANSWER_BYTES_MAX
    ) -> bytes:
        """The answer to a JSON body, of at most `bytes_max`. Raises `Unreachable`."""
        fields = [("content-type", "application/json"), ("content-length", str(len(body)))]
        return await self._request("POST", url, fields, body, seconds_max, partial(_content, bytes_max=bytes_max))

    async def get(self, url: str, *, seconds_max: float, bytes_max: int = SMALL_ANSWER_BYTES_MAX) -> bytes:
        """The content at `url`, of at most `bytes_max`. Raises `Unreachable`."""
        return await self._request("GET", url, (), None, seconds_max, partial(_content, bytes_max=bytes_max))

    async def send(
        self, url: str, fields: _Fields, body: bytes | AsyncIterator[bytes], *, seconds_max: float, bytes_max: int
    ) -> Answer:
        """The answer of any status to a POST with these header fields. A body in pieces is sent as it is made.

        Raises `Unreachable`, also when the answer is longer than `bytes_max` or ends early, and the errors of `body`.
        """
        return await self._request("POST", url, fields, body, seconds_max, partial(_answer, bytes_max=bytes_max))

    async def deliver(self, url: str, fields: _Fields, body: bytes, *, seconds_max: float, bytes_max: int) -> Receipt:
        """The answer of any status to a POST with these header fields. Content behind `bytes_max` is left unread.

        Raises `Unreachable` when the head of the answer does not come within `seconds_max`.
        """
        given = [*fields, ("content-length", str(len(body)))]
        return await self._request("POST", url, given, body, seconds_max, partial(_receipt, bytes_max=bytes_max))

    async def _request(
        self,
        method: str,
        url: str,
        fields: _Fields,
        body: bytes | AsyncIterator[bytes] | None,
        seconds_max: float,
        read: Callable[[httpcore2.Response], Awaitable[T]],
    ) -> T:
        """What `read` makes of the response. Raises `Unreachable`."""
        target, headers = _target(url)
        headers += fields
        if self._tracer is None:
            return await self._exchange(method, target, headers, body, seconds_max, read)
        parts = urlsplit(url)
        with self._tracer.call(method, parts.scheme, parts.hostname or "", parts.port) as traced:
            return await self._exchange(method, target, headers + traced, body, seconds_max, read)

    async def _exchange(
        self,
        method: str,
        target: httpcore2.URL,
        headers: list[tuple[str, str]],
        body: bytes | AsyncIterator[bytes] | None,
        seconds_max: float,
        read: Callable[[httpcore2.Response], Awaitable[T]],
    ) -> T:
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


def _target(url: str) -> tuple[httpcore2.URL, list[tuple[str, str]]]:
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


async def _content(response: httpcore2.Response, *, bytes_max: int) -> bytes:
    if response.status == HTTPStatus.OK:  # a redirect is no answer either
        return await _read(response, bytes_max)
    raise Unreachable(f"http-{response.status}")


async def _answer(response: httpcore2.Response, *, bytes_max: int) -> Answer:
    return Answer(response.status, await _read(response, bytes_max))


async def _receipt(response: httpcore2.Response, *, bytes_max: int) -> Receipt:
    """The status counts, whatever becomes of the content: a receiver that never ends it has answered."""
    retry_after = next((value for name, value in response.headers if name.lower() == b"retry-after"), None)
    received = bytearray()
    with suppress(TimeoutError, httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError):
        async with asyncio.timeout(_CONTENT_SECONDS_MAX):
            async for chunk in response.aiter_stream():
                received += chunk[: bytes_max - len(received)]
                if len(received) >= bytes_max:
                    break
    return Receipt(response.status, None if retry_after is None else retry_after.decode("latin-1"), bytes(received))


async def _read(response: httpcore2.Response, bytes_max: int) -> bytes:
    received = bytearray()
    async for chunk in response.aiter_stream():
        received += chunk
        if len(received) > bytes_max:
            raise Unreachable("too-large")
    return bytes(received)
