"""The HTTP client of a process: its requests. Their connections are in `exchanges`, which is loaded on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar
from urllib.parse import urlsplit

from muniment.outgoing.answers import Answer, Receipt, Unreachable, answer, content, receipt
from muniment.tls import check_trust, tls_context

if TYPE_CHECKING:
    import ssl

    import httpcore2

    from muniment.outgoing.exchanges import Exchanges

# The largest token list in use has 1.5 MB, the logs of a thousand blocks some megabytes.
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
# The largest answer that is decoded on the event loop, in at most 20 ms. An RPC answer of 500 tokens is under 100 KB.
SMALL_ANSWER_BYTES_MAX: Final = 256 * 1024
CONNECT_SECONDS_MAX: Final = 1.0
_Fields = Sequence[tuple[str, str]]
T = TypeVar("T")


class CallTracer(Protocol):
    """Traces requests to other servers."""

    def call(
        self, method: str, scheme: str, host: str, port: int | None
    ) -> AbstractContextManager[Sequence[tuple[str, str]]]:
        """A span for a request; its value is the header fields that continue the trace."""
        ...


class NodeMetrics(Protocol):
    """Counts requests to nodes of chains."""

    def node_asked(self, chain_id: int, seconds: float) -> None:
        """Count a request that took `seconds`, with any outcome."""
        ...

    def node_failed(self, chain_id: int) -> None:
        """Count a request to a node that was unreachable, sent garbage, or serves another chain."""
        ...


class _NotCounted:
    def node_asked(self, chain_id: int, seconds: float) -> None: ...

    def node_failed(self, chain_id: int) -> None: ...


class Outgoing:
    """The HTTP client of a process; webhooks have one of their own, so that slow receivers delay no other requests."""

    def __init__(
        self,
        *,
        allow_private: bool,
        connect_seconds_max: float = CONNECT_SECONDS_MAX,
        lookup_threads: int = 0,
        tls: ssl.SSLContext | None = None,
        node_metrics: NodeMetrics | None = None,
        tracer: CallTracer | None = None,
    ) -> None:
        """`allow_private` lets requests go to private, loopback and link-local addresses: for development.

        With `lookup_threads` names are looked up in so many threads of this client alone, within a limit of time; by
        default in threads that others use too. `tls` says which certificates are trusted; by default those of
        `tls_context`. With a `tracer`, a request to another server is a span of the request that waits for it, and
        carries its trace. Raises `ValueError` for certificates that the environment names and that cannot be read.
        """
        check_trust()
        self.node_metrics = node_metrics or _NotCounted()
        self._tracer = tracer
        self._allow_private = allow_private
        self._connect_seconds_max = connect_seconds_max
        self._lookup_threads = lookup_threads
        self._tls = tls
        # None until a request needs them, or `load` was called.
        self._exchanges: Exchanges | None = None
        self._loading: asyncio.Task[type[Exchanges]] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Close the client at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def load(self) -> Exchanges:
        """The connections. Loading them takes three megabytes and a tenth of a second of CPU, so a thread does it.

        The first request loads them, unless that was done before, and its time limit begins afterwards. A registry that
        asks no other server never loads them. Raises `Unreachable` if the client was closed meanwhile.
        """
        if self._exchanges is None:
            if self._loading is None or self._loading.done():  # one that failed is tried again
                self._loading = asyncio.create_task(asyncio.to_thread(_loaded))
            make = await asyncio.shield(self._loading)  # first requests that wait together go on in their order
            if self._is_closed:
                raise Unreachable("closed")
            self._exchanges = self._exchanges or make(
                allow_private=self._allow_private, connect_seconds_max=self._connect_seconds_max,
                lookup_threads=self._lookup_threads, tls=self._tls,
            )  # fmt: skip
        return self._exchanges

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._exchanges is not None:
            await self._exchanges.close()

    async def post(
        self, url: str, body: bytes, *, seconds_max: float, bytes_max: int = SMALL_ANSWER_BYTES_MAX
    ) -> bytes:
        """The answer to a JSON body, of at most `bytes_max`. Raises `Unreachable`."""
        fields = [("content-type", "application/json"), ("content-length", str(len(body)))]
        return await self._request("POST", url, fields, body, seconds_max, partial(content, bytes_max=bytes_max))

    async def get(self, url: str, *, seconds_max: float, bytes_max: int = SMALL_ANSWER_BYTES_MAX) -> bytes:
        """The content at `url`, of at most `bytes_max`. Raises `Unreachable`."""
        return await self._request("GET", url, (), None, seconds_max, partial(content, bytes_max=bytes_max))

    async def send(self, url: str, fields: _Fields, body: bytes, *, seconds_max: float, bytes_max: int) -> Answer:
        """The answer of any status to a POST with these header fields.

        Raises `Unreachable`, also when the answer is longer than `bytes_max` or ends early.
        """
        return await self._request("POST", url, fields, body, seconds_max, partial(answer, bytes_max=bytes_max))

    async def deliver(
        self, url: str, fields: _Fields, body: bytes, *, seconds_max: float, bytes_max: int, awaited: bytes = b""
    ) -> Receipt:
        """The answer of any status to a POST with these header fields. Content beyond `bytes_max` is left unread.

        Raises `Unreachable` when the head of the answer does not come within `seconds_max`, or of a successful one
        neither the end nor the bytes `awaited`.
        """
        given = [*fields, ("content-length", str(len(body)))]
        read = partial(receipt, bytes_max=bytes_max, awaited=awaited)
        return await self._request("POST", url, given, body, seconds_max, read)

    async def _request(
        self,
        method: str,
        url: str,
        fields: _Fields,
        body: bytes | None,
        seconds_max: float,
        read: Callable[[httpcore2.Response], Awaitable[T]],
    ) -> T:
        """The value of `read` for the response. Raises `Unreachable`."""
        exchanges = await self.load()
        target, headers = exchanges.target(url)
        headers += fields
        if self._tracer is None:
            return await exchanges.run(method, target, headers, body, seconds_max, read)
        parts = urlsplit(url)
        with self._tracer.call(method, parts.scheme, parts.hostname or "", parts.port) as traced:
            return await exchanges.run(method, target, [*headers, *traced], body, seconds_max, read)


@cache
def _loaded() -> type[Exchanges]:
    from muniment.outgoing.exchanges import Exchanges, load_backend  # noqa: PLC0415 - see `Outgoing.load`

    load_backend()
    tls_context()
    return Exchanges
