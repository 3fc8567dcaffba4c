"""What leaves a connection: one write for a whole answer, no header that a value smuggles in, and no garbage."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from wires import GET, Answers, Wire, turns

from each_row import each_row
from muniment.service.app import Application, build_context
from muniment.service.http.reply import JSON, Ready, Reply, Streamed
from muniment.service.http.request import Request
from muniment.service.running.settings import Settings


def answering(reply: Reply) -> Answers:
    async def respond(_: Request) -> Reply:
        return reply

    return Answers(respond)


async def pieces() -> AsyncIterator[bytes]:
    for piece in (b"{", b"", b"}"):
        yield piece


async def said(reply: Reply, request: bytes = GET) -> tuple[bytes, bytes, Wire]:
    """Head and body of the answer to one request."""
    wire = Wire(answering(reply))
    wire.send(request)
    await turns()
    head, _, body = wire.transport.said.partition(b"\r\n\r\n")
    return head, body, wire


async def test_a_whole_answer_is_one_write() -> None:
    head, body, wire = await said(Ready(b"{}", (JSON, (b"etag", b'"\xe9\t~"'))))
    assert head.split(b"\r\n")[:5] == [
        b"HTTP/1.1 200 OK", b"date: Fri, 20 Nov 2026 19:48:00 GMT", b"content-type: application/json",
        b'etag: "\xe9\t~"', b"content-length: 2",
    ]  # fmt: skip
    assert (body, len(wire.transport.written), wire.transport.is_closed) == (b"{}", 1, False)


async def test_an_answer_without_a_body_has_no_length() -> None:
    for status in (204, 304):
        head, body, _ = await said(Ready(b"", (), status))
        assert b"content-length" not in head
        assert body == b""


async def test_head_is_answered_with_the_headers_of_get() -> None:
    for reply, length in (
        (Ready(b"{}"), b"content-length: 2"),
        (Streamed(pieces(), ()), b"transfer-encoding: chunked"),
    ):
        head, body, wire = await said(reply, GET.replace(b"GET", b"HEAD"))
        assert length in head
        assert (body, wire.transport.is_closed) == (b"", False)


async def test_pieces_are_chunks_where_their_length_is_not_known() -> None:
    head, body, wire = await said(Streamed(pieces(), (JSON,)))
    assert b"transfer-encoding: chunked" in head
    assert (body, wire.transport.is_closed) == (b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", False)


async def test_pieces_of_a_known_length_are_sent_as_they_are() -> None:
    head, body, wire = await said(Streamed(pieces(), ((b"content-length", b"2"),)))
    assert b"transfer-encoding" not in head
    assert (body, wire.transport.is_closed) == (b"{}", False)


async def test_pieces_for_http_1_0_end_with_the_connection() -> None:
    head, body, wire = await said(Streamed(pieces(), (JSON,)), b"GET / HTTP/1.0\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert (body, wire.transport.is_closed) == (b"{}", True)


async def test_an_error_in_the_middle_breaks_the_answer_off() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"a part"
        raise ValueError("no more")

    _, body, wire = await said(Streamed(failing(), (JSON,)))
    assert body == b"6\r\na part\r\n"
    assert wire.transport.is_aborted


@each_row("value", [b"a\r\nset-cookie: x", b"a\n", b"a\r", b"a\0b", b"\x7f", b"\x1b"])
@each_row("is_streamed", [False, True])
async def test_a_value_that_would_end_its_line_is_never_written(value: bytes, *, is_streamed: bool) -> None:
    headers = (JSON, (b"link", value))
    head, _, wire = await said(Streamed(pieces(), headers) if is_streamed else Ready(b"{}", headers), GET)
    assert value not in wire.transport.said
    if not is_streamed:
        assert head.startswith(b"HTTP/1.1 500 ")


async def test_an_application_that_fails_ends_the_connection() -> None:
    async def respond(_: Request) -> Reply:
        raise ValueError("an error of its own")

    wire = Wire(Answers(respond))
    wire.send(GET)
    await turns()
    assert (wire.transport.written, wire.transport.is_aborted) == ([], True)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Application]:
    made = Application(build_context(Settings(data_dir=tmp_path)))
    yield made
    await made.context.database.close()


@pytest.mark.long
@pytest.mark.parametrize(
    "request_line", ["GET /healthz", "GET /nowhere", "HEAD /healthz", "GET /triggers/0x", "POST /triggers"]
)
async def test_a_request_leaves_no_garbage_for_the_collector(app: Application, request_line: str) -> None:
    wire = Wire(app)
    request = f"{request_line} HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n".encode()
    await wire.answered(request)
    found = await collected_after(20, lambda: wire.answered(request))
    assert len(wire.transport.statuses) >= 21
    assert found < 20, "less than one object a request"


@pytest.mark.long
async def test_a_client_that_goes_away_leaves_no_garbage_either(app: Application) -> None:
    async def leave() -> None:
        wire = Wire(app)
        wire.send(b"POST /triggers HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{")
        await asyncio.sleep(0.001)
        wire.lose()
        await asyncio.gather(*wire.tasks)
        wire.loop.forget()

    await leave()
    assert await collected_after(20, leave) < 20, "less than one object a client"


async def collected_after(count: int, act: Any) -> int:
    """What the garbage collector finds after so many times; the less of two rounds.

    What earlier tests of this process have left is frozen meanwhile: it may become garbage at any time.
    """
    found: list[int] = []
    gc.disable()
    try:
        for _ in range(2):
            gc.collect()
            gc.freeze()
            for _ in range(count):
                await act()
            found.append(gc.collect())
            gc.unfreeze()
    finally:
        gc.enable()
    return min(found)
