"""The operation that follows the feed by server-sent events."""

from __future__ import annotations

from typing import Final, Self

from muniment.context import Context
from muniment.errors import InvalidParameter, RateLimited, UnknownPath
from muniment.feed.filters import FilterQuery
from muniment.feed.hub import Hub
from muniment.feed.position import Position
from muniment.feed.routes import require_feed
from muniment.feed.streams import EventStream
from muniment.http.operation import Answer, operation
from muniment.http.reply import NO_STORE, Stream
from muniment.http.request import Request, invalid_parameter
from muniment.limits.costs import FREE, Shed

# A millisecond: the beginning looks for the place and makes the first piece, which may walk over 2,048 events.
_UNITS: Final = 40
_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    NO_STORE,
    # nginx passes each piece on, and keeps no backlog of a slow client.
    (b"x-accel-buffering", b"no"),
)


class Opening:
    """The request for a stream, charged before its parameters are read.

    A refusal by a limit is no status of its own: an `EventSource` never comes back after another status than 200.
    """

    def __init__(self, *, is_refused: bool) -> None:
        """`is_refused`: the client is over its rate limit, or the process is overloaded."""
        self.is_refused = is_refused

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """Charge the request."""
        try:
            request.charge(request.client.client, _UNITS)
        except RateLimited:
            return cls(is_refused=True)
        return cls(is_refused=request.overload is not None and request.overload.refuses(Shed.MIDDLE))


class StreamQuery(FilterQuery, frozen=True):
    """Which events, and from where."""

    cursor: Position | None = None


@operation(
    "GET", "/events/stream", cost=FREE, sheds=Shed.NEVER, refuses=(UnknownPath, InvalidParameter),
    headers_read={"last-event-id": "Where to go on, in place of `cursor`; an `EventSource` sends it by itself"},
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
    the stream begins with what happens from now on. It first says where it goes on, and every 15 seconds up to where
    it has looked: by an `id` without `data`, which clients ignore as an event and keep as their place. A place that is
    too old is no error: an event of the type `reset` says so, and the stream goes on from now. Over a limit, and when
    the service stops, the stream ends at once and `retry` says when to come back.
    """
    require_feed(context)
    position = _last_event(request) or query.cursor
    stream = EventStream(hub, request, position, query.chosen(), is_refused=opening.is_refused)
    return Stream(stream.texts(), _HEADERS, on_abort=stream.note_abort)


def _last_event(request: Request) -> Position | None:
    """The place at which an `EventSource` was cut off (HTML standard, section 9.2.4). Raises `InvalidParameter`."""
    given = request.header(b"last-event-id")
    try:
        return Position.parse(given) if given else None
    except InvalidParameter as refusal:
        raise invalid_parameter("last-event-id", "is no position of this service") from refusal


OPERATIONS = (stream_events,)
