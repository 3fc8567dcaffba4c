"""Connections of an application on a wire that only keeps what is written."""

from __future__ import annotations

import asyncio
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
    for _ in range(1_000):
        if made.cycle.response_complete:
            break
        await asyncio.sleep(0.001)
    assert made.cycle.response_complete
    await asyncio.sleep(0)


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
