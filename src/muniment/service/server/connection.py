"""A client's connection: answers requests in order, one at a time, with a limit for every wait."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from muniment.protocol.errors import RequestTimeout
from muniment.service.http.operation import crashed
from muniment.service.http.reply import Ready, Stream, Streamed, closed_after
from muniment.service.http.request import ClientGone
from muniment.service.server.reader import Exchange, RequestReader
from muniment.service.server.sending import CHUNKED, CLOSE, Sending, framing_of, head_of
from muniment.service.server.shared import peer_of

if TYPE_CHECKING:
    from muniment.protocol.errors import Refusal
    from muniment.service.server.shared import Shared

# Twice the largest upload: some clients send all of it before they read.
LINGERING_BYTES_MAX: Final = 32 * 1024 * 1024
LINGERING_BYTES_PER_SECOND_MIN: Final = 64 * 1024
# Interval of rate checks: a connection whose client sends nothing ends after it.
LOOK_SECONDS: Final = 2.0


@dataclass(slots=True)
class Lingering:
    """The bytes after the last answer of a connection, and those since the last check of their rate.

    A connection that is closed with unread bytes is reset, and the client's kernel discards the answer. So the server
    reads and drops those bytes for a while (RFC 9112 section 9.6).
    """

    looked: float
    received: int = 0
    _since_look: int = 0

    def take(self, size: int) -> bool:
        """Drop `size` bytes; False beyond the limit."""
        self.received += size
        self._since_look += size
        return self.received <= LINGERING_BYTES_MAX

    def goes_on(self, now: float) -> bool:
        """Whether the client still sends fast enough; `now` begins the next period."""
        is_fast = self._since_look >= LINGERING_BYTES_PER_SECOND_MIN * (now - self.looked)
        self.looked, self._since_look = now, 0
        return is_fast


if sys.version_info >= (3, 12):

    def begin(serving: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Serve a request eagerly: most finish without waiting."""
        return asyncio.Task(serving, loop=asyncio.get_running_loop(), eager_start=True)  # without a loop it raises

