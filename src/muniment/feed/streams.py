"""A stream of events, as text/event-stream (HTML standard, section 9.2: server-sent events).

A stream has a place in the feed and no queue: a client that reads slowly is further behind, and holds no memory.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from muniment.errors import CursorTooOld, Unavailable
from muniment.feed.position import Position
from muniment.feed.reading import PAGE_UNITS, SENT_BYTES_PER_UNIT, WALKED_PER_UNIT, begin, check_position
from muniment.wire import encode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from muniment.feed.filters import EventFilter
    from muniment.feed.followers import Follower
    from muniment.feed.hub import Hub
    from muniment.feed.recent import Piece
    from muniment.http.request import Request

# Milliseconds that a client waits before it connects again, from a range by chance: many clients must not come back at
# the same moment.
_RETRY_MS: Final = (2_000, 4_000)
_RETRY_STOPPED_MS: Final = (2_000, 10_000)
_RETRY_FULL_MS: Final = (20_000, 40_000)
_FULL: Final = b": too many streams, see the settings feed_streams_max and feed_streams_per_client_max\n"
_BUSY: Final = b": over the rate limit, or the service is overloaded\n"
_RESET: Final = (
    "events behind this position are no longer kept, or the registry was restored or moved. This stream goes on with "
    "what happens from now on: list what you follow (GET /triggers, /functions, /intents)"
)

_access = structlog.get_logger("muniment.access")


class EventStream:
    """One stream."""

    def __init__(
        self, hub: Hub, request: Request, position: Position | None, wanted: EventFilter, *, is_refused: bool
    ) -> None:
        """Send what `wanted` matches behind `position`; None: what happens from now on.

        `is_refused`: only say when to come back.
        """
        self._hub = hub
        self._is_refused = is_refused
        self._context = hub.context
        self._request = request
        self._client = hub.context.client(request)
        self._position = position
        self._wanted = wanted
        # The number up to which everything was sent, and its epoch; None before the first text.
        self._seq = 0
        self._epoch: int | None = None
        self._sent = 0
        self._is_aborted = False

    def note_abort(self) -> None:
        """Note that the server aborts the client, because it does not read."""
        self._is_aborted = True
        self._hub.aborted.add()

    async def texts(self) -> AsyncGenerator[bytes]:
        """The body. Its last text says when to connect again."""
        if self._is_refused:
            yield _BUSY + self._retry(_RETRY_FULL_MS)
            return
        with self._hub.following(self._request, self._wanted) as follower:
            if follower is None:
                yield self._retry(_RETRY_STOPPED_MS) if self._hub.is_stopping else _FULL + self._retry(_RETRY_FULL_MS)
                return
            loop = asyncio.get_running_loop()
            begun_s = loop.time()
            try:
                with suppress(Unavailable):  # the head was sent, and an EventSource comes back only after a 200
                    while not follower.is_ended:
                        if text := self._take() or await self._look(follower):
                            follower.wrote_s = loop.time()
                            yield text
                yield self._retry(_RETRY_STOPPED_MS)
            finally:
                self._log_end(loop.time() - begun_s)

    def _take(self) -> bytes:
        """The next events, as far as the hub has them in memory. Thousands of streams do this for each event."""
        recent = self._hub.recent
        if self._epoch != recent.epoch or (piece := recent.take(self._seq, self._wanted)) is None:
            return b""
        self._seq = piece.last_seq
        if piece.text:
            self._count(piece)
        return piece.text

    async def _look(self, follower: Follower) -> bytes:
        """The next text of another kind; empty after a wait, or after a page without one.

        A stream that reads pages shows its place too, when it has sent nothing for long.
        """
        recent = self._hub.recent
        if self._epoch is None or self._epoch != recent.epoch:
            return await self._begin()
        if asyncio.get_running_loop().time() - follower.wrote_s >= self._hub.beat_seconds:
            return b"id: %b\n\n" % self._place()
        if self._seq >= recent.begin_seq:
            await follower.wait()
            return b""
        if wait_ns := self._request.client.client.wait_ns(PAGE_UNITS):
            with suppress(TimeoutError):  # the client has used up its limit: it goes on when it has paid its pages
                async with asyncio.timeout(wait_ns / 1e9):
                    await follower.wait()
            return b""
        return await self._read_page()

    async def _read_page(self) -> bytes:
        """The next page, which is read for this stream alone; its client owes for it what GET /events charges."""
        owed = PAGE_UNITS
        try:
            piece = await self._hub.read_page(self._request.client.name, self._seq, self._wanted)
            owed += piece.walked // WALKED_PER_UNIT + len(piece.text) // SENT_BYTES_PER_UNIT
        except CursorTooOld:
            return await self._reset()
        finally:
            self._request.owe(self._request.client.client, owed)
        self._seq = piece.last_seq
        self._count(piece)
        return piece.text

    def _count(self, piece: Piece) -> None:
        self._sent += piece.events
        self._hub.sent.add(piece.events)
        if piece.events and self._context.wrote is not None:
            self._context.wrote(self._client)  # what the client reads next must not be older than these events

    async def _begin(self) -> bytes:
        """The first text: the place from which the stream goes on."""
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
        return b"%bid: %b\n\n" % (self._retry(_RETRY_MS)[:-1], self._place())

    async def _reset(self) -> bytes:
        """Go on from now, and say that events are missing before."""
        self._seq = await begin(self._context, self._context.database)
        data = encode({"code": CursorTooOld.code, "detail": _RESET})
        return b"%bevent: reset\nid: %b\ndata: %b\n\n" % (self._retry(_RETRY_MS)[:-1], self._place(), data)

    def _place(self) -> bytes:
        return Position.at(self._epoch or 0, self._seq).encode()

    def _retry(self, milliseconds: tuple[int, int]) -> bytes:
        low, high = milliseconds
        return b"retry: %d\n\n" % (low + self._hub.chance() * (high - low))

    def _log_end(self, seconds: float) -> None:
        """Write the second line of the log; the first one told that the request was answered."""
        if self._context.settings.log_requests == "all":
            _access.info(
                "stream ended", request_id=self._request.id, client=self._request.client.name,
                seconds=round(seconds, 2), events=self._sent, is_aborted=self._is_aborted,
            )  # fmt: skip
