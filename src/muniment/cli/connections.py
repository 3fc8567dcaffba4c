"""Connections whose requests must begin in time and with a head of bounded size, and whose answers leave in one write.

uvicorn hands over a request once its head is complete, and waits for that without end; the limits of
`muniment.http` begin only there. It writes head and body of an answer one after the other, and a second call into
the kernel costs as much as a read of the database.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from muniment.cli.at_once import AT_ONCE_PER_READ, JOINED_BYTES_MAX, AnswersAtOnce, whole
from muniment.cli.framing import HEAD_BYTES_MAX
from muniment.http.reply import WRITE

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

    from muniment.app import Application

_TOO_LARGE: Final = b"431 Request Header Fields Too Large"
_TOO_LATE: Final = b"408 Request Timeout"


class OneWrite(RequestResponseCycle):
    """uvicorn's side of a request. An answer that is whole is written at once, any other as uvicorn does."""

    def write(self, status: int, lines: bytes, body: bytes) -> bool:
        """Write a whole answer, unless something is special about it or the connection; whether it was written."""
        if (
            len(body) > JOINED_BYTES_MAX or self.response_started or self.disconnected or not self.keep_alive
            or self.flow.write_paused or self.access_log
        ):  # fmt: skip
            return False
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(whole(status, self.default_headers, lines) + body)
        self.message_event.set()
        self.on_response()
        return True


class BoundedHeads(AnswersAtOnce):
    """uvicorn's protocol; a head that is too long or too late ends the connection.

    A connection that is kept alive has one timer for as long as it lives, which looks at the time when it goes off:
    uvicorn's own, set anew by every request, cost a fortieth of a read.
    """

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _idle_since: float | None = None
    _served: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client has connected, and owes a request."""
        super().connection_made(transport)
        self.app = cast("Application", self.config.loaded_app).serve
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, whoever ended it."""
        self._forget_head()
        self._forget_timer()
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True  # uvicorn tells the request that came last
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes have come. Most heads come in one piece, and then no timer is ever set."""
        self._may_try = AT_ONCE_PER_READ
        super().data_received(data)
        if self._is_head_open:
            if self._head_timer is None or self._may_try != AT_ONCE_PER_READ:
                self._forget_head()  # this one began somewhere in `data`, perhaps behind others
                if not self.transport.is_closing():
                    self._await_head()
            else:
                self._head_bytes += len(data)
                if self._head_bytes > HEAD_BYTES_MAX:
                    self._refuse(_TOO_LARGE)
        elif self._head_bytes or self._head_timer is not None:
            self._forget_head()
        if self._idle_since is None and self._is_all_answered:
            # What came begins no request: the rest of a body that nobody waited for, or an empty line.
            self._idle_since = self.loop.time()

    @property
    def _is_all_answered(self) -> bool:
        """Whether there was a request, and the last one has its answer."""
        cycle: Any = self.cycle  # none before the first request that was not answered at once
        return self.scope is not None and (cycle is None or cycle.response_complete)  # pyright: ignore[reportUnnecessaryComparison] - uvicorn types a scope, and has none before the first request

    @property
    def _is_head_open(self) -> bool:
        """Whether a request has begun whose head is not complete; a new connection owes one from the beginning."""
        scope: Any = self.scope  # none before the first request, as well
        return scope is None or "method" not in scope

    def on_response_complete(self) -> None:
        """An answer is written: the next request begins, or the connection is idle from now on."""
        if self.pipeline and not self.transport.is_closing():
            # uvicorn would read on after each answer, and a client that only sends would fill the memory.
            self.server_state.total_requests += 1
            self._start_asgi_task(*self.pipeline.pop())
            return
        is_simple = not self.pipeline and not self.flow.read_paused and not self.transport.is_closing()
        if is_simple and self.timeout_keep_alive_task is not None:
            self.server_state.total_requests += 1
        else:
            if not self.pipeline:
                self._forget_timer()  # uvicorn sets another
            super().on_response_complete()
        if self._is_all_answered:
            self._idle_since = self.loop.time()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it has been idle for so long, else look again when it will have been."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return  # a request is being answered, and sets the timer when it is done
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left <= 0:
            super().timeout_keep_alive_handler()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """Called by uvicorn where it would cancel its timer."""
        self._idle_since = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Called by uvicorn when a request's turn has come, its answer not begun."""
        cycle.__class__ = OneWrite  # uvicorn names its class itself
        self._served = cycle
        one_write: Any = cycle
        one_write.scope[WRITE] = one_write.write
        super()._start_asgi_task(cycle, app)

    def _await_head(self) -> None:
        application = cast("Application", self.config.loaded_app)
        self._head_timer = self.loop.call_later(application.context.settings.body_timeout_s, self._refuse, _TOO_LATE)

    def _forget_timer(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def _forget_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: bytes) -> None:
        """End the connection, after the answers that are due: this one would be taken for the first of them."""
        self._forget_head()
        if not self._ends_behind_answers():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
