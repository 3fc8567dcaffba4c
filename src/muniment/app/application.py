"""The ASGI application of one process: its life from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from muniment.app.operations import OPERATIONS
from muniment.app.world import build_context
from muniment.context import Context
from muniment.errors import Unavailable
from muniment.http.clients import NotesWriters
from muniment.http.limits import Limits
from muniment.http.middleware import Manners
from muniment.http.routing import Paths
from muniment.intents.store import settle_expired
from muniment.settings import load_settings
from muniment.storage.sql import SWEPT_AT_ONCE
from muniment.triggers.store import settle_ended

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp, Receive, Scope, Send

    from muniment.storage.database import Transaction

# How long a record that has ended may stay among those that listings look at one by one.
_SWEEP_SECONDS: Final = 30
# Marks some records whose time has come, at most `SWEPT_AT_ONCE`; how many.
Sweep = Callable[["Transaction", Context], Awaitable[int]]
SWEEPS: Final[tuple[Sweep, ...]] = (
    lambda tx, context: settle_ended(tx, context.now_ms()),
    lambda tx, context: settle_expired(tx, context.now_ms(), context.settings.settlement_grace_s),
)

_log = structlog.get_logger(__name__)


class Application:
    """The ASGI application of one process."""

    def __init__(self, context: Context) -> None:
        """Serve with `context`, and close what is in it at the end."""
        self.context = replace(context, is_stopping=lambda: self._stopping)
        self._stopping = False
        settings = context.settings
        paths: ASGIApp = Paths(OPERATIONS, lifespan=self._lifespan)
        self._is_at_once = paths.is_at_once if context.database.is_at_hand else None
        if context.wrote is not None:
            paths = NotesWriters(paths, context.clients, context.wrote)
        self._app = Manners(
            paths,
            limits=Limits(settings.body_bytes_max, settings.body_timeout_s),
            random_bytes=context.random_bytes,
            log_requests=settings.log_requests,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event. It is a coroutine function because servers tell ASGI 3 by that."""
        await self.serve(scope, receive, send)

    def is_at_once(self, path: str) -> bool:
        """Whether the GET of `path`, which needs no decoding, most likely waits for nothing."""
        return self._is_at_once is not None and self._is_at_once(path)

    def serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """The same for a server that needs no telling; a coroutine less is a hundredth of a read."""
        scope["muniment.context"] = self.context
        return self._app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncGenerator[None]:
        try:
            await self.context.database.check()
        except Unavailable as refusal:  # /readyz says so until it is over; a process that gave up would not come back
            _log.warning("not ready", detail=refusal.detail)
        _stop_with_parent()
        self._notice_stop()
        tasks = [asyncio.create_task(self._sweep(sweep)) for sweep in SWEEPS]
        if self.context.holdings.chains:
            tasks.append(asyncio.create_task(self.context.holdings.tokens.keep_fresh()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await self.context.outgoing.close()
            await self.context.database.close()

    def _notice_stop(self) -> None:
        """At SIGTERM be not ready first; the server, whose handler this goes before, stops after the delay."""
        stop = signal.getsignal(signal.SIGTERM) if threading.current_thread() is threading.main_thread() else None
        if not callable(stop):  # no server listens for the signal: an application under test
            return
        loop, delay_s = asyncio.get_running_loop(), self.context.settings.shutdown_delay_s

        def notice(number: int, frame: FrameType | None) -> None:
            self._stopping = True
            loop.call_soon_threadsafe(loop.call_later, delay_s, stop, number, frame)

        signal.signal(signal.SIGTERM, notice)

    async def _sweep(self, sweep: Sweep) -> None:
        """Every now and then do a piece of work that is due. A turn lost loses nothing."""
        context, done = self.context, 0
        while True:
            if done < SWEPT_AT_ONCE:
                await asyncio.sleep(_SWEEP_SECONDS)
            try:
                done = await context.database.write(lambda tx: sweep(tx, context))
            except Exception as error:  # noqa: BLE001 - the next turn may succeed; a sweep that ended would not come back
                _log.warning("sweep failed", error=type(error).__name__, detail=str(error))
                done = 0


def create_app() -> Application:
    """The application with the settings of the environment: what a server process loads."""
    return Application(build_context(load_settings()))


def _stop_with_parent() -> None:
    """A worker whose supervisor was killed stops too: nobody would restart it, and it would hold the port."""
    parent, loop = multiprocessing.parent_process(), asyncio.get_running_loop()
    if parent is None:
        return
    sentinel = parent.sentinel

    def stop() -> None:
        loop.remove_reader(sentinel)  # it stays readable
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(sentinel, stop)
