"""Streams of events as text/event-stream (HTML standard, section 9.2: server-sent events).

A stream has a position in the feed and no queue, so a client that reads slowly holds no memory.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from muniment.protocol.errors import CursorTooOld, Unavailable
from muniment.protocol.wire import encode
from muniment.service.resources.feed.events import Position
from muniment.service.resources.feed.reading import (
    PAGE_UNITS,
    SENT_BYTES_PER_UNIT,
    WALKED_PER_UNIT,
    begin,
    check_position,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from muniment.service.http.request import Request
    from muniment.service.resources.feed.filters import EventFilter
    from muniment.service.resources.feed.hub import Hub, Piece
    from muniment.service.resources.feed.waiting import Waiter

# Milliseconds before a client connects again, by chance in a range: many clients must not come back together.
_RETRY_MS: Final = (2_000, 4_000)
_RETRY_STOPPED_MS: Final = (2_000, 10_000)
_RETRY_FULL_MS: Final = (20_000, 40_000)
_FULL: Final = b": too many streams, see the settings feed_streams_max and feed_streams_per_client_max\n"
_BUSY: Final = b": over the rate limit, or the service is overloaded\n"
_RESET: Final = (
    "Events after the cursor have been pruned, or the registry was restored or moved. This stream continues with new "
    "events: list what you follow again (GET /triggers, /functions, /intents)."
)

_access = structlog.get_logger("muniment.access")


class Follower:
    """A stream: its position in the feed, its heartbeats, and its reset."""

    def __init__(
        self, hub: Hub, request: Request, position: Position | None, wanted: EventFilter, *, is_refused: bool
    ) -> None:
        """Send the events after `position` that `wanted` matches; None: new events only.

        `is_refused`: send only when to come back.
        """
        self._hub = hub
        self._is_refused = is_refused
        self._context = hub.context
        self._request = request
        self._client = hub.context.client(request)
        self._position = position
        self._wanted = wanted
        # The number up to which everything was sent, and its epoch; None before the first piece.
        self._seq = 0
        self._epoch: int | None = None
        self._sent = 0
        self._is_aborted = False

    def note_abort(self) -> None:
        """Note that the server aborts the response, because the client does not read."""
        self._is_aborted = True
        self._hub.aborted.add()

    async def texts(self) -> AsyncGenerator[bytes]:
        """The body. Its last text tells the client when to connect again."""
        if self._is_refused:
            yield _BUSY + self._retry(_RETRY_FULL_MS)
            return
        with self._hub.following(self._request, self._wanted) as waiter:
            if waiter is None:
                yield self._retry(_RETRY_STOPPED_MS) if self._hub.is_stopping else _FULL + self._retry(_RETRY_FULL_MS)
                return
            loop = asyncio.get_running_loop()
            begun_s = loop.time()
            try:
                with suppress(Unavailable):  # the head was sent, and an EventSource comes back only after a 200
                    while text := await self.next_piece(waiter):
                        yield text
                yield self._retry(_RETRY_STOPPED_MS)
            finally:
                self._log_end(loop.time() - begun_s)

    async def next_piece(self, waiter: Waiter) -> bytes:
        """The next text: events, a heartbeat, or a reset; empty when the stream must end.

        Events in the memory of the hub come first: thousands of streams take them for each event. A stream before them
        reads pages.
        """
        text, recent = b"", self._hub.recent
        while not (text or waiter.is_ended):
            if self._epoch is None or self._epoch != recent.epoch:
                text = await self._begin()
            elif (piece := recent.take(self._seq, self._wanted)) is not None:
                text = self._passed(piece) or self._heartbeat(waiter)
                if not text:
                    await waiter.wait()
            else:
                text = self._heartbeat(waiter) or await self._read_page(waiter)
        waiter.wrote_s = asyncio.get_running_loop().time()
        return text

    def _heartbeat(self, waiter: Waiter) -> bytes:
        """The position of the stream, if nothing was sent for long."""
        is_due = asyncio.get_running_loop().time() - waiter.wrote_s >= self._hub.heartbeat_seconds
        return b"id: %b\n\n" % self._position_text() if is_due else b""

    async def _read_page(self, waiter: Waiter) -> bytes:
        """A page for this stream alone; its client pays for it as for GET /events, and waits while it owes."""
        limited = self._request.client.client
        if wait_ns := limited.wait_ns(PAGE_UNITS):
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ns / 1e9):
                    await waiter.wait()
            return b""
        owed = PAGE_UNITS
        try:
            piece = await self._hub.read_page(self._request.client.name, self._seq, self._wanted)
            owed += piece.walked // WALKED_PER_UNIT + len(piece.text) // SENT_BYTES_PER_UNIT
        except CursorTooOld:
            return await self._reset()
        finally:
            self._request.owe(limited, owed)
        return self._passed(piece)

    def _passed(self, piece: Piece) -> bytes:
        """The text of a piece, after which the stream continues."""
        self._seq = piece.last_seq
        if piece.events:
            self._sent += piece.events
            self._hub.sent.add(piece.events)
            if self._context.wrote is not None:
                self._context.wrote(self._client)  # what the client reads next must not be older than these events
        return piece.text

    async def _begin(self) -> bytes:
        """The first text: the position from which the stream continues."""
        await self._hub.awake()
        context = self._context
        position = self._position if self._epoch is None else Position.at(self._epoch, self._seq)
        self._epoch = self._hub.recent.epoch
        if position is None:
            self._seq = await begin(context, context.database)
        else:
            try:
                await check_position(context, context.database, position)
            except CursorTooOld:
                return await self._reset()
            self._seq = position.seq
        return b"%bid: %b\n\n" % (self._retry(_RETRY_MS)[:-1], self._position_text())

    async def _reset(self) -> bytes:
        """Continue with new events, and report that events are missing before."""
        self._seq = await begin(self._context, self._context.database)
        data = encode({"code": CursorTooOld.code, "detail": _RESET})
        return b"%bevent: reset\nid: %b\ndata: %b\n\n" % (self._retry(_RETRY_MS)[:-1], self._position_text(), data)

    def _position_text(self) -> bytes:
        return Position.at(self._epoch or 0, self._seq).encode()

    def _retry(self, milliseconds: tuple[int, int]) -> bytes:
        low, high = milliseconds
        return b"retry: %d\n\n" % (low + self._hub.chance() * (high - low))

    def _log_end(self, seconds: float) -> None:
        """Log the end of the stream; the first line of the log is that of the request."""
        if self._context.settings.log_requests == "all":
            _access.info(
                "stream ended", request_id=self._request.id, client=self._request.client.name,
                seconds=round(seconds, 2), events=self._sent, is_aborted=self._is_aborted,
            )  # fmt: skip
