"""Answers without an end: when their generators end, and how long their clients may not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from wires import GET, Answers, Wire, turns

from muniment.service.http.reply import Reply, Stream
from muniment.service.http.request import Request
from muniment.service.server.sending import DRAIN_SECONDS_MAX, STREAM_SECONDS_AT_STOP, STREAM_SECONDS_MAX


class Endless(Answers):
    """An application whose answer is one piece for each call of `send`."""

    def __init__(self) -> None:
        super().__init__(self._stream)
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended = 0
        self.aborted = 0

    async def _stream(self, _: Request) -> Reply:
        return Stream(self._chunks(), ((b"content-type", b"text/event-stream"),), on_abort=self._note)

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            while piece := await self.pieces.get():
                yield piece
        finally:
            self.ended += 1

    def _note(self) -> None:
        self.aborted += 1


async def streaming(endless: Endless) -> Wire:
    wire = Wire(endless)
    wire.send(GET)
    await turns()
    assert b"connection: close\r\n" in wire.transport.said
    return wire


async def stalled(endless: Endless) -> Wire:
    """A stream whose client does not read its first piece."""
    wire = await streaming(endless)
    wire.transport.is_stuck = True
    endless.pieces.put_nowait(b"x" * 1_000)
    await turns()
    wire.connection.pause_writing()
    return wire


async def test_each_piece_leaves_when_it_is_made() -> None:
    endless = Endless()
    wire = await streaming(endless)
    for piece in (b"one", b"two"):
        endless.pieces.put_nowait(piece)
        await turns()
        assert wire.transport.said.endswith(b"3\r\n%b\r\n" % piece)


async def test_the_end_of_a_stream_ends_its_connection() -> None:
    endless = Endless()
    wire = await streaming(endless)
    endless.pieces.put_nowait(b"")
    await turns()
    assert wire.transport.said.endswith(b"\r\n0\r\n\r\n")
    assert (endless.ended, wire.transport.is_closed, wire.transport.is_aborted) == (1, True, False)


async def test_a_client_that_goes_away_ends_the_generator_while_it_waits() -> None:
    endless = Endless()
    wire = await streaming(endless)
    wire.lose()
    await turns()
    assert (endless.ended, endless.aborted) == (1, 0)
    assert all(task.done() for task in wire.tasks)


async def test_a_client_that_closes_its_half_wants_no_more_of_a_stream() -> None:
    wire = await streaming(Endless())
    assert not wire.connection.eof_received(), "the transport closes itself"


async def test_a_client_has_a_minute_to_read_anything() -> None:
    endless = Endless()
    wire = await stalled(endless)
    assert STREAM_SECONDS_MAX > DRAIN_SECONDS_MAX
    await wire.loop.move(STREAM_SECONDS_MAX - 2)
    wire.transport.sent_bytes += 1  # a byte is progress
    await wire.loop.move(STREAM_SECONDS_MAX - 2)
    assert not wire.transport.is_aborted
    await wire.loop.move(5)
    assert wire.transport.is_aborted
    assert endless.aborted == 1


async def test_at_the_stop_a_stream_that_nobody_reads_is_aborted_soon() -> None:
    wire = await stalled(Endless())
    wire.connection.shutdown()
    await wire.loop.move(STREAM_SECONDS_AT_STOP / 2)
    assert not wire.transport.is_aborted
    await wire.loop.move(STREAM_SECONDS_AT_STOP)
    assert wire.transport.is_aborted
