"""Connections whose requests must begin in time and with a head of bounded size, and whose answers leave in one write.

uvicorn hands over a request once its head is complete, and waits for that without end; the limits of
`muniment.http` begin only there. It writes head and body of an answer one after the other, and a second call into
the kernel costs as much as a read of the database.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent, HTTPResponseStartEvent

    from muniment.app import Application

# The target and the header fields may have 32 KiB each before they are refused by their own names.
HEAD_BYTES_MAX: Final = 128 * 1024
_TOO_LARGE: Final = b"431 Request Header Fields Too Large"
_TOO_LATE: Final = b"408 Request Timeout"
# Put behind its head a body is copied, which for a longer one costs more than a second write.
_JOINED_BYTES_MAX: Final = 64 * 1024
# RFC 9110 section 5.5: what a field value may hold; the bytes beyond ASCII are obsolete, and uvicorn lets them pass.
_TEXT: Final = bytes({9, *range(0x20, 0x100)} - {0x7F})


class OneWrite(RequestResponseCycle):
    """uvicorn's side of a request. An answer that is whole is written at once, any other as uvicorn does."""

    _start: HTTPResponseStartEvent | None = None

    async def send(self, message: ASGISendEvent) -> None:
        """Keep the start until the first of the body comes (ASGI: a server may)."""
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            if self._is_written(start, cast("dict[str, Any]", message)):
                return
            await super().send(start)
        await super().send(message)

    def _is_written(self, start: HTTPResponseStartEvent, body: dict[str, Any]) -> bool:
        """Write the answer if it is whole, of a known length, and nothing is special about it or the connection."""
        content: bytes = body.get("body", b"")
        if (
            body.get("more_body") or len(content) > _JOINED_BYTES_MAX or self.scope["method"] == "HEAD"
            or self.disconnected or not self.keep_alive or self.flow.write_paused or self.access_log
        ):  # fmt: skip
            return False
        headers = [*self.default_headers, *start.get("headers", ())]
        lines = [STATUS_LINE[start["status"]]]
        length = None
        for name, value in headers:
            if name == b"content-length":
                length = value
            elif name in _ABOUT_THE_CONNECTION:
                return False
            lines.append(b"%b: %b\r\n" % (name, value))
        head = b"".join(lines)
        # Without a line end in a value no other headers can come out than those that were given.
        if length != b"%d" % len(content) or head.translate(None, _TEXT) != b"\r\n" * len(lines):
            return False
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"%b\r\n%b" % (head, content))
        self.message_event.set()
        self.on_response()
        return True


_ABOUT_THE_CONNECTION: Final = frozenset({b"connection", b"transfer-encoding"})


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol; a head that is too long or too late ends the connection."""

    _is_head_open = True  # a connection begins by owing a head
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client has connected, and owes a request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, whoever ended it."""
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes have come. Most heads come in one piece, and then no timer is ever set."""
        super().data_received(data)
        if self._is_head_open:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(_TOO_LARGE)
            elif self._head_timer is None and not self.transport.is_closing():
                self._await_head()

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        self._is_head_open = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is complete; what follows has limits of its own."""
        self._is_head_open = False
        self._forget_head()
        super().on_headers_complete()
        if self.cycle is not None:  # pyright: ignore[reportUnnecessaryComparison] - none yet, and this asks to upgrade
            self.cycle.__class__ = OneWrite  # uvicorn names its class itself; the answer has not begun

    def _await_head(self) -> None:
        application = cast("Application", self.config.loaded_app)
        self._head_timer = self.loop.call_later(application.context.settings.body_timeout_s, self._refuse, _TOO_LATE)

    def _forget_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: bytes) -> None:
        self._forget_head()
        self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()
