"""A connection that is kept alive: how long it may be idle, and what comes after a request."""

from __future__ import annotations

import asyncio

from wires import GET, Wire, create_answering, turns

from each_row import each_row


@each_row("idle_s", [0.05, 0.4], ids=["short", "long"])
async def test_an_idle_connection_is_closed_after_the_time_and_not_before(idle_s: float) -> None:
    wire = Wire(create_answering(), idle_seconds_max=0.2)
    for _ in range(3):  # each request begins the time anew, though only the first sets a timer
        await wire.answered(GET)
        await wire.loop.move(0.1)
    assert not wire.transport.is_closed
    await wire.loop.move(idle_s)
    await wire.loop.move(30)  # the timer may look late at a connection that is in time
    assert wire.transport.is_closed


async def kept_with_a_closed_gate() -> tuple[Wire, asyncio.Event]:
    """A connection that had an answer and is kept for 0.1 s; the next answer waits for the gate."""
    gate = asyncio.Event()
    wire = Wire(create_answering(gate), idle_seconds_max=0.1, head_seconds_max=0.1)
    gate.set()
    await wire.answered(GET)
    gate.clear()
    return wire, gate


async def test_the_timer_of_an_idle_connection_spares_a_request_that_takes_long() -> None:
    wire, gate = await kept_with_a_closed_gate()
    wire.send(GET)
    await wire.loop.move(0.3)
    assert not wire.transport.is_closed
    gate.set()
    await turns()
    assert (wire.transport.statuses, wire.transport.is_closed) == ([200, 200], False)
    await wire.loop.move(0.3)
    assert wire.transport.is_closed


async def test_the_timer_spares_a_request_that_waited_for_another() -> None:
    wire, gate = await kept_with_a_closed_gate()
    wire.send(GET + GET)
    await asyncio.sleep(0)
    gate.set()
    gate.clear()  # the first is let through, and the second waits
    await turns()
    await wire.loop.move(0.3)
    assert (len(wire.transport.written), wire.transport.is_closed) == (2, False)
    gate.set()
    await turns()
    assert (len(wire.transport.written), wire.transport.is_closed) == (3, False)
    await wire.loop.move(0.3)
    assert wire.transport.is_closed


async def test_an_empty_line_does_not_keep_a_connection_for_ever() -> None:
    wire = Wire(create_answering(), idle_seconds_max=0.1, head_seconds_max=0.1)
    await wire.answered(GET)
    for _ in range(4):
        wire.send(b"\r\n")
        await wire.loop.move(0.05)
    assert wire.transport.is_closed


async def test_a_head_after_a_long_body_is_not_taken_for_a_long_head() -> None:
    wire = Wire(create_answering())
    body = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 199999\r\n\r\n" + 199_999 * b"x"
    wire.send(body + b"GET / HT")
    await turns()
    assert wire.transport.statuses == [200]
    await wire.answered(b"TP/1.1\r\nhost: test\r\n\r\n")
    assert wire.transport.statuses == [200, 200]


async def test_a_head_that_is_too_long_does_not_get_the_answer_of_the_request_before() -> None:
    gate = asyncio.Event()
    wire = Wire(create_answering(gate))
    wire.send(GET + b"GET / HTTP/1.1\r\nlong: ", *[50_000 * b"x"] * 3)
    assert (wire.transport.written, wire.transport.is_closed) == ([], False)
    gate.set()
    await turns()
    assert wire.transport.statuses == [200, 431]
    assert wire.transport.said.count(b"connection: close\r\n") == 1
    assert wire.transport.is_half_closed


async def test_nothing_more_is_read_while_requests_wait_for_one() -> None:
    gate = asyncio.Event()
    wire = Wire(create_answering(gate))
    wire.send(GET * 40)
    gate.set()
    paused: list[bool] = []
    while len(wire.transport.written) < 39:
        paused.append(wire.transport.is_paused)
        await asyncio.sleep(0)
    assert all(paused)
    await turns()
    assert not wire.transport.is_paused
    assert wire.transport.statuses == [200] * 40


async def test_a_client_that_left_with_requests_waiting_is_answered_no_more() -> None:
    gate = asyncio.Event()
    wire = Wire(create_answering(gate))
    wire.send(GET * 3)
    await turns()
    wire.lose()
    assert len(wire.tasks) == 1, "the server waits for what was begun"
    gate.set()
    await turns()
    assert (wire.transport.written, wire.tasks, wire.open) == ([], set(), set())
