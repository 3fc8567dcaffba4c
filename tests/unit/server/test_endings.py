"""How connections end: with what is still sent, with what is still due, and when there are too many of them."""

from __future__ import annotations

import asyncio

from wires import CHUNKED, GET, Answers, Wire, create_answering, create_reading, shared, turns

from each_row import each_row
from muniment.protocol.errors import MissingCredential
from muniment.service.http.reply import Reply
from muniment.service.http.request import Request
from muniment.service.server.connection import LINGERING_BYTES_MAX, LINGERING_BYTES_PER_SECOND_MIN, LOOK_SECONDS

UPLOAD = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 99999999\r\n\r\n"


def refusing() -> Answers:
    async def respond(_: Request) -> Reply:
        raise MissingCredential("a key is due")

    return Answers(respond)


async def lingering() -> Wire:
    """A connection whose upload was refused before it came."""
    wire = Wire(refusing())
    wire.send(UPLOAD + b"x" * 1_000)
    await turns()
    assert wire.transport.statuses == [401]
    assert b"connection: close\r\n" in wire.transport.said
    assert (wire.transport.is_half_closed, wire.transport.is_closed, wire.transport.is_paused) == (True, False, False)
    return wire


async def test_bytes_after_a_refusal_are_dropped_while_they_come_fast_enough() -> None:
    wire = await lingering()
    for _ in range(10):
        wire.send(b"x" * int(LINGERING_BYTES_PER_SECOND_MIN * LOOK_SECONDS))
        await wire.loop.move(LOOK_SECONDS)
        assert not wire.transport.is_closed
    wire.send(b"x" * 1_000)
    await wire.loop.move(2 * LOOK_SECONDS)
    assert wire.transport.is_closed
    assert wire.transport.statuses == [401]


async def test_the_dropped_bytes_of_a_connection_are_bounded() -> None:
    wire = await lingering()
    for _ in range(LINGERING_BYTES_MAX // 2**20):
        wire.send(b"x" * 2**20)
    assert not wire.transport.is_closed
    wire.send(b"x" * 2**20)
    assert wire.transport.is_closed


async def test_a_client_that_has_its_answer_ends_the_lingering() -> None:
    wire = await lingering()
    assert not wire.connection.eof_received()


async def test_a_body_that_came_whole_does_not_end_the_connection() -> None:
    wire = Wire(refusing())
    await wire.answered(b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nxyz")
    await wire.answered(GET)
    assert (wire.transport.statuses, wire.transport.is_closed) == ([401, 401], False)


@each_row("begun", [b"", b"GET / HT"], ids=["silence", "half a head"])
async def test_a_head_that_does_not_come_is_408(begun: bytes) -> None:
    wire = Wire(create_answering(), head_seconds_max=3)
    if begun:
        wire.send(begun)
    await wire.loop.move(2.9)
    assert wire.transport.written == []
    await wire.loop.move(0.2)
    assert wire.transport.statuses == [408]
    await wire.loop.move(2 * LOOK_SECONDS)
    assert wire.transport.is_closed


async def test_bytes_now_and_then_gain_a_head_no_time() -> None:
    wire = Wire(create_answering(), head_seconds_max=3)
    for byte in b"GET / H":
        wire.send(bytes([byte]))
        await wire.loop.move(0.5)
    assert wire.transport.statuses == [408]


async def test_the_stop_answers_running_requests_and_closes_idle_connections() -> None:
    gate = asyncio.Event()
    wire, idle = Wire(create_answering(gate)), Wire(create_answering())
    wire.send(GET)
    await turns()
    wire.connection.shutdown()
    idle.connection.shutdown()
    assert (wire.transport.is_closed, idle.transport.is_closed) == (False, True)
    assert len(wire.tasks) == 1, "the server can wait for it, or cancel it"
    gate.set()
    await turns()
    assert wire.transport.statuses == [200]
    assert b"connection: close\r\n" in wire.transport.said
    assert (wire.transport.is_closed, wire.tasks) == (True, set())


async def test_a_half_closed_client_is_answered_and_then_let_go() -> None:
    gate = asyncio.Event()
    wire = Wire(create_answering(gate))
    wire.send(GET + GET)
    await turns()
    assert wire.connection.eof_received(), "the transport stays open"
    gate.set()
    await turns()
    assert (wire.transport.statuses, wire.transport.is_closed) == ([200, 200], True)


async def test_a_body_that_a_half_closed_client_did_not_send_is_not_waited_for() -> None:
    wire = Wire(create_reading())
    wire.send(CHUNKED + b"3\r\nab")
    await turns()
    assert wire.connection.eof_received()
    await turns()
    assert (wire.transport.written, wire.transport.is_closed) == ([], True)


async def test_one_connection_too_many_is_closed_immediately_and_others_go_on() -> None:
    together = shared(create_answering(), connections_max=3, connections_per_client_max=2)
    first = [Wire(None, shared=together, peer="192.0.2.1") for _ in range(3)]
    assert [wire.transport.is_aborted for wire in first] == [False, False, True]
    other = [Wire(None, shared=together, peer=f"192.0.2.{number}") for number in (2, 3)]
    assert [wire.transport.is_aborted for wire in other] == [False, True]
    for wire in (first[2], other[1], first[0]):
        wire.lose()
    again = Wire(None, shared=together, peer="192.0.2.1")
    await again.answered(GET)
    assert again.transport.statuses == [200]


async def test_a_proxy_is_not_bounded_as_one_client() -> None:
    together = shared(create_answering(), connections_per_client_max=1, is_proxy=lambda peer: peer == "10.0.0.1")
    wires = [Wire(None, shared=together, peer=peer) for peer in ["10.0.0.1"] * 5 + ["10.0.0.2"] * 2]
    assert [wire.transport.is_aborted for wire in wires] == [False] * 6 + [True]
