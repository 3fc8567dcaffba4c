"""Requests to an application of this process, without a server in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import httpx2

from muniment.service.http.reply import Ready, closed_after, header_lines
from muniment.service.http.request import NO_BODY, Request

if TYPE_CHECKING:
    from muniment.service.app import Application
    from muniment.service.http.reply import Reply

# The peer of every request.
_PEER: Final = "127.0.0.1"


class InProcess(httpx2.AsyncBaseTransport):
    """The transport of an HTTP client that hands each request to an application and gets its whole answer.

    The application checks, charges and stores as for a request from outside.
    """

    def __init__(self, application: Application) -> None:
        """Hand requests to `application`."""
        self._application = application

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer."""
        content = await request.aread()
        path, _, query = request.url.raw_path.partition(b"?")
        fields = [(name.lower(), value) for name, value in request.headers.raw]
        asked = Request(
            request.method, path.decode("latin-1"), query, fields, _Whole(content) if content else NO_BODY,
            peer=_PEER, named=dict(fields), head_bytes_max=len(path) + len(query) + sum(map(_length, fields)),
        )  # fmt: skip
        reply = await self._application.respond(asked)
        lines = header_lines(reply, asked.id, asked.limit_lines).split(b"\r\n")[:-1]
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
        return httpx2.Response(reply.status, headers=headers, stream=httpx2.ByteStream(await _content_of(reply)))


class _Whole:
    """A body that has arrived with its head."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def take(self) -> tuple[bytes, bool]:
        """All bytes, and that no more follow."""
        return self._content, False

    async def wait(self) -> None:
        """Return immediately."""


def _length(field: tuple[bytes, bytes]) -> int:
    name, value = field
    return len(name) + len(value)


async def _content_of(reply: Reply) -> bytes:
    if isinstance(reply, Ready):
        return reply.body
    async with closed_after(reply.chunks) as chunks:
        return b"".join([chunk async for chunk in chunks])
