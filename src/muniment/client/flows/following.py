"""Follow a listing, or the change feed, for ever: each record once, in order, from a cursor on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from muniment.client.answers import decode
from muniment.client.failures import Unreachable
from muniment.client.flows.session import JSON, target
from muniment.client.pages import Page, cursor_of
from muniment.client.steps import Flow, Send, Sleep
from muniment.errors import Limited, Unavailable
from muniment.wire import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muniment.client.flows.session import Session

T = TypeVar("T")
# The longest wait that the feed offers.
WAIT_S: Final = 30
# After a failure: the first pause, and the longest.
_PAUSE_S: Final = 0.5
_PAUSE_S_MAX: Final = 60.0
# Filters under which no record leaves a listing, so that a cursor misses none.
TRIGGER_FILTERS: Final = frozenset({"signer", "functionCid"})
INTENT_FILTERS: Final = frozenset({"user", "settler", "configSig", "op"})


class Event(Record, frozen=True):
    """A CloudEvent of the change feed: a hint which record to read. Nothing in it is proved."""

    id: str
    type: str
    subject: str
    time: str
    data: dict[str, Any]


def next_page(read: Callable[[str | None], Flow[Page[T]]], cursor: str | None, poll_s: float) -> Flow[Page[T]]:
    """The next page behind the cursor that has records; asks again every `poll_s` seconds. It never gives up.

    Raises what asking again cannot mend, such as `Forged` and `CursorTooOld`.
    """
    pause_s = _PAUSE_S
    while True:
        try:
            page = yield from read(cursor)
        except (Unreachable, Unavailable, Limited):
            yield Sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            continue
        pause_s = _PAUSE_S
        if page:
            return page
        if page.cursor is None or page.cursor == cursor:
            yield Sleep(poll_s)
        cursor = page.cursor or cursor


def begin_events(session: Session) -> Flow[str]:
    """The cursor of what happens from now on."""
    reply = yield from session.answered(Send("GET", "/events", headers=JSON))
    return cursor_of(reply) or ""


def event_page(session: Session, cursor: str, filters: Mapping[str, object], wait_s: int = WAIT_S) -> Flow[Page[Event]]:
    """The events behind a cursor; waits for one. Raises `CursorTooOld`: list anew what you follow."""
    asked = target("/events", cursor=cursor, wait=wait_s, **filters)
    reply = yield from session.answered(Send("GET", asked, headers=JSON))
    return Page(decode(reply, list[Event]), cursor_of(reply))
