"""The operations that read the feed: page by page, or as server-sent events."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Self

from msgspec import Meta

from muniment.protocol.errors import CursorTooOld, InvalidParameter, RateLimited, Refusal, UnknownPath
from muniment.service.context import Context
from muniment.service.http.operation import Answer, operation
from muniment.service.http.paging import link_after
from muniment.service.http.reply import JSON, NO_STORE, Ready, Stream
from muniment.service.http.request import Request, invalid_parameter
from muniment.service.resources.feed.events import CloudEvent, Position, encode_event
from muniment.service.resources.feed.filters import FilterQuery
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
from muniment.service.resources.feed.streams import Follower
from muniment.service.running.limits.costs import FREE, Cost, Shed

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
    reader = context.reader_for(request)
    # Without a cursor the client lists everything next, so the epoch must not be an old one.
    source = await source_of(context, reader, is_fresh=query.cursor is None)
    if query.cursor is None:
        found = Slice([], await begin(context, reader), is_caught_up=True)
    else:
        await check_position(context, reader, query.cursor)
        found = await _read(context, hub, request, query, query.cursor)
    events = b",".join([encode_event(event, source) for event in found.events])
    position = Position.at(source.epoch, found.last_seq)
    caught_up = b"true" if found.is_caught_up else b"false"
    link = link_after("/events", request.query, position.encode())
    return Ready(b"[%b]" % events, (JSON, link, (b"x-caught-up", caught_up), NO_STORE))


async def _read(context: Context, hub: Hub, request: Request, query: EventQuery, cursor: Position) -> Slice:
    """The page after the cursor, after the wait that the client asked for. Raises `CursorTooOld`."""
    wanted = query.chosen()
    found = await read_slice(context.reader_for(request), cursor.seq, wanted, query.limit)
    request.due_units += found.walked // WALKED_PER_UNIT
    if query.wait and found.is_caught_up and not found.events:
        await hub.wait_after(request, found.last_seq, wanted, query.wait)
        await check_position(context, context.database, cursor)  # another epoch may have begun
        # Not from a replica, which may be behind the hub.
        found = await read_slice(context.database, found.last_seq, wanted, query.limit)
        request.due_units += found.walked // WALKED_PER_UNIT
    if found.events and context.wrote is not None:
        context.wrote(context.client(request))  # what the client reads next must not be older than these events
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
        raise invalid_parameter("last-event-id", "is no position of this service") from refusal


OPERATIONS = (list_events, stream_events)
