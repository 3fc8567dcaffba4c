"""An answer that is whole leaves in one write, with the same bytes as by uvicorn's own hand, and leaves no garbage."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from muniment.app import create_app
from muniment.cli.connections import BoundedHeads, OneWrite
from muniment.http.reply import JSON, WRITE, Ready, Reply, Streamed, send_reply

Header = tuple[bytes, bytes]


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str) -> None:
        del name

    def is_closing(self) -> bool:
        return self.is_closed


async def sent(
    kind: type[RequestResponseCycle], reply: Reply, *, method: str = "GET", keep: bool = True, paused: bool = False
) -> Transport:
    """What becomes of an answer."""
    transport = Transport()
    flow = FlowControl(cast("Any", transport))
    scope: dict[str, Any] = {"type": "http", "method": method, "muniment.id": "some-id"}
    cycle = kind(
        scope=cast("Any", scope), transport=cast("Any", transport), flow=flow, logger=cast("Any", None),
        access_logger=cast("Any", None), access_log=False, default_headers=[(b"date", b"now")],
        message_event=asyncio.Event(), expect_100_continue=False, keep_alive=keep, on_response=lambda: None,
    )  # fmt: skip
    if isinstance(cycle, OneWrite):
        scope[WRITE] = cycle.write
    if paused:
        flow.pause_writing()
        asyncio.get_running_loop().call_later(0.01, flow.resume_writing)
    await send_reply(reply, scope, cast("Any", cycle.send))
    assert cycle.response_complete
    return transport


async def pieces() -> AsyncIterator[bytes]:
    yield b"{"
    yield b"}"


@pytest.mark.parametrize(
    ("reply", "more", "writes"),
    [
        (Ready(b"{}"), {}, 1),
        (Ready(b"{}", (JSON, (b"etag", b'"\xe9\t~"'))), {}, 1),
        (Ready(b"", (), 204), {}, 1),
        (Ready(b"", (JSON, (b"etag", b"x")), 304), {}, 1),
        (Ready(b'{"code":"x"}', (JSON,), 422), {}, 1),
        (Ready(b"{}"), {"keep": False}, 2),
        (Ready(b"{}"), {"paused": True}, 2),
        (Ready(b"{}"), {"method": "HEAD"}, 2),
        (Ready(b"{}", (JSON, (b"connection", b"close"))), {}, 2),
        (Ready(b"x" * 100_000), {}, 2),
        (Streamed(pieces(), (JSON,)), {}, 4),
    ],
    ids=["whole", "more", "204", "304", "refusal", "last one", "paused", "HEAD", "close", "long", "pieces"],
)
async def test_the_bytes_are_those_of_uvicorn(reply: Reply, more: dict[str, Any], writes: int) -> None:
    ours = await sent(OneWrite, reply, **more)
    if isinstance(reply, Streamed):
        reply = Streamed(pieces(), reply.headers)
    theirs = await sent(RequestResponseCycle, reply, **more)
    assert b"".join(ours.written) == b"".join(theirs.written)
    assert ours.is_closed == theirs.is_closed
    assert len(ours.written) <= writes


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: x", b"a\n", b"a\r", b"a\0b", b"\x7f", b"\x1b"])
async def test_a_value_that_would_end_its_line_is_never_written(value: bytes) -> None:
    with pytest.raises(RuntimeError, match="Invalid HTTP header value"):
        await sent(OneWrite, Ready(b"{}", (JSON, (b"link", value))))


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


@pytest.mark.parametrize(
    "request_line", ["GET /healthz", "GET /nowhere", "HEAD /healthz", "GET /triggers/0x", "POST /triggers"]
)
async def test_a_request_leaves_nothing_that_only_the_garbage_collector_finds(
    request_line: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUNIMENT_DATA_DIR", str(tmp_path))
    app = create_app()
    made, transport = protocol(app)
    request = f"{request_line} HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n".encode()
    await answered(made, request)
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            await answered(made, request)
        found = gc.collect()
    finally:
        gc.enable()
        made.connection_lost(None)
        await app.context.database.close()
    assert len(transport.written) >= 21
    assert found < 20, "less than one object a request"


@pytest.mark.parametrize("idle_s", [0.05, 0.4], ids=["short", "long"])
async def test_an_idle_connection_is_closed_after_the_time_and_not_before(idle_s: float) -> None:
    made, transport = protocol(create_answering())
    vars(made)["timeout_keep_alive"] = 0.2
    for _ in range(3):  # each request begins the time anew, though only the first sets a timer
        await answered(made, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        await asyncio.sleep(0.1)
    assert not transport.is_closed
    await asyncio.sleep(idle_s)
    assert transport.is_closed == (idle_s > 0.2)
    made.connection_lost(None)


async def test_the_timer_of_an_idle_connection_spares_a_request_that_takes_long() -> None:
    gate = asyncio.Event()
    made, transport = protocol(create_answering(gate))
    vars(made)["timeout_keep_alive"] = 0.1
    gate.set()
    await answered(made, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
    gate.clear()
    made.data_received(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
    await asyncio.sleep(0.3)
    assert not transport.is_closed
    gate.set()
    await asyncio.sleep(0.02)
    assert made.cycle.response_complete
    assert not transport.is_closed
    await asyncio.sleep(0.3)
    assert transport.is_closed


def create_answering(gate: asyncio.Event | None = None) -> Any:
    """An application that answers each request, once the gate is open."""

    class Context:
        class settings:  # noqa: N801 - stands for the attribute of that name
            body_timeout_s = 30

    class App:
        context = Context

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            del receive
            if gate is not None:
                await gate.wait()
            scope["muniment.id"] = "some-id"
            await send_reply(Ready(b"{}"), scope, send)

    return App()
