"""Where requests end: what comes after bodies, after unanswered requests, and in the place of a head."""

from __future__ import annotations

import asyncio

from wires import CHUNKED, GET, Wire, create_answering, create_reading, turns

from counted_calls import counted_calls
from each_row import each_row
from muniment.service.server.reader import CHUNKS_FREE, FIELDS_MAX, HEAD_BYTES_MAX

# Requests in one read: more than may wait as objects.
MANY = 1_000
BROKEN = CHUNKED + b"zz\r\n"


async def test_reads_that_all_end_within_a_head_do_not_count_as_a_long_head() -> None:
    wire = Wire(create_answering())
    request = b"GET / HTTP/1.1\r\nhost: test\r\ncookie: " + b"x" * 1_000 + b"\r\n\r\n"
    count = 2 * HEAD_BYTES_MAX // len(request)
    stream = request * count
    wire.send(stream[:500])
    for at in range(500, len(stream), len(request)):
        await wire.answered(stream[at : at + len(request)])
    assert wire.transport.statuses == [200] * count
    assert not wire.transport.is_closed


async def test_trailers_do_not_count_as_header_fields() -> None:
    wire = Wire(create_reading())
    wire.send(CHUNKED + b"3\r\nabc\r\n0\r\nx-request-id: a\r\nx-b: c\r\n\r\n" + GET)
    await turns()
    assert b"2 fields and 3 bytes" in wire.transport.said
    assert b"1 fields and 0 bytes" in wire.transport.said


