"""Clients that do not read: what they owe in time, and how much memory they take together."""

from __future__ import annotations

from collections.abc import AsyncIterator

from wires import GET, Answers, Wire, create_answering, shared, turns

from muniment.service.http.reply import JSON, Ready, Reply, Streamed
from muniment.service.http.request import Request
from muniment.service.server.sending import DRAIN_SECONDS_MAX, DRAINED_BYTES_MIN, UnreadAnswers

SLICE = 64 * 1024


def streaming(count: int) -> Answers:
    async def slices() -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * SLICE

    async def respond(_: Request) -> Reply:
        return Streamed(slices(), (JSON,))

    return Answers(respond)


async def stuck(wire: Wire) -> Wire:
    """The client of `wire` asks, and reads nothing."""
    wire.transport.is_stuck = True
    write = wire.transport.write

    def written(data: bytes) -> None:
        write(data)
        if wire.transport.get_write_buffer_size() > SLICE:
            wire.connection.pause_writing()

    wire.transport.write = written
    wire.send(GET)
    await turns()
    return wire


async def test_no_more_of_an_answer_is_made_than_the_client_reads() -> None:
    wire = await stuck(Wire(streaming(100)))
    assert wire.transport.get_write_buffer_size() < 3 * SLICE
    wire.transport.is_stuck, wire.transport.sent_bytes = False, len(wire.transport.said)
    wire.connection.resume_writing()
    await turns(500)
    assert wire.transport.said.endswith(b"\r\n0\r\n\r\n")


async def test_a_client_that_stands_still_is_aborted_in_time() -> None:
    wire = Wire(streaming(100))
    await stuck(wire)
    await wire.loop.move(DRAIN_SECONDS_MAX - 1)
    assert not wire.transport.is_aborted
    await wire.loop.move(3)
    assert wire.transport.is_aborted


async def test_a_client_that_drains_enough_goes_on() -> None:
    wire = Wire(streaming(100))
    wire.transport.is_stuck = True
    wire.transport.write(b"x" * 10 * DRAINED_BYTES_MIN)  # as if one piece were long
    await stuck(wire)
    for _ in range(8):
        await wire.loop.move(DRAIN_SECONDS_MAX - 2)
        wire.transport.sent_bytes += DRAINED_BYTES_MIN
    assert not wire.transport.is_aborted
    await wire.loop.move(2 * DRAIN_SECONDS_MAX)
    assert wire.transport.is_aborted


async def test_a_closed_connection_whose_answer_is_not_read_is_aborted_too() -> None:
    wire = Wire(create_answering())
    wire.transport.is_stuck = True
    wire.send(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    await turns()
    assert (wire.transport.is_closed, wire.transport.is_aborted) == (True, False)
    await wire.loop.move(DRAIN_SECONDS_MAX + 2)
    assert wire.transport.is_aborted


async def test_an_idle_connection_with_bytes_unread_is_aborted() -> None:
    wire = Wire(create_answering(), idle_seconds_max=1)
    wire.transport.is_stuck = True
    wire.send(GET)
    await turns()
    await wire.loop.move(60)
    assert wire.transport.is_aborted


async def test_when_memory_is_short_connections_of_the_largest_client_are_aborted() -> None:
    together = shared(streaming(100), unread=UnreadAnswers(bytes_max=16 * SLICE))
    honest = await stuck(Wire(None, shared=together, peer="192.0.2.1"))
    greedy = [await stuck(Wire(None, shared=together, peer="192.0.2.2")) for _ in range(20)]
    assert not honest.transport.is_aborted
    aborted = [wire.transport.is_aborted for wire in greedy]
    assert aborted == sorted(aborted, reverse=True)
    held = sum(wire.transport.get_write_buffer_size() for wire in [honest, *greedy] if not wire.transport.is_aborted)
    assert 8 * SLICE < held <= 16 * SLICE


async def test_short_answers_are_not_refused_while_memory_is_short() -> None:
    together = shared(streaming(100), unread=UnreadAnswers(bytes_max=2 * SLICE))
    for _ in range(3):
        await stuck(Wire(None, shared=together, peer="192.0.2.2"))

    async def respond(_: Request) -> Reply:
        return Ready(b"x" * SLICE)

    together.application = Answers(respond)
    wire = Wire(None, shared=together)
    await wire.answered(GET)
    assert wire.transport.statuses == [200]


async def test_memory_is_given_back_once_when_a_crowd_has_gone() -> None:
    given: list[None] = []
    together = shared(streaming(1_000), unread=UnreadAnswers(give_back=lambda: given.append(None)))
    crowd = [await stuck(Wire(None, shared=together, peer=f"192.0.2.{n % 9}")) for n in range(600)]
    loop = crowd[0].loop
    assert sum(wire.transport.get_write_buffer_size() for wire in crowd) > 32 * 1024 * 1024
    await loop.move(5)
    assert given == []
    await loop.move(DRAIN_SECONDS_MAX)
    await loop.move(10)
    assert given == [None]
