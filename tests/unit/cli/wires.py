"""Connections of an application on a wire that only keeps what is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from muniment.cli.connections import BoundedHeads
from muniment.http.reply import Ready, send_reply


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False
        self.is_paused = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_extra_info(self, name: str) -> None:
        del name

    def is_closing(self) -> bool:
        return self.is_closed


def protocol(app: Any) -> tuple[BoundedHeads, Transport]:
    """A connection of `app` on a wire that keeps what is written."""
    config = uvicorn.Config(
        app, interface="asgi3", http=BoundedHeads, ws="none", lifespan="off", log_config=None, access_log=False,
        proxy_headers=False, server_header=False,
    )  # fmt: skip
    config.load()
    config.loaded_app = app
    made, transport = BoundedHeads(config, ServerState(), {}), Transport()
    made.connection_made(cast("Any", transport))
    return made, transport


async def answered(made: BoundedHeads, request: bytes) -> None:
    made.data_received(request)
    await until(lambda: made.cycle.response_complete)
    await asyncio.sleep(0)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what the event loop, or a thread, is about to do."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - a wire tells nobody
            await asyncio.sleep(0.001)


async def turns() -> None:
    """Let the event loop do all that it has to do at once."""
    for _ in range(20):
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
            self._now = first.when()
            first._run()  # pyright: ignore[reportAttributeAccessIssue] - what a loop does with its timers
        self._now = end
        await turns()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


def create_answering(gate: asyncio.Event | None = None) -> Any:
    """An application that answers each request, once the gate is open."""

    class Context:
        class settings:  # noqa: N801 - stands for the attribute of that name
            body_timeout_s = 30

    class App:
        context = Context

        def is_at_once(self, path: str) -> bool:
            return path == "/at-once"

        async def serve(self, scope: Any, receive: Any, send: Any) -> None:
            del receive
            if gate is not None:
                await gate.wait()
            scope["muniment.id"] = "some-id"
            await send_reply(Ready(b"{}"), scope, send)

    return App()
