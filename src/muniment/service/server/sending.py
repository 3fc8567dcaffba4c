"""Answers to the bytes of a connection: heads (RFC 9112 section 4), and writing no faster than the client reads."""

from __future__ import annotations

import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from muniment.service.http.reply import Stream, header_lines
from muniment.service.http.request import ClientGone

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from muniment.service.http.reply import Reply, Streamed
    from muniment.service.http.request import Request
    from muniment.service.server.reader import Exchange
    from muniment.service.server.unread import UnreadAnswers

# Smaller bodies are joined to their heads, which is cheaper than a second write.
JOINED_BYTES_MAX: Final = 64 * 1024
# The kernel's buffer for a stream: its default may be megabytes, for each of a thousand clients.
STREAM_BYTES_IN_KERNEL: Final = 64 * 1024
# Time for streams to end when the server stops.
STREAM_SECONDS_AT_STOP: Final = 1.0


class Sending:
    """The sending side of one connection."""

    def __init__(
        self, transport: asyncio.Transport, client: str, unread: UnreadAnswers, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Write to `transport`; `unread` bounds the unread answers of all clients."""
        self.client = client
        self._transport = transport
        self._unread = unread
        self._loop = loop
        self._drained: asyncio.Future[None] | None = None
        # Called when a stream is aborted; None for other answers.
        self._on_abort: Callable[[], object] | None = None
        self._is_lost = False
        # Unparsed bytes of requests, which wait until the client has read its answers.
        self.waiting_bytes = 0
        # Whether the client must read before it gets more.
        self.is_paused = False

    def write(self, head: bytes, body: bytes = b"") -> None:
        """Write an answer, or its beginning."""
        if len(body) > JOINED_BYTES_MAX:
            self._transport.write(head)
            self._transport.write(body)
        else:
            self._transport.write(head + body)

    @property
    def is_stream(self) -> bool:
        """As `Unread.is_stream`."""
        return self._on_abort is not None

    def begin_stream(self, on_abort: Callable[[], object]) -> None:
        """Begin a stream; `on_abort` is called if it is aborted because its client does not read."""
        self._on_abort = on_abort
        connection: socket.socket | None = self._transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BYTES_IN_KERNEL)

    async def write_pieces(self, pieces: AsyncIterator[bytes], *, is_chunked: bool) -> None:
        """Write a body, each piece after the earlier ones are sent. Raises `ClientGone`.

        With `is_chunked` the body is sent in chunks (RFC 9112 section 7.1).
        """
        if self._transport.is_closing():
            raise ClientGone
        # The transport keeps a whole piece until it is sent, but counts only the unsent part: keep one at most.
        self._transport.set_write_buffer_limits(high=0)
        try:
            await self._drain()
            async for piece in pieces:
                if piece:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
                await self._drain()  # before the next piece takes memory
        finally:
            if not self._transport.is_closing():
                self._transport.set_write_buffer_limits()
        if is_chunked:
            self._transport.write(b"0\r\n\r\n")

    async def _drain(self) -> None:
        """Return when all written bytes are sent. Raises `ClientGone`."""
        if self.is_paused and not self._is_lost:
            self._drained = self._loop.create_future()
            await self._drained
        if self._is_lost:
            raise ClientGone

    def pause(self) -> None:
        """The buffer of the transport is full."""
        self.is_paused = True
        self._unread.add(self, self._loop)

    def resume(self) -> None:
        """The client has read most of the buffer."""
        self.is_paused = False
        if not self._transport.is_closing():
            self._unread.discard(self)
        self._wake()

    def lose(self) -> None:
        """The connection is over."""
        self._is_lost = True
        self._unread.discard(self)
        self._wake()

    def close(self) -> None:
        """Close the connection after everything is sent, within the time limit for reading."""
        self._transport.close()
        self.await_reading()

    def close_now(self) -> None:
        """Close the connection now; unsent bytes are dropped."""
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()

    def await_reading(self) -> None:
        """Start the time limit for the unsent bytes, if there are any."""
        if not self._is_lost and self._transport.get_write_buffer_size():
            self._unread.add(self, self._loop)

    def abort_soon(self) -> None:
        """Abort a stream after a while, unless the application ends it before."""
        self._loop.call_later(STREAM_SECONDS_AT_STOP, self._transport.abort)

    def unread_bytes(self) -> int:
        """As `Unread.unread_bytes`; unparsed requests count too."""
        return self._transport.get_write_buffer_size() + self.waiting_bytes

    def abort(self) -> None:
        """As `Unread.abort`."""
        if self._on_abort is not None:
            self._on_abort()
        self._transport.abort()

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)


CLOSE: Final = b"connection: close\r\n"
CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_STATUS_LINES: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


def head_of(reply: Reply, request: Request, date_line: bytes, connection_lines: bytes) -> bytes:
    """Status line and header fields, with the empty line. Raises `ValueError` as `header_lines` does."""
    return b"%b%b%b%b\r\n" % (
        _STATUS_LINES[reply.status], date_line, header_lines(reply, request.id, request.limit_lines), connection_lines,
    )  # fmt: skip


def has_length(reply: Streamed) -> bool:
    """Whether a streamed answer has a Content-Length."""
    return any(name == b"content-length" for name, _ in reply.headers)


def framing_of(reply: Streamed, exchange: Exchange, *, is_stopping: bool) -> tuple[bool, bool]:
    """The framing of a streamed answer: whether it is chunked, and whether its connection ends with it."""
    is_chunked = not has_length(reply) and exchange.has_chunks
    goes_on = exchange.is_persistent and exchange.is_whole and (is_chunked or has_length(reply)) and not is_stopping
    return is_chunked, not goes_on or isinstance(reply, Stream)
