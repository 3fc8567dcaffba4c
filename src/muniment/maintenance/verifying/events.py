"""The checks of events: each tells of a record that is stored, and nothing that the record contradicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, LiteralString

import msgspec

from muniment.errors import CursorTooOld
from muniment.feed.events import ABOUT_INTENTS, EVENT_TYPES, Event, Kind
from muniment.feed.filters import EVERYTHING
from muniment.feed.reading import floor, read_slice
from muniment.storage.sql import placeholders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from muniment.context import Context
    from muniment.storage.database import Row

# Events of one read, and as many records that they tell of.
_EVENTS_PER_READ: Final = 500
_TABLES: Final[dict[Kind, LiteralString]] = {
    Kind.TRIGGER_CREATED: "SELECT sig, deactivated FROM triggers WHERE sig",
    Kind.FUNCTION_CREATED: "SELECT digest, 0 FROM functions WHERE digest",
    Kind.INTENT_CREATED: "SELECT hash, version FROM intents WHERE hash",
}


async def check_events(context: Context) -> AsyncIterator[str | None]:
    """A fault, or None, for each event."""
    last_seq = await floor(context.database)
    while True:
        try:
            found = await read_slice(context.database, last_seq, EVERYTHING, _EVENTS_PER_READ)
        except CursorTooOld:  # a service that runs has removed old events since the last read
            last_seq = await floor(context.database)
            continue
        stored = await _stored(context, found.events)
        for event in found.events:
            wrong = _fault(event, stored.get(event.subject))
            yield f"event {event.seq}: {wrong}" if wrong else None
        last_seq = found.last_seq
        if found.is_caught_up:
            return


async def _stored(context: Context, events: Sequence[Event]) -> dict[bytes, int]:
    """For the subject of each event whether it is deactivated, or its version."""
    stored: dict[bytes, int] = {}
    subjects = sorted({event.subject for event in events})
    for select in _TABLES.values():
        if subjects:
            rows: list[Row] = await context.database.fetch_slow(
                f"{select} IN ({placeholders(len(subjects))})", subjects
            )
            stored.update(rows)
    return stored


def _fault(event: Event, stored: int | None) -> str | None:
    if event.kind not in EVENT_TYPES:
        return f"there is no kind {event.kind}"
    if stored is None:
        return f"it tells of {event.subject.hex()}, which is not stored"
    if event.kind == Kind.TRIGGER_DEACTIVATED and not stored:
        return "it tells that a trigger was deactivated, which is active"
    if event.kind in ABOUT_INTENTS:
        try:
            facts: dict[str, Any] = msgspec.json.decode(event.facts)
            version = int(facts["version"])
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            return f"its facts cannot be read: {error}"
        if version > stored:
            return f"it tells version {version} of an intent that has version {stored}"
    return None
