"""Follow a listing or the change feed forever: each record once, in order, from a cursor on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

from msgspec import Meta

from muniment.client.answers import Page, cursor_of, decode
from muniment.client.failures import Forged, NotARegistry, Unreachable
from muniment.client.flows.session import JSON, target
from muniment.client.steps import Flow, Send, Sleep
from muniment.protocol.errors import CursorTooOld, Limited, Refusal, RequestTimeout, Unavailable
from muniment.protocol.wire import Record

if TYPE_CHECKING:
    from muniment.client.failures import Reply
    from muniment.client.flows.session import Session

T = TypeVar("T")
# After a failure: the first pause, and the longest.
_PAUSE_S: Final = 0.5
_PAUSE_S_MAX: Final = 60.0
_EMPTY_PAUSE_S: Final = 0.1
_REPEATING: Final = "answers with records and no new cursor: they would repeat for ever"
PASSING: Final = (Unreachable, Unavailable, Limited, RequestTimeout)
# Filters that a listing and the feed share, and under which no record leaves a listing.
_SHARED: Final = frozenset({"signer", "functionCid", "user", "settler", "configSig"})


class Event(Record, frozen=True, kw_only=True):
    """A CloudEvent of the change feed: a hint which record to read. It is not proved."""

    specversion: str = "1.0"
    # The cursor of the events after it.
    id: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]
    source: str = ""
    type: str
    subject: str
    time: str
    data: dict[str, Any]


@dataclass(slots=True)
class Follower(Generic[T]):
    """A place in a growing listing; `read` returns the page after a cursor.

    At the end of the listing it waits for an event of `event_type`. Without a change feed it polls
    every `poll_s` seconds. The place moves only when a page is returned.
    """

    session: Session
    read: Callable[[str | None], Flow[Page[T]]]
    cursor: str | None
    poll_s: float
    event_type: str | None = None
    filters: Mapping[str, object] = field(default_factory=dict[str, object])
    # The cursor of the feed: every event after it is newer than the last read of the listing.
    _feed_cursor: str | None = field(default=None, init=False)

    def next_page(self) -> Flow[Page[T]]:
        """The next page with records; transient failures are retried without limit.

        Raises permanent errors, such as `Forged`, `NotARegistry` and `CursorTooOld`.
        """
        pause_s = _PAUSE_S
        while True:
            try:
                yield from self._listen()
                page = yield from self.read(self.cursor)
                is_moved = page.cursor is not None and page.cursor != self.cursor
                if page and not is_moved:
                    raise NotARegistry(_REPEATING)
                self.cursor = page.cursor or self.cursor
                if page:
                    return page
                if not is_moved:
                    yield from self._wait()
                pause_s = _PAUSE_S
            except PASSING:
                yield Sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def _listen(self) -> Flow[None]:
        """Take a cursor of the feed before the listing is read, so that no record is missed between them."""
        if self.event_type is None or self._feed_cursor is not None:
            return
        try:
            self._feed_cursor = yield from begin_events(self.session)
        except (Unavailable, Limited, RequestTimeout):
            raise
        except (Refusal, NotARegistry, Forged):
            self.event_type = None  # an older service, or one whose feed is off

    def _wait(self) -> Flow[None]:
        if self.event_type is None or self._feed_cursor is None:
            yield Sleep(self.poll_s)
            return
        shared = {name: value for name, value in self.filters.items() if name in _SHARED}
        try:
            page = yield from event_page(self.session, self._feed_cursor, {"types": self.event_type, **shared})
        except CursorTooOld:
            self._feed_cursor = None  # the listing is read again, after a new begin
        else:
            self._feed_cursor = page.cursor
            if not page:
                yield Sleep(_feed_pause_s(self.session, self.poll_s))


def _feed_pause_s(session: Session, poll_s: float) -> float:
    """The pause after an empty answer of the feed: a service with too many followers answers at once."""
    return poll_s if session.wait_s == 0 else min(poll_s, _EMPTY_PAUSE_S)


def event_follower(session: Session, after: str | None, filters: Mapping[str, object]) -> Follower[Event]:
    """A place in the change feed: now, or after the cursor `after`."""

    def read(cursor: str | None) -> Flow[Page[Event]]:
        begun = cursor or (yield from begin_events(session))
        return (yield from event_page(session, begun, filters))

    return Follower(session, read, after, poll_s=_feed_pause_s(session, 1.0))


def begin_events(session: Session) -> Flow[str]:
    """The current cursor of the change feed."""
    return _feed_cursor_of((yield from session.answered(Send("GET", "/events", headers=JSON))))


def event_page(session: Session, cursor: str, filters: Mapping[str, object]) -> Flow[Page[Event]]:
    """The events after a cursor; waits for one. Raises `CursorTooOld`: list the records that you follow again."""
    asked = target("/events", cursor=cursor, wait=session.wait_s, **filters)
    reply = yield from session.answered(Send("GET", asked, headers=JSON))
    page = Page(decode(reply, list[Event]), _feed_cursor_of(reply))
    if page and page.cursor == cursor:
        raise NotARegistry(_REPEATING)
    return page


def _feed_cursor_of(reply: Reply) -> str:
    cursor = cursor_of(reply)
    if cursor is None:
        raise NotARegistry("answers without a cursor of the change feed")
    return cursor
