"""Connections whose requests must begin in time and with a head of bounded size.

uvicorn hands over a request once its head is complete, and waits for that without end; the limits of
`muniment.http` begin only there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from muniment.app import Application

# The target and the header fields may have 32 KiB each before they are refused by their own names.
HEAD_BYTES_MAX: Final = 128 * 1024
_TOO_LARGE: Final = b"431 Request Header Fields Too Large"
_TOO_LATE: Final = b"408 Request Timeout"


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
