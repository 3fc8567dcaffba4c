"""Connections of an application on a wire that only keeps what is written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from muniment.protocol.errors import Refusal
from muniment.service.http.problems import problem
from muniment.service.http.reply import Ready, Reply
from muniment.service.http.request import Request
from muniment.service.server.connection import Connection
from muniment.service.server.shared import Shared

GET = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"


class Transport:
    """Keeps what is written. Nobody reads it while `is_stuck`, and what was written waits to be sent."""

    def __init__(self, peer: str = "192.0.2.1") -> None:
        self.written: list[bytes] = []
        self.peer = peer
        self.is_closed = self.is_aborted = self.is_paused = self.is_half_closed = self.is_stuck = False
        self.sent_bytes = 0

    def write(self, data: bytes) -> None:
        self.written.append(data)
        if not self.is_stuck:
            self.sent_bytes += len(data)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def write_eof(self) -> None:
        self.is_half_closed = True

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_extra_info(self, name: str) -> object:
        return (self.peer, 4711) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.written)) - self.sent_bytes

    def set_write_buffer_limits(self, high: int | None = None) -> None:
        """The tests pause themselves."""

    def is_closing(self) -> bool:
        return self.is_closed

    @property
    def statuses(self) -> list[int]:
        """Of the answers so far."""
        return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3}) ", self.said)]

    @property
    def said(self) -> bytes:
        return b"".join(self.written)


class Answers:
    """An application made of one function, which keeps every request."""

    def __init__(self, respond: Callable[[Request], Awaitable[Reply]]) -> None:
        self._respond = respond
        self.requests: list[Request] = []

    async def respond(self, request: Request) -> Reply:
        request.id = "some-id"
        self.requests.append(request)
        try:
            return await self._respond(request)
        except Refusal as refusal:
            return self.refuse(refusal, request)

    def refuse(self, refusal: Refusal, request: Request) -> Ready[Any]:
        request.id = "some-id"
        return problem(refusal, request.id, request.root)


class Wire:
    """A connection, its transport, and the tasks that are left when it is gone."""

    def __init__(self, application: Any, **bounds: Any) -> None:
        self.loop = Clock()
        self.shared = bounds.pop("shared", None) or shared(application, **bounds)
        self.tasks: set[asyncio.Task[None]] = set()
        self.open: set[Any] = set()
        self.transport = Transport(bounds.pop("peer", "192.0.2.1"))
        self.connection = Connection(self.shared, cast("Any", self.loop), self.open, self.tasks)
        self.connection.connection_made(cast("Any", self.transport))

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.data_received(piece)

    async def answered(self, request: bytes) -> None:
        """Send a request and wait for its answer."""
        before = len(self.transport.written)
        self.send(request)
        while len(self.transport.written) == before:
            await asyncio.sleep(0)

    def lose(self) -> None:
        self.connection.connection_lost(None)


def shared(application: Any, **bounds: Any) -> Shared:
    """What connections of `application` share."""
    given: dict[str, Any] = {"head_seconds_max": 30, "connections_max": 1_000, "now_s": lambda: 1_795_204_080.0}
    return Shared(application=application, **{**given, **bounds})


def create_answering(gate: asyncio.Event | None = None) -> Answers:
    """An application that answers each request, once the gate is open."""

    async def respond(_: Request) -> Reply:
        if gate is not None:
            await gate.wait()
        return Ready(b"{}")

    return Answers(respond)


def create_reading() -> Answers:
    """An application that tells what it got."""

    async def respond(request: Request) -> Reply:
        body, more = b"", True
        while more:
            while (taken := request._body.take()) is None:
                await request._body.wait()
            body, more = body + taken[0], taken[1]
        fields: Sequence[object] = request.fields
        return Ready(b"%d fields and %d bytes" % (len(fields), len(body)))

    return Answers(respond)


async def turns(count: int = 20) -> None:
    """Let the event loop do all that it has to do now."""
    for _ in range(count):
        await asyncio.sleep(0)


class Clock:
    """The running loop, but with a time that only a test moves."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time()
        self._timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self._now + delay, callback, arguments, self._loop)
        self._timers.append(timer)
        return timer

    async def move(self, seconds: float) -> None:
        """Later; what is due is done."""
        end = self._now + seconds
        while due := [timer for timer in self._timers if timer.when() <= end and not timer.cancelled()]:
            first = min(due)
            self._timers.remove(first)
            self._now = max(self._now, first.when())
            first._run()  # pyright: ignore[reportAttributeAccessIssue] - what a loop does with its timers
        self._now = end
        await turns()

    def forget(self) -> None:
        """Let go of timers, as a loop does of those that are cancelled."""
        self._timers.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)
