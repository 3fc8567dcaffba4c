"""A connection that is kept alive: how long it may be idle, and what comes behind a request."""

from __future__ import annotations

import asyncio

import pytest
from wires import Clock, Transport, answered, create_answering, protocol, turns

from muniment.cli.connections import BoundedHeads


@pytest.mark.parametrize("idle_s", [0.05, 0.4], ids=["short", "long"])
async def test_an_idle_connection_is_closed_after_the_time_and_not_before(idle_s: float) -> None:
    made, transport = protocol(create_answering())
    vars(made).update(timeout_keep_alive=0.2, loop=(clock := Clock()))
    for _ in range(3):  # each request begins the time anew, though only the first sets a timer
        await answered(made, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        await clock.move(0.1)
    assert not transport.is_closed
    await clock.move(idle_s)
    assert transport.is_closed == (idle_s > 0.2)
    made.connection_lost(None)


async def kept_with_a_closed_gate() -> tuple[BoundedHeads, Transport, asyncio.Event, Clock]:
    """A connection that had an answer and is kept for 0.1 s; the next answer waits for the gate."""
    gate = asyncio.Event()
    made, transport = protocol(create_answering(gate))
    vars(made).update(timeout_keep_alive=0.1, loop=(clock := Clock()))
    gate.set()
    await answered(made, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
    gate.clear()
    return made, transport, gate, clock


async def test_the_timer_of_an_idle_connection_spares_a_request_that_takes_long() -> None:
    made, transport, gate, clock = await kept_with_a_closed_gate()
    made.data_received(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
    await clock.move(0.3)
    assert not transport.is_closed
    gate.set()
    await turns()
    assert made.cycle.response_complete
    assert not transport.is_closed
    await clock.move(0.3)
    assert transport.is_closed


async def test_the_timer_spares_a_request_that_waited_behind_another() -> None:
    made, transport, gate, clock = await kept_with_a_closed_gate()
    made.data_received(2 * b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
    await asyncio.sleep(0)
    gate.set()
    await asyncio.sleep(0)
    gate.clear()  # the first is let through, and the second waits
    await clock.move(0.3)
    assert (len(transport.written), transport.is_closed) == (2, False)
    gate.set()
    await turns()
    assert (len(transport.written), transport.is_closed) == (3, False)
    await clock.move(0.3)
    assert transport.is_closed


@pytest.mark.parametrize(
    ("request_", "more"),
    [
        (b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\n", b"12345"),
        (b"GET / HTTP/1.1\r\nhost: test\r\n\r\n", b"\r\n"),
    ],
    ids=["a body that nobody waited for", "an empty line"],
)
async def test_what_begins_no_request_does_not_keep_a_connection_for_ever(request_: bytes, more: bytes) -> None:
    made, transport = protocol(create_answering())
    vars(made).update(timeout_keep_alive=0.1, loop=(clock := Clock()))
    await answered(made, request_)
    made.data_received(more)
    await clock.move(0.05)
    assert not transport.is_closed
    await clock.move(0.2)
    assert transport.is_closed


async def test_a_connection_has_one_timer_also_when_bodies_are_not_read() -> None:
    made, _ = protocol(create_answering())
    timers: list[asyncio.TimerHandle | None] = []
    for _ in range(3):  # more than uvicorn keeps before it stops reading
        await answered(made, b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 99999\r\n\r\n" + 99_999 * b"x")
        timers.append(made.timeout_keep_alive_task)
    assert [timer is not None and timer.cancelled() for timer in timers] == [True, True, False]
    made.connection_lost(None)


async def test_a_head_behind_a_long_body_is_not_taken_for_a_long_head() -> None:
    made, transport = protocol(create_answering())
    made.data_received(
        b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 199999\r\n\r\n" + 199_999 * b"x" + b"GET / HT"
    )
    await turns()
    assert [line[:12] for line in transport.written] == [b"HTTP/1.1 200"]
    made.data_received(b"TP/1.1\r\nhost: test\r\n\r\n")
    await turns()
    assert [line[:12] for line in transport.written] == 2 * [b"HTTP/1.1 200"]
    made.connection_lost(None)


async def test_a_head_that_is_too_long_does_not_get_the_answer_of_the_request_before() -> None:
    gate = asyncio.Event()
    made, transport = protocol(create_answering(gate))
    made.data_received(b"GET / HTTP/1.1\r\nhost: test\r\n\r\nGET / HTTP/1.1\r\nlong: ")
    for _ in range(3):
        made.data_received(50_000 * b"x")
    assert (transport.written, transport.is_closed) == ([], False)
    gate.set()
    await turns()
    assert transport.is_closed
    said = b"".join(transport.written)
    assert said.startswith(b"HTTP/1.1 200")
    assert said.count(b"HTTP/1.1") == 1
    assert b"connection: close\r\n" in said
    made.connection_lost(None)


async def test_nothing_more_is_read_while_requests_wait_behind_one() -> None:
    gate = asyncio.Event()
    made, transport = protocol(create_answering(gate))
    made.data_received(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n" * 40)
    gate.set()
    paused: list[bool] = []
    while len(transport.written) < 40:
        paused.append(transport.is_paused)
        await asyncio.sleep(0)
    assert all(paused)
    await turns()
    assert not transport.is_paused
    made.connection_lost(None)


async def test_a_client_that_left_with_requests_waiting_is_answered_no_more() -> None:
    gate = asyncio.Event()
    made, transport = protocol(create_answering(gate))
    made.data_received(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n" * 3)
    await turns()
    made.connection_lost(None)
    gate.set()
    await turns()
    assert transport.written == []
