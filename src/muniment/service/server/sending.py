"""Answers to the bytes of a connection: heads (RFC 9112 section 4), and writing no faster than the client reads.

Unread answers have limits: the time for each, and the memory for all.
"""

from __future__ import annotations

import ctypes
import socket
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from muniment.service.http.reply import Stream, header_lines
from muniment.service.http.request import ClientGone

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from muniment.service.http.reply import Reply, Streamed
    from muniment.service.http.request import Request
    from muniment.service.server.reader import Exchange


def give_back() -> None:
    """Return all free memory of glibc's heap to the system (malloc_trim(3)); other C libraries lack the call.

    By default glibc returns only the end of the heap, so one small object after many freed answers keeps them all.
    250 MB take 20 ms, once after a crowd.
    """
    if trim := _trim():
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


# Bytes that a connection must drain within the time below while more are unsent: 17.5 kbit/s.
DRAINED_BYTES_MIN: Final = 64 * 1024
DRAIN_SECONDS_MAX: Final = 30
# Streams hold little, and phones lose their network for a while: any byte within this time is enough.
STREAM_SECONDS_MAX: Final = 60
# Memory for the unread answers of a process.
UNREAD_BYTES_MAX: Final = 256 * 1024 * 1024
# Beyond the limit, connections are aborted down to this share, so that aborts are rare.
_SHARE_LEFT: Final = 7 / 8
_LOOK_SECONDS: Final = 1.0
# Memory is given back after this much was unread and half of it was freed.
_GIVEN_BACK_BYTES_MIN: Final = 32 * 1024 * 1024


@dataclass(slots=True)
class _Pace:
    """The unread bytes of a connection: when its time began, and at the last check."""

    since: float
    held: int
    now_held: int


class UnreadAnswers:
    """A process's connections that have unread answers."""

    def __init__(
        self, *, bytes_max: int = UNREAD_BYTES_MAX, seconds_max: float = DRAIN_SECONDS_MAX,
        stream_seconds_max: float = STREAM_SECONDS_MAX, give_back: Callable[[], None] = give_back,
    ) -> None:  # fmt: skip
        """All together hold at most `bytes_max`; each has `seconds_max` to drain 64 KiB, or the rest.

        A stream has `stream_seconds_max` to drain anything. `give_back` is called when much of their memory was freed.
        """
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._stream_seconds_max = stream_seconds_max
        self._give_back = give_back
        self._paces: dict[Sending, _Pace] = {}
        self._bytes = 0
        # The most that was unread since memory was last given back.
        self._most = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Sending, loop: asyncio.AbstractEventLoop) -> None:
        """Start the time limit for the client of `connection`, by the clock of `loop`."""
        if connection in self._paces:
            return
        held = connection.unread_bytes()
        self._paces[connection] = _Pace(loop.time(), held, held)
        self._bytes += held
        self._most = max(self._most, self._bytes)
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_SECONDS, self._look, loop)
        if self._bytes > self._bytes_max:
            self._make_room()

    def discard(self, connection: Sending) -> None:
        """End the time limit: the client has read, or has disconnected."""
        if pace := self._paces.pop(connection, None):
            self._bytes -= pace.now_held

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Abort the connections whose time is over; repeats every second while any connection is left."""
        self._timer = None
        now = loop.time()
        for connection, pace in list(self._paces.items()):
            held = connection.unread_bytes()
            self._bytes += held - pace.now_held
            pace.now_held = held
            if pace.held - held >= (1 if connection.is_stream else DRAINED_BYTES_MIN):
                pace.since, pace.held = now, held
            elif now - pace.since > (self._stream_seconds_max if connection.is_stream else self._seconds_max):
                self.discard(connection)
                connection.abort()
        if self._paces:
            self._timer = loop.call_later(_LOOK_SECONDS, self._look, loop)
        if self._most >= _GIVEN_BACK_BYTES_MIN and self._bytes <= self._most / 2:
            self._most = self._bytes
            loop.call_later(_LOOK_SECONDS, self._give_back)  # aborted transports free their memory in the next turn

    def _make_room(self) -> None:
        """Abort connections of the client with most unread bytes, those with the earliest start first."""
        by_client: defaultdict[str, int] = defaultdict(int)
        for connection, pace in self._paces.items():
            by_client[connection.client] += pace.now_held
        while self._bytes > self._bytes_max * _SHARE_LEFT and by_client:
            most = max(by_client, key=by_client.__getitem__)
            del by_client[most]
            theirs = [each for each in self._paces if each.client == most]
            for connection in sorted(theirs, key=lambda each: self._paces[each].since):
                self.discard(connection)
                connection.abort()
                if self._bytes <= self._bytes_max * _SHARE_LEFT:
                    break


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
        """Whether the answer is a stream, which has no end."""
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
        """Bytes that are written but not sent, and those of unparsed requests."""
        return self._transport.get_write_buffer_size() + self.waiting_bytes

    def abort(self) -> None:
        """End the connection immediately; unsent bytes are dropped."""
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
