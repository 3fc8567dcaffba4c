"""The operations that read the feed: page by page, or as text/event-stream (HTML standard, section 9.2).

A stream has a position in the feed and no queue, so a client that reads slowly holds no memory.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Self

import structlog
from msgspec import Meta

from muniment.protocol.errors import CursorTooOld, InvalidParameter, RateLimited, Refusal, Unavailable, UnknownPath
from muniment.protocol.wire import encode
from muniment.service.context import Context
from muniment.service.http.operation import Answer, operation
from muniment.service.http.paging import link_after
from muniment.service.http.reply import JSON, NO_STORE, Ready, Stream
from muniment.service.http.request import Request, invalid_parameter
from muniment.service.resources.feed.events import CloudEvent, FilterQuery, Position, encode_event
from muniment.service.resources.feed.hub import Hub
from muniment.service.resources.feed.reading import (
    PAGE_UNITS,
    SENT_BYTES_PER_UNIT,
    WALKED_PER_UNIT,
    Slice,
    begin,
    check_position,
    read_slice,
    source_of,
)
from muniment.service.running.limits.costs import FREE, Cost, Shed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from muniment.service.resources.feed.events import EventFilter
    from muniment.service.resources.feed.hub import Piece
    from muniment.service.resources.feed.waiting import Waiter
    from muniment.service.storage.database import Reader

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


# Events of a page: of 441 bytes, at most a fifth of a megabyte.
LIMIT_MAX: Final = 500
LIMIT_DEFAULT: Final = 100
# By default proxies time out an answer that does not begin within 60 seconds; some within 30.
WAIT_SECONDS_MAX: Final = 30
_COST: Final = Cost(PAGE_UNITS, sent_bytes_per_unit=SENT_BYTES_PER_UNIT)
# A millisecond: the first piece may scan 2,048 events in memory.
_STREAM_UNITS: Final = 40
_STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    NO_STORE,
    # nginx must pass each piece on without a buffer.
    (b"x-accel-buffering", b"no"),
)


class EventQuery(FilterQuery, frozen=True):
    """Filters, a cursor to begin after, and the size of the page."""

    cursor: Position | None = None
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Events in a page")] = LIMIT_DEFAULT
    wait: Annotated[
        int, Meta(ge=0, le=WAIT_SECONDS_MAX, description="Seconds to wait for an event if the page would be empty")
    ] = 0

    refuses_with: ClassVar[tuple[type[Refusal], ...]] = (CursorTooOld,)


@operation(
    "GET", "/events", cost=_COST, sheds=Shed.PAGE, refuses=(UnknownPath,),
    answers={
        200: Answer(
            "Events after the cursor, in order",
            headers={
                "link": "The next page; always present",
                "x-caught-up": "`true` when there is no later event yet",
            },
        )
    },
)  # fmt: skip
async def list_events(context: Context, hub: Hub, request: Request, query: EventQuery) -> Ready[list[CloudEvent]]:
    """Read the change feed.

    Without a `cursor` the page is empty, and its `next` link leads to new events. These links with the same filters
    return each matching event once, in order. A page may have fewer events than its limit, or none, although more
    follow: see `x-caught-up`. With `wait` an empty page is sent only after this time without an event.
    `cursor-too-old`: events after the cursor have been pruned. Restart without a cursor, list again, then continue.
    """
    _require_feed(context)
    reader = context.list_reader()
    # Without a cursor the client lists everything next, so the epoch must not be an old one.
    source = await source_of(context, reader, is_fresh=query.cursor is None)
    if query.cursor is None:
        found = Slice([], await begin(context, reader), is_caught_up=True)
    else:
        await check_position(context, reader, query.cursor)
        found = await _read(context, reader, hub, request, query, query.cursor)
    events = b",".join([encode_event(event, source) for event in found.events])
    position = Position.at(source.epoch, found.last_seq)
    caught_up = b"true" if found.is_caught_up else b"false"
    link = link_after(request.query, position.encode())
    return Ready(b"[%b]" % events, (JSON, link, (b"x-caught-up", caught_up), NO_STORE))


async def _read(
    context: Context, reader: Reader, hub: Hub, request: Request, query: EventQuery, cursor: Position
) -> Slice:
    """The page after the cursor, after the wait that the client asked for. Raises `CursorTooOld`."""
    wanted = query.chosen()
    found = await read_slice(reader, cursor.seq, wanted, query.limit)
    request.due_units += found.walked // WALKED_PER_UNIT
    if query.wait and found.is_caught_up and not found.events:
        await hub.wait_after(request, found.last_seq, wanted, query.wait)
        await check_position(context, context.database, cursor)  # another epoch may have begun
        # Not from a replica, which may be behind the hub.
        found = await read_slice(context.database, found.last_seq, wanted, query.limit)
        request.due_units += found.walked // WALKED_PER_UNIT
    return found


def _require_feed(context: Context) -> None:
    """Raise `UnknownPath` when the operator has switched the feed off."""
    if context.settings.feed == "off":
        raise UnknownPath("this service has no change feed; listings with sort=1 show new rows")


class Opening:
    """The request for a stream, charged before its parameters are read.

    A stream over a limit also gets status 200: an `EventSource` never comes back after another status.
    """

    def __init__(self, *, is_refused: bool) -> None:
        """`is_refused`: the client is over its rate limit, or the process is overloaded."""
        self.is_refused = is_refused

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """Charge the request."""
        try:
            request.charge(request.client.client, _STREAM_UNITS)
        except RateLimited:
            return cls(is_refused=True)
        return cls(is_refused=request.overload is not None and request.overload.refuses(Shed.MIDDLE))


class StreamQuery(FilterQuery, frozen=True):
    """Filters, and a cursor to begin after."""

    cursor: Position | None = None


@operation(
    "GET", "/events/stream", cost=FREE, sheds=Shed.NEVER, refuses=(UnknownPath, InvalidParameter),
    headers_read={"last-event-id": "Used in place of `cursor`; an `EventSource` sends it by itself"},
    answers={
        200: Answer(
            "Events in order, until either side ends the stream", ("text/event-stream",),
            headers={"x-accel-buffering": "`no`: proxies pass each piece on"},
        )
    },
)  # fmt: skip
async def stream_events(opening: Opening, context: Context, hub: Hub, request: Request, query: StreamQuery) -> Stream:
    """Follow the change feed by server-sent events.

    Each event has its position as `id` and the event of `GET /events` as `data`. Without `Last-Event-ID` and `cursor`
    the stream has new events only. First, and after 15 seconds without an event, it sends its position as an `id`
    without `data`: clients ignore it as an event and keep it as their position. If the events after a position have
    been pruned, an event of the type `reset` reports it, and the stream continues with new events. Over a limit, and
    when the service stops, the stream ends at once with the `retry` after which to come back.
    """
    _require_feed(context)
    position = _last_event(request) or query.cursor
    stream = Follower(hub, request, position, query.chosen(), is_refused=opening.is_refused)
    return Stream(stream.texts(), _STREAM_HEADERS, on_abort=stream.note_abort)


def _last_event(request: Request) -> Position | None:
    """The position of an `EventSource` that lost its connection (HTML standard, section 9.2.4)."""
    given = request.header(b"last-event-id")
    try:
        return Position.parse(given) if given else None
    except InvalidParameter as refusal:
        raise invalid_parameter("last-event-id", "is not a position of this service") from refusal


OPERATIONS = (list_events, stream_events)
