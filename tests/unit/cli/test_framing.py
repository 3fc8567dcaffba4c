"""Where requests end: what comes behind bodies, behind unanswered requests, and in the place of a head."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from wires import Transport, create_answering, protocol, turns

from muniment.cli.at_once import WAITING_MAX
from muniment.cli.connections import BoundedHeads
from muniment.cli.framing import HEAD_BYTES_MAX
from muniment.http.reply import WRITE, Ready, send_reply

GET = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
BROKEN = CHUNKED + b"zz\r\n"


def statuses(transport: Transport) -> list[bytes]:
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", b"".join(transport.written))


async def served(made: BoundedHeads) -> None:
    """Wait until nothing is served any more."""
    while made.tasks:
        _, waiting = await asyncio.wait(made.tasks, timeout=60)
        assert not waiting


def create_reading(*, begins_before: bool = False) -> Any:
    """An application that says what it got, and has no answer for a client that went away."""

    class App:
        context = create_answering().context
        gone = 0

        def is_at_once(self, path: str) -> bool:
            del path
            return False

        async def serve(self, scope: Any, receive: Any, send: Any) -> None:
            body, more = b"", True
            if begins_before:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    self.gone += 1
                    scope.pop(WRITE)
                    return
                body, more = body + message["body"], message["more_body"]
            scope["muniment.id"] = "some-id"
            await send_reply(Ready(b"%d fields and %d bytes" % (len(scope["headers"]), len(body))), scope, send)

    return App()


async def test_reads_that_all_end_within_a_head_are_no_long_head() -> None:
    made, transport = protocol(create_answering())
    request = b"GET /at-once HTTP/1.1\r\nhost: test\r\ncookie: " + b"x" * 1_000 + b"\r\n\r\n"
    count = 2 * HEAD_BYTES_MAX // len(request)
    stream = request * count
    made.data_received(stream[:500])
    for at in range(500, len(stream), len(request)):
        made.data_received(stream[at : at + len(request)])
    assert statuses(transport) == [b"200"] * count
    assert not transport.is_closed
    made.connection_lost(None)


async def test_trailers_are_no_header_fields() -> None:
    made, transport = protocol(create_reading())
    made.data_received(CHUNKED + b"3\r\nabc\r\n0\r\nx-request-id: a\r\nx-b: c\r\n\r\n" + GET)
    await served(made)
    said = b"".join(transport.written)
    assert b"2 fields and 3 bytes" in said
    assert b"1 fields and 0 bytes" in said
    made.connection_lost(None)


@pytest.mark.parametrize("line", [b"a: b\r\n", b"x"], ids=["many", "one"])
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
async def test_trailers_without_end_are_cut_off(line: bytes, *, is_read: bool) -> None:
    app = create_reading() if is_read else create_answering()
    made, transport = protocol(app)
    made.data_received(CHUNKED + b"0\r\n")
    await turns()
    piece = line * (10_000 // len(line))
    sent = 0
    while not transport.is_closed:
        made.data_received(piece)
        assert list(made.headers) == []
        sent += len(piece)
        assert sent <= HEAD_BYTES_MAX + 2 * len(piece)
    await served(made)
    assert statuses(transport) == ([b"400"] if is_read else [b"200", b"400"])
    assert getattr(app, "gone", 1) == 1
    made.connection_lost(None)


async def test_a_long_chunk_is_not_taken_for_trailers() -> None:
    made, transport = protocol(create_reading())
    made.data_received(CHUNKED + b"%x\r\n" % (10 * HEAD_BYTES_MAX))
    for _ in range(10):
        made.data_received(b"x" * HEAD_BYTES_MAX)
        await asyncio.sleep(0)
    made.data_received(b"\r\n" + b"1\r\nx\r\n" * HEAD_BYTES_MAX + b"1\r\n")
    made.data_received(b"x\r\n0\r\n\r\n")
    await served(made)
    assert b"2 fields and %d bytes" % (11 * HEAD_BYTES_MAX + 1) in b"".join(transport.written)
    assert not transport.is_closed
    made.connection_lost(None)


async def test_requests_behind_a_chunked_one_are_not_taken_for_its_trailers() -> None:
    made, transport = protocol(create_answering())
    made.data_received(CHUNKED + b"0\r\n\r\n")
    await served(made)
    for _ in range(2 * HEAD_BYTES_MAX // len(GET)):
        made.data_received(GET)
        await served(made)
    assert set(statuses(transport)) == {b"200"}
    assert not transport.is_closed
    made.connection_lost(None)


@pytest.mark.parametrize("behind", [b"\0\r\n", b"GET /a b HTTP/1.1\r\n\r\n", b"CONNECT test:443 HTTP/1.1\r\n\r\n"])
async def test_what_is_malformed_does_not_take_the_place_of_an_answer(behind: bytes) -> None:
    gate = asyncio.Event()
    made, transport = protocol(create_answering(gate))
    made.data_received(GET)
    assert not transport.is_paused
    made.data_received(behind)
    await turns()
    assert (transport.written, transport.is_closed, transport.is_paused) == ([], False, True)
    gate.set()
    await served(made)
    assert statuses(transport) == [b"200"]
    assert b"".join(transport.written).count(b"connection: close\r\n") == 1
    assert transport.is_closed
    made.connection_lost(None)


async def test_a_malformed_body_of_a_request_that_waits_is_refused_in_its_turn() -> None:
    gate = asyncio.Event()
    made, transport = protocol(create_answering(gate))
    made.data_received(GET + GET + BROKEN)
    await turns()
    assert (transport.written, transport.is_closed) == ([], False)
    gate.set()
    await served(made)
    assert statuses(transport) == [b"200", b"200", b"400"]
    assert transport.is_closed
    made.connection_lost(None)


async def test_a_malformed_body_is_refused_and_not_served_as_well() -> None:
    app = create_reading()
    made, transport = protocol(app)
    made.data_received(CHUNKED + b"1\r\nx\r\n")
    await turns()
    made.data_received(b"zz\r\n")
    await served(made)
    assert statuses(transport) == [b"400"]
    assert (transport.is_closed, app.gone) == (True, 1)
    made.connection_lost(None)


async def test_an_answer_that_is_begun_breaks_off_where_the_body_is_malformed() -> None:
    app = create_reading(begins_before=True)
    made, transport = protocol(app)
    made.data_received(CHUNKED)
    await turns()
    made.data_received(b"zz\r\n")
    await served(made)
    said = b"".join(transport.written)
    assert said.endswith(b"\r\n5\r\nbegun\r\n")
    assert (statuses(transport), transport.is_closed, app.gone) == ([b"200"], True, 1)
    made.connection_lost(None)


@pytest.mark.parametrize("target", [b"test:443", b"/", b"*", b"http://test/"])
async def test_nothing_behind_connect_is_served(target: bytes) -> None:
    made, transport = protocol(create_answering())
    made.data_received(b"CONNECT " + target + b" HTTP/1.1\r\nhost: test\r\n\r\n" + GET)
    await served(made)
    assert (statuses(transport), transport.is_closed) == ([b"400"], True)
    made.connection_lost(None)


async def test_so_many_requests_wait_and_no_more() -> None:
    gate = asyncio.Event()
    made, transport = protocol(create_answering(gate))
    made.data_received(GET * 3 * WAITING_MAX)
    assert len(made.pipeline) == WAITING_MAX
    gate.set()
    await served(made)
    assert statuses(transport) == [b"200"] * (1 + WAITING_MAX)
    assert transport.is_closed
    made.connection_lost(None)


@pytest.mark.parametrize("upgrade", ["h2c", "websocket", "H2C, x"])
@pytest.mark.parametrize(
    "body", [b"content-length: 5\r\n\r\nhello", b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
)
async def test_an_upgrade_is_ignored_wherever_the_bytes_are_cut(upgrade: str, body: bytes) -> None:
    offer = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABk\r\n".encode()
    one = b"POST /a?b HTTP/1.1\r\nhost: test\r\n" + offer + body
    stream = one + b"GET / HTTP/1.1\r\n" + offer + b"\r\n" + GET
    expected = [b"4 fields and 5 bytes", b"2 fields and 0 bytes", b"1 fields and 0 bytes"]
    for cuts in [*([at] for at in range(len(stream))), list(range(len(stream)))]:
        made, transport = protocol(create_reading())
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            made.data_received(stream[start:end])
            await asyncio.sleep(0)
        await served(made)
        answers = [line for line in b"".join(transport.written).split(b"\r\n\r\n") if line]
        assert [line.partition(b"HTTP/1.1")[0] for line in answers[1:]] == expected, cuts
        assert not transport.is_closed
        made.connection_lost(None)


async def test_thousands_of_upgrades_in_one_read_are_no_deep_matter() -> None:
    made, transport = protocol(create_answering())
    offer = b"GET /at-once HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    made.data_received(offer * WAITING_MAX)
    await served(made)
    assert statuses(transport) == [b"200"] * WAITING_MAX
    made.connection_lost(None)


@pytest.mark.parametrize("close", [b"HTTP/1.0\r\nconnection: upgrade", b"HTTP/1.1\r\nconnection: upgrade, close"])
async def test_an_upgrade_on_a_connection_that_is_to_end_is_ignored(close: bytes) -> None:
    made, transport = protocol(create_reading())
    made.data_received(b"POST / " + close + b"\r\nupgrade: h2c\r\ncontent-length: 5\r\n\r\nhel")
    made.data_received(b"lo" + GET)
    await served(made)
    assert statuses(transport) == [b"200"]
    assert b"2 fields and 5 bytes" in b"".join(transport.written)
    assert transport.is_closed
    made.connection_lost(None)
