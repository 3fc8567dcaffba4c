"""An answer that is whole leaves in one write, with the same bytes as by uvicorn's own hand, and leaves no garbage."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from wires import Transport, answered, protocol

from muniment.app import create_app
from muniment.cli.connections import OneWrite
from muniment.http.reply import JSON, WRITE, Ready, Reply, Streamed, send_reply

Header = tuple[bytes, bytes]


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


async def test_a_client_that_goes_away_leaves_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUNIMENT_DATA_DIR", str(tmp_path))
    app = create_app()

    async def leave() -> None:
        made, _ = protocol(app)
        made.data_received(b"POST /triggers HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{")
        await asyncio.sleep(0.001)
        made.connection_lost(None)
        await asyncio.gather(*made.tasks)

    await leave()
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            await leave()
        found = gc.collect()
    finally:
        gc.enable()
        await app.context.database.close()
    assert found < 20, "less than one object a request"