@each_row("line", [b"a: b\r\n", b"x"], ids=["many", "one"])
async def test_trailers_without_end_are_cut_off(line: bytes) -> None:
    wire = Wire(create_reading())
    wire.send(CHUNKED + b"0\r\n")
    piece = line * (10_000 // len(line))
    sent = 0
    while not wire.transport.statuses:
        wire.send(piece)
        await turns()
        sent += len(piece)
        assert sent <= HEAD_BYTES_MAX + 2 * len(piece)
    assert wire.transport.statuses == [431]
    assert wire.transport.is_half_closed


async def test_a_long_chunk_is_not_taken_for_trailers() -> None:
    wire = Wire(create_reading())
    wire.send(CHUNKED + b"%x\r\n" % (10 * HEAD_BYTES_MAX))
    for _ in range(10):
        wire.send(b"x" * HEAD_BYTES_MAX)
        await asyncio.sleep(0)
    wire.send(b"\r\n" + b"1\r\nx\r\n" * (HEAD_BYTES_MAX // 4) + b"1\r\n", b"x\r\n0\r\n\r\n")
    await turns()
    assert b"2 fields and %d bytes" % (10 * HEAD_BYTES_MAX + HEAD_BYTES_MAX // 4 + 1) in wire.transport.said
    assert not wire.transport.is_closed


async def test_requests_after_a_chunked_one_are_not_taken_for_its_trailers() -> None:
    wire = Wire(create_answering())
    await wire.answered(CHUNKED + b"0\r\n\r\n")
    for _ in range(2 * HEAD_BYTES_MAX // len(GET)):
        await wire.answered(GET)
    assert set(wire.transport.statuses) == {200}
    assert not wire.transport.is_closed


@each_row(
    ("later", "status"),
    [(b"\0\r\n", 501), (b"GET /a b HTTP/1.1\r\n\r\n", 400), (b"CONNECT test:443 HTTP/1.1\r\n\r\n", 400)],
)
async def test_a_malformed_request_is_refused_after_the_answers_that_are_due(later: bytes, status: int) -> None:
    gate = asyncio.Event()
    wire = Wire(create_answering(gate))
    wire.send(GET, later)
    await turns()
    assert (wire.transport.written, wire.transport.is_closed, wire.transport.is_paused) == ([], False, True)
    gate.set()
    await turns()
    assert wire.transport.statuses == [200, status]
    assert wire.transport.said.count(b"connection: close\r\n") == 1
    assert wire.transport.is_half_closed


async def test_a_malformed_body_of_a_request_that_waits_is_refused_in_its_turn() -> None:
    wire = Wire(create_reading())
    wire.send(GET + GET + BROKEN)
    assert (400 in wire.transport.statuses, wire.transport.is_closed) == (False, False)
    await turns()
    assert wire.transport.statuses == [200, 200, 400]
    assert wire.transport.is_half_closed


async def test_a_malformed_body_is_refused_and_not_served_as_well() -> None:
    wire = Wire(create_reading())
    wire.send(CHUNKED + b"1\r\nx\r\n")
    await turns()
    wire.send(b"zz\r\n" + GET)
    await turns()
    assert (wire.transport.statuses, wire.transport.is_half_closed) == ([400], True)


@each_row("target", [b"test:443", b"/", b"*", b"http://test/"])
async def test_nothing_after_connect_is_served(target: bytes) -> None:
    wire = Wire(create_answering())
    wire.send(b"CONNECT " + target + b" HTTP/1.1\r\nhost: test\r\n\r\n" + GET)
    await turns()
    assert (wire.transport.statuses, wire.transport.is_half_closed) == ([400], True)


async def test_few_requests_wait_as_objects_and_all_are_answered() -> None:
    gate = asyncio.Event()
    application = create_answering(gate)
    wire = Wire(application)
    wire.send(GET * MANY)
    assert wire.transport.is_paused
    assert len(wire.connection._due) < 500
    assert wire.connection._sending.unread_bytes() > 0.7 * len(GET * MANY)
    gate.set()
    await turns(5 * MANY)
    assert wire.transport.statuses == [200] * MANY
    assert not wire.transport.is_paused
    assert wire.connection._sending.unread_bytes() == 0


async def test_a_long_body_of_announced_length_takes_no_more_calls_than_a_short_one() -> None:
    counts = set[int]()
    for length in (100, 10_000, 200_000):
        wire = Wire(create_reading())
        wire.send(b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: %d\r\n\r\n" % (length + 9_000))
        wire.send(b"x" * 9_000)
        with counted_calls() as calls:
            wire.send(b"x" * length + GET)
        counts.add(calls.count)
        await turns()
        assert f"and {length + 9_000} bytes".encode() in wire.transport.said
        assert wire.transport.statuses == [200, 200]
    assert max(counts) - min(counts) <= 20, counts  # a piece takes some 12


async def test_a_client_that_half_closes_after_many_requests_has_all_answers() -> None:
    wire = Wire(create_answering())
    wire.send(GET * MANY + b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhe")
    assert wire.connection.eof_received()
    await turns(5 * MANY)
    assert wire.transport.statuses[:MANY] == [200] * MANY
    assert wire.transport.is_closed


@each_row("begin", range(1, 5))
async def test_a_method_that_was_cut_after_another_request_is_not_taken_for_its_end(begin: int) -> None:
    wire = Wire(create_answering())
    head = b"XGET / HTTP/1.1\r\nhost: test\r\n\r\n"
    wire.send(GET + head[:begin], head[begin:])
    await turns()
    assert wire.transport.statuses == [200, 501]


async def test_a_head_of_many_fields_is_refused_before_its_end() -> None:
    wire = Wire(create_answering())
    wire.send(b"GET / HTTP/1.1\r\nhost: test\r\n" + b"a:\r\n" * (FIELDS_MAX + 1))
    await turns()
    assert wire.transport.statuses == [431]


async def test_a_body_in_chunks_of_a_byte_is_refused() -> None:
    wire = Wire(create_reading())
    wire.send(CHUNKED, b"1\r\nx\r\n" * 2 * CHUNKS_FREE)
    await turns()
    assert wire.transport.statuses == [400]


async def test_trailers_are_dropped_and_few() -> None:
    wire = Wire(create_reading())
    wire.send(CHUNKED + b"0\r\na: b\r\nc: d\r\n\r\n")
    await turns()
    assert b"2 fields and 0 bytes" in wire.transport.said
    wire = Wire(create_reading())
    wire.send(CHUNKED + b"0\r\n" + b"a: b\r\n" * 2 * FIELDS_MAX + b"\r\n")
    await turns()
    assert wire.transport.statuses == [431]


async def test_a_client_of_http_1_0_gets_no_100_continue() -> None:
    wire = Wire(create_reading())
    wire.send(b"POST / HTTP/1.0\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
    await turns()
    assert wire.transport.said == b""


@each_row("upgrade", ["h2c", "websocket", "H2C, x"])
@each_row(
    ("body", "answer"),
    [
        (b"\r\n", b"4 fields and 0 bytes"),
        (b"content-length: 0\r\n\r\n", b"5 fields and 0 bytes"),
        (b"content-length: 5\r\n\r\nhello", b"5 fields and 5 bytes"),
        (b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"5 fields and 5 bytes"),
    ],
)
async def test_an_upgrade_is_ignored_wherever_the_bytes_are_cut(upgrade: str, body: bytes, answer: bytes) -> None:
    offer = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABk\r\n".encode()
    stream = GET + b"POST /a?b HTTP/1.1\r\nhost: test\r\n" + offer + body + GET
    for cuts in [*([at] for at in range(len(stream))), list(range(len(stream)))]:
        wire = Wire(create_reading())
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            wire.send(stream[start:end])
            await asyncio.sleep(0)
        await turns()
        answers = [line for line in wire.transport.said.split(b"\r\n\r\n") if line]
        assert [line.partition(b"HTTP/1.1")[0] for line in answers[1:]] == [b"1 fields and 0 bytes", answer], cuts
        assert b"connection: close" in answers[1], cuts
        # Else the kernel would discard the answer when more requests arrive.
        assert wire.transport.is_half_closed, cuts
        wire.lose()


@each_row("close", [b"HTTP/1.0\r\nconnection: upgrade", b"HTTP/1.1\r\nhost: test\r\nconnection: upgrade, close"])
async def test_an_upgrade_on_a_connection_that_is_to_end_is_ignored(close: bytes) -> None:
    wire = Wire(create_reading())
    wire.send(b"POST / " + close + b"\r\nupgrade: h2c\r\ncontent-length: 5\r\n\r\nhel", b"lo" + GET)
    await turns()
    assert wire.transport.statuses == [200]
    assert b" fields and 5 bytes" in wire.transport.said
    assert wire.transport.is_half_closed
