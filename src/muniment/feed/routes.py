"""The operation that reads the feed page by page."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from muniment.context import Context
from muniment.errors import CursorTooOld, Refusal, UnknownPath
from muniment.feed.events import CloudEvent, encode_event
from muniment.feed.filters import FilterQuery
from muniment.feed.hub import Hub
from muniment.feed.position import Position
from muniment.feed.reading import (
    PAGE_UNITS,
    SENT_BYTES_PER_UNIT,
    WALKED_PER_UNIT,
    Slice,
    begin,
    check_position,
    read_slice,
    source_of,
)
from muniment.http.operation import Answer, operation
from muniment.http.paging import link_after
from muniment.http.reply import JSON, NO_STORE, Ready
from muniment.http.request import Request
from muniment.limits.costs import Cost, Shed

# Events of a page: 441 bytes each, so at most a fifth of a megabyte.
LIMIT_MAX: Final = 500
LIMIT_DEFAULT: Final = 100
# Proxies end an answer that does not begin within 60 seconds, unless they are told otherwise; some after 30.
WAIT_SECONDS_MAX: Final = 30
_COST: Final = Cost(PAGE_UNITS, sent_bytes_per_unit=SENT_BYTES_PER_UNIT)


class EventQuery(FilterQuery, frozen=True):
    """Which events, and from where."""

    cursor: Position | None = None
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Events in a page")] = LIMIT_DEFAULT
    wait: Annotated[
        int, Meta(ge=0, le=WAIT_SECONDS_MAX, description="Seconds to wait for an event when there is none yet")
    ] = 0

    refuses_with: ClassVar[tuple[type[Refusal], ...]] = (CursorTooOld,)


@operation(
    "GET", "/events", cost=_COST, sheds=Shed.PAGE, refuses=(UnknownPath,),
    answers={
        200: Answer(
            "Events behind the cursor, in order",
            headers={
                "link": "The page behind this one; there always is one",
                "x-caught-up": "`true` when there is no later event yet",
            },
        )
    },
)  # fmt: skip
async def list_events(context: Context, hub: Hub, request: Request, query: EventQuery) -> Ready[list[CloudEvent]]:
    """Read the change feed.

    Without a `cursor` the page is empty, and its `next` link leads to what happens from now on. Following these links
    under the same filters shows each matching event once, in order, and misses none. A page may have fewer events than
    its limit, or none, although more follow: `x-caught-up` tells. With `wait` a page without events comes when there
    is one, or when the time is over. `cursor-too-old` says that events behind the cursor are gone: begin without
    cursor, then list what you follow, then go on.
    """
    require_feed(context)
    reader = context.reader_for(request)
    # Who begins lists everything next: in an epoch that has ended, twice.
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
    """The page behind the cursor, after the wait that the client wants. Raises `CursorTooOld`."""
    wanted = query.chosen()
    found = await read_slice(context.reader_for(request), cursor.seq, wanted, query.limit)
    request.due_units += found.walked // WALKED_PER_UNIT
    if query.wait and found.is_caught_up and not found.events:
        await hub.wait_behind(request, found.last_seq, wanted, query.wait)
        await check_position(context, context.database, cursor)  # another epoch may have begun
        # Not from a replica, which may be behind the event that the hub has seen.
        found = await read_slice(context.database, found.last_seq, wanted, query.limit)
        request.due_units += found.walked // WALKED_PER_UNIT
    if found.events and context.wrote is not None:
        context.wrote(context.client(request))  # what the client reads next must not be older than these events
    return found


def require_feed(context: Context) -> None:
    """Raise `UnknownPath` when the operator has switched the feed off."""
    if context.settings.feed == "off":
        raise UnknownPath("this service gives no change feed; listings with sort=1 show new rows")


OPERATIONS = (list_events,)
