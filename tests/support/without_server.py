"""Requests to an application without a server in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import httpx2

from muniment.service.http.reply import Ready, Reply, closed_after, header_lines
from muniment.service.http.request import Request


class Responding(Protocol):
    """What answers requests."""

    def respond(self, request: Request) -> Awaitable[Reply]:
        """The answer."""
        ...


@dataclass
class Under:
    """An application after a proxy that serves it under a path, and removes that path."""

    app: Responding
    prefix: str

    async def respond(self, request: Request) -> Reply:
        assert request.path.startswith(self.prefix), request.path
        request.path = request.path.removeprefix(self.prefix) or "/"
        return await self.app.respond(request)


class Pieces:
    """A body that arrives in pieces."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._held: tuple[bytes, bool] | None = None

    def take(self) -> tuple[bytes, bool] | None:
        held, self._held = self._held, None
        return held

    async def wait(self) -> None:
        piece = await anext(self._pieces, None)
        self._held = (b"", False) if piece is None else (piece, True)


class Whole:
    """A body that arrived with its head."""

    def __init__(self, body: bytes = b"") -> None:
        self._body = body

    def take(self) -> tuple[bytes, bool] | None:
        return self._body, False

    async def wait(self) -> None:
        """It is there."""


def request_of(
    method: str, path: bytes, query: bytes, fields: Sequence[tuple[bytes, bytes]], body: Pieces | Whole,
    peer: str = "127.0.0.1",
) -> Request:  # fmt: skip
    """A request as a server makes it; the names of `fields` are in lower case."""
    return Request(
        method, path.decode("latin-1"), query, fields, body, peer=peer, named=dict(fields),
        head_bytes_max=len(path) + len(query) + sum(len(name) + len(value) for name, value in fields),
    )  # fmt: skip


class InProcess(httpx2.AsyncBaseTransport):
    """Hands each request to an application, and its whole answer to the client, which has the address `peer`."""

    def __init__(self, application: Responding, peer: str = "127.0.0.1") -> None:
        self._application = application
        self._peer = peer

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer. An error of a stream that has begun is raised, where a server would abort the connection."""
        stream = request.stream
        if isinstance(stream, httpx2.ByteStream):
            body: Pieces | Whole = Whole(await request.aread())
        else:
            body = Pieces(aiter(cast("httpx2.AsyncByteStream", stream)))
        path, _, query = request.url.raw_path.partition(b"?")
        fields = [(name.lower(), value) for name, value in request.headers.raw]
        asked = request_of(request.method, path, query, fields, body, self._peer)
        reply = await self._application.respond(asked)
        lines = header_lines(reply, asked.id, asked.limit_lines).split(b"\r\n")[:-1]
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
        content = b"" if request.method == "HEAD" else await _content(reply)
        return httpx2.Response(reply.status, headers=headers, stream=httpx2.ByteStream(content))


async def _content(reply: Reply) -> bytes:
    if isinstance(reply, Ready):
        return reply.body
    async with closed_after(reply.chunks) as chunks:
        return b"".join([chunk async for chunk in chunks])