else:

    def begin(serving: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Serve a request in the next turn of the event loop: Python 3.11 has no eager tasks."""
        return asyncio.Task(serving)


# Parsed requests of a connection that wait; later ones wait as bytes.
_DUE_MAX: Final = 8

_log = structlog.get_logger(__name__)


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(
        self, shared: Shared, loop: asyncio.AbstractEventLoop, connections: set[Any], tasks: set[asyncio.Task[None]]
    ) -> None:
        """At its stop the server waits for `connections` and `tasks`, and cancels tasks after its timeout."""
        self._shared = shared
        self._connections = connections
        self._tasks = tasks
        self._loop = loop
        self._reader = RequestReader(self)
        self._transport, self._sending = cast("asyncio.Transport", None), cast("Sending", None)
        self.peer, self._clients = "", ("",)
        # Requests whose answers are due. The first one is being answered.
        self._due: deque[Exchange] = deque()
        self._task: asyncio.Task[None] | None = None
        # The time, by the loop's clock, since which a head is due or the connection is idle.
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._lingering: Lingering | None = None
        self._is_read_paused = self._is_half_closed = self._is_stopping = self._is_lost = self._is_counted = False

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected; its first request is due."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = peer_of(transport)
        self._clients = self._shared.client_names(self.peer)
        self._sending = Sending(self._transport, self._clients[0], self._shared.unread, self._loop)
        self._is_counted = self._shared.admit(self._clients, self.peer)
        if not self._is_counted:
            self._transport.abort()
            return
        self._connections.add(self)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, by either side."""
        del exc
        self._is_lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._reader.close()
        self._fail_due()
        if self._sending.is_stream and self._task is not None:
            self._task.cancel()  # it may wait for its next piece for hours
        self._keep_task()
        self._sending.lose()
        self._connections.discard(self)
        if self._is_counted:
            self._shared.dismiss(self._clients)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._lingering is not None:
            if not self._lingering.take(len(data)):
                self._transport.abort()
            return
        was_in_head = self._reader.is_in_head
        self._reader.feed(data)
        if self._due:
            self._start_first()
            if len(self._due) > 1:
                self._pause_reading()
                self._sending.waiting_bytes = self._reader.rest_bytes
        elif self._reader.is_in_head and not was_in_head:
            self._await_head()

    def eof_received(self) -> bool:
        """The client has closed its sending half; it may still read its answers."""
        if self._lingering is not None or not self._due or self._sending.is_stream:
            return False
        self._is_half_closed = True
        self._fail_cut_short()
        return True

    def pause_writing(self) -> None:
        """The client reads more slowly than answers are written."""
        self._sending.pause()

    def resume_writing(self) -> None:
        """The client has read most of the buffer."""
        self._sending.resume()
        if not self._transport.is_closing():
            self._start_first()

    def shutdown(self) -> None:
        """The server stops: answer the requests that are due, and close."""
        self._is_stopping = True
        self._keep_task()
        if not self._due:
            self._sending.close()
        elif self._sending.is_stream:
            self._sending.abort_soon()

    # Called by the reader and by bodies.

    @property
    def is_full(self) -> bool:
        """As `Receiver.is_full`."""
        return len(self._due) >= _DUE_MAX

    def begin(self, exchange: Exchange) -> None:
        """As `Receiver.begin`."""
        self._due.append(exchange)

    def refuse(self, refusal: Refusal) -> None:
        """As `Receiver.refuse`."""
        exchange = Exchange.unread(self.peer)
        exchange.reply = self._shared.application.refuse(refusal, exchange.request)
        self._due.append(exchange)

    def say_continue(self) -> None:
        """As `Receiver.say_continue`."""
        self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def pause_body(self) -> None:
        """As `Receiver.pause_body`."""
        self._pause_reading()

    def resume_body(self) -> None:
        """As `Receiver.resume_body`."""
        if len(self._due) <= 1:  # else other requests wait for this one
            self._resume_reading()

    def _start_first(self) -> None:
        """Begin to answer the first request that is due, unless begun."""
        if self._due and not self._due[0].is_started and not self._sending.is_paused:
            self._due[0].is_started = True
            self._task = begin(self._serve(self._due[0]))

    async def _serve(self, exchange: Exchange) -> None:
        try:
            reply = exchange.reply or await self._shared.application.respond(exchange.request)
            if exchange.request.wait_s:
                await self._shared.delay_refusal(exchange.request, self.peer, self._pause_reading)
            if self._is_lost:
                return
            if type(reply) is Ready:
                self._answer(exchange, reply)
            else:
                await self._stream(exchange, cast("Streamed", reply))
        except ClientGone:
            self._sending.close()
        except Exception as error:  # noqa: BLE001 - the application answers its own errors; this one occurred while an answer was sent
            # The client must not mistake a partial answer for a complete one.
            _log.error(
                "response aborted", error=type(error).__name__, detail=str(error), request_id=exchange.request.id
            )
            self._transport.abort()

    def _answer(self, exchange: Exchange, reply: Ready[Any]) -> None:
        is_last = not (exchange.is_persistent and exchange.is_whole) or self._is_stopping
        now = self._loop.time()
        date = self._shared.date_line(now)
        try:
            head = head_of(reply, exchange.request, date, CLOSE if is_last else b"")
        except ValueError:
            reply = crashed(exchange.request, exchange.request.path)
            head = head_of(reply, exchange.request, date, CLOSE if is_last else b"")
        self._sending.write(head, b"" if exchange.request.method == "HEAD" else reply.body)
        self._end(exchange, now, is_last=is_last)

    async def _stream(self, exchange: Exchange, reply: Streamed) -> None:
        """Send an answer in pieces, at the client's pace."""
        is_chunked, is_last = framing_of(reply, exchange, is_stopping=self._is_stopping)
        about = (CHUNKED if is_chunked else b"") + (CLOSE if is_last else b"")
        self._sending.write(head_of(reply, exchange.request, self._shared.date_line(self._loop.time()), about))
        if isinstance(reply, Stream):
            self._sending.begin_stream(reply.on_abort)
        if exchange.request.method != "HEAD":
            async with closed_after(reply.chunks) as chunks:
                await self._sending.write_pieces(chunks, is_chunked=is_chunked)
        self._end(exchange, self._loop.time(), is_last=is_last)

    def _end(self, exchange: Exchange, now: float, *, is_last: bool) -> None:
        """After an answer: serve the next request, wait for one, or end the connection."""
        self._task = None
        self._due.popleft()
        self._since = now
        if is_last or self._is_stopping:
            self._end_connection(is_all_read=exchange.is_whole and not exchange.is_offer and not self._due)
            return
        if self._sending.waiting_bytes and len(self._due) <= 1:
            self._read_rest()
        if self._due:
            self._loop.call_soon(self._start_first)
            if len(self._due) == 1:
                self._resume_reading()
        elif self._is_half_closed:
            self._sending.close()
        elif self._is_read_paused:
            self._resume_reading()

    def _read_rest(self) -> None:
        """Parse the bytes after the requests that waited."""
        self._reader.feed(b"")
        self._sending.waiting_bytes = self._reader.rest_bytes
        self._fail_cut_short()

    def _fail_cut_short(self) -> None:
        """End the incomplete body of a half-closed client."""
        if self._is_half_closed and self._due and not self._due[-1].is_whole and not self._reader.rest_bytes:
            self._due[-1].fail()

    def _end_connection(self, *, is_all_read: bool) -> None:
        """End the connection after its last answer; further bytes are dropped, so that the answer arrives."""
        self._fail_due()
        if is_all_read or self._is_half_closed or self._transport.is_closing():
            self._sending.close()
            return
        self._lingering = Lingering(self._loop.time())
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._sending.await_reading()
        self._resume_reading()
        self._set_timer(LOOK_SECONDS)

    def _keep_task(self) -> None:
        """Have the server wait at its stop for the request that is being answered."""
        if self._task is not None and not self._task.done():
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)

    def _fail_due(self) -> None:
        while self._due:
            self._due.popleft().fail()

    def _await_head(self) -> None:
        """Start the time limit for a head."""
        self._since = self._loop.time()
        self._set_timer(self._shared.head_seconds_max)

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Check the time limits: one repeating timer is cheaper than a timer per request."""
        now = self._loop.time()
        is_in_head = self._reader.is_in_head
        left = self._since + (self._shared.head_seconds_max if is_in_head else self._shared.idle_seconds_max) - now
        if self._lingering is not None:
            if self._lingering.goes_on(now):
                self._set_timer(LOOK_SECONDS)
            else:
                self._sending.close_now()
        elif self._due:
            self._set_timer(self._shared.idle_seconds_max)
        elif left > 0:
            self._set_timer(left)
        elif is_in_head:
            self.refuse(RequestTimeout(f"the request's head did not arrive within {self._shared.head_seconds_max:g} s"))
            self._start_first()
        else:
            self._sending.close_now()

    def _pause_reading(self) -> None:
        if not self._is_read_paused and not self._transport.is_closing():
            self._is_read_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_read_paused and not self._transport.is_closing():
            self._is_read_paused = False
            self._transport.resume_reading()
