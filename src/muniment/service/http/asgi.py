"""The application for any ASGI server (ASGI 3, HTTP and lifespan); tests call it without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from muniment.service.http.reply import Ready, Reply, Stream, Streamed, closed_after, header_lines
from muniment.service.http.request import ClientGone, Request

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Respond = Callable[[Request], Awaitable[Reply]]
Lifespan = Callable[[], AbstractAsyncContextManager[None]]


class AsgiAdapter:
    """An ASGI application that answers with what `respond` returns."""

    def __init__(self, respond: Respond, lifespan: Lifespan) -> None:
        """`lifespan` is entered when the server starts, and left when it stops."""
        self._asgi_respond = respond
        self.lifespan = lifespan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            request = _request(scope, receive)
            try:
                reply = await self._asgi_respond(request)
            except ClientGone:
                return
            if isinstance(reply, Stream):
                await _until_gone(_send(reply, request, send), receive)
            else:
                await _send(reply, request, send)
        else:
            raise ValueError(f"this application answers HTTP, not {scope['type']}")

    async def _live(self, receive: Receive, send: Send) -> None:
        """The lifespan protocol: startup, the time between, shutdown."""
        await receive()
        life = self.lifespan()
        try:
            await life.__aenter__()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await life.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})


class _Received:
    """A body that arrives as ASGI messages."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._message: Message | None = None

    def take(self) -> tuple[bytes, bool] | None:
        message, self._message = self._message, None
        if message is None:
            return None
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message.get("body", b""), message.get("more_body", False)

    async def wait(self) -> None:
        self._message = await self._receive()


def _request(scope: Scope, receive: Receive) -> Request:
    fields: list[tuple[bytes, bytes]] = list(scope["headers"])
    path: bytes = scope.get("raw_path") or cast("str", scope["path"]).encode()
    query: bytes = scope["query_string"]
    return Request(
        scope["method"], path.decode("latin-1"), query, fields, _Received(receive),
        peer=(scope.get("client") or ("",))[0], named=dict(fields),
        head_bytes_max=len(path) + len(query) + sum(len(name) + len(value) for name, value in fields),
    )  # fmt: skip


async def _send(reply: Reply, request: Request, send: Send) -> None:
    """Send `reply`; to HEAD no body (RFC 9110 section 9.3.2)."""
    lines = header_lines(reply, request.id, request.limit_lines).split(b"\r\n")[:-1]
    fields = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    await send({"type": "http.response.start", "status": reply.status, "headers": fields})
    if request.method != "HEAD":
        if isinstance(reply, Ready):
            await send({"type": "http.response.body", "body": reply.body})
            return
        await _send_pieces(reply, send)
    await send({"type": "http.response.body", "body": b""})


async def _send_pieces(reply: Streamed, send: Send) -> None:
    async with closed_after(reply.chunks) as chunks:
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _until_gone(sending: Coroutine[None, None, None], receive: Receive) -> None:
    """Send a stream until it ends or its client disconnects, which the stream alone would not notice."""
    tasks = asyncio.ensure_future(sending), asyncio.ensure_future(_disconnection(receive))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not tasks[0].cancelled():
        tasks[0].result()


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
