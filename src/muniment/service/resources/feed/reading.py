"""Reads events in order, for polls, streams and webhooks."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from muniment.protocol.errors import CursorTooOld, Fault
from muniment.protocol.ipfs.unixfs import PROFILES
from muniment.service.resources.feed.events import Event, Position, Source
from muniment.service.storage.sql import SWEPT_PER_BATCH, Where

if TYPE_CHECKING:
    from muniment.service.context import Context
    from muniment.service.resources.feed.events import EventFilter
    from muniment.service.storage.database import Reader, Transaction

# Rows that one read may scan for a filter: under a millisecond of the database.
WALKED_MAX: Final = 5_000
# The cost of a page of events: these units, and more for the rows that a filter scans, and for the bytes that are sent.
# An event has 300 to 500 bytes.
PAGE_UNITS: Final = 4
WALKED_PER_UNIT: Final = 80
SENT_BYTES_PER_UNIT: Final = 1_024
_DAY_MS: Final = 86_400_000
_COLUMNS: Final = "seq, at_ms, kind, subject, owners, origin, settler, facts"
_KEPT: Final = 512
_TOO_OLD: Final = (
    "this position is {why}. Restart: GET /events without a cursor has the current position in its Link header; list "
    "what you follow again (GET /triggers, /functions, /intents), then follow that link. Repeated events are harmless"
)
_OTHER_EPOCH: Final = "from before the registry was restored or moved"
_REMOVED: Final = "older than the events that are kept"


class Slice(NamedTuple):
    """Events in order, the number up to which the feed was scanned, and whether that is its end.

    `walked` is the number of scanned rows.
    """

    events: list[Event]
    last_seq: int
    is_caught_up: bool
    walked: int = 0


def _too_old(why: str) -> CursorTooOld:
    """The refusal of a position after which events are missing."""
    detail = _TOO_OLD.format(why=why)
    return CursorTooOld(detail, faults=[Fault(detail, parameter="cursor")])


async def read_slice(reader: Reader, after_seq: int, wanted: EventFilter, limit: int) -> Slice:
    """At most `limit` events after the number `after_seq`, from at most `WALKED_MAX` rows.

    Raises `CursorTooOld` when events after that number were removed.
    """
    walked_max = limit if wanted.is_open else WALKED_MAX
    where = Where.all_of(*wanted.conditions())
    sql = _statement(where.sql)
    parameters = (after_seq, walked_max, after_seq, walked_max, *where.parameters, limit)
    rows = await reader.fetch(sql, parameters)
    floor_seq, last_seq, walked = rows[0][:3] if rows else (0, None, 0)
    # The floor is of the same snapshot as the rows, so no row was removed in between.
    if after_seq < floor_seq:
        raise _too_old(_REMOVED)
    found = [Event(*row[3:]) for row in rows if row[3] is not None]
    events = [event for event in found if wanted.matches(event)]
    if len(found) == limit and not wanted.is_open:
        return Slice(events, found[-1].seq, is_caught_up=False, walked=walked)
    return Slice(events, last_seq or after_seq, is_caught_up=walked < walked_max, walked=walked)


@lru_cache(maxsize=_KEPT)
def _statement(where: LiteralString) -> LiteralString:
    after = "FROM events WHERE seq > ? AND seq < settled_seq() ORDER BY seq LIMIT ?"
    return (
        f"SELECT f.floor_seq, w.last_seq, w.walked, e.* FROM feed f "
        f"CROSS JOIN (SELECT max(seq) AS last_seq, count(*) AS walked FROM (SELECT seq {after}) later) w "
        f"LEFT JOIN (SELECT * FROM (SELECT {_COLUMNS} {after}) walked{where} ORDER BY seq LIMIT ?) e ON 1 = 1 "
        "ORDER BY e.seq"
    )


async def newest(reader: Reader, before_ms: int | None = None) -> int:
    """The number of the newest event: a new follower begins after it.

    With `before_ms`, that of the newest event up to this time, for replicas whose listings may be behind.
    """
    latest = "SELECT seq, at_ms FROM events WHERE seq < settled_seq() ORDER BY seq DESC LIMIT ?"
    if before_ms is None:
        sql, parameters = f"SELECT max(seq) FROM ({latest}) latest", (1,)
    else:
        sql = f"SELECT coalesce(max(CASE WHEN at_ms <= ? THEN seq END), min(seq) - 1) FROM ({latest}) latest"
        parameters = (before_ms, WALKED_MAX)
    ((seq,),) = await reader.fetch(sql, parameters)
    return await floor(reader) if seq is None else seq


async def floor(reader: Reader) -> int:
    """The lowest number after which no event was removed."""
    ((floor_seq,),) = await reader.fetch("SELECT floor_seq FROM feed")
    return floor_seq


async def begin(context: Context, reader: Reader) -> int:
    """`newest` for a client of this service; with replicas, an event that every replica has."""
    if not context.settings.read_urls:
        return await newest(reader)
    return await newest(reader, context.clock.now_ms() - context.settings.replica_lag_s_max * 1_000)


async def source_of(context: Context, reader: Reader, *, is_fresh: bool = False) -> Source:
    """The source of events now; `is_fresh`: read from the database, not from a cache."""
    epoch = await (context.epochs.number_now() if is_fresh else context.epochs.number(reader))
    return Source(context.settings.issuer, epoch, PROFILES[context.settings.unixfs_profile].cid_version)


async def check_position(context: Context, reader: Reader, position: Position) -> None:
    """Raise `CursorTooOld` for a position of another epoch, or beyond the highest assigned number."""
    if not await context.epochs.is_number(reader, position.epoch):
        raise _too_old(_OTHER_EPOCH)
    epoch = await context.epochs.current(reader)
    has_given = not position.seq or await context.epochs.has_given(reader, "events", epoch, position.seq)
    if not has_given and position.seq > await floor(context.database):
        raise _too_old(_OTHER_EPOCH)


async def remove_old(transaction: Transaction, now_ms: int, days: int) -> int:
    """Remove at most `SWEPT_PER_BATCH` events older than `days`; returns their number. The newest event stays."""
    sql = "SELECT seq, at_ms FROM events WHERE seq < settled_seq() ORDER BY seq LIMIT ?"
    oldest = await transaction.fetch(sql, (SWEPT_PER_BATCH + 1,))
    old: list[int] = []
    for seq, at_ms in oldest[:-1]:
        if at_ms >= now_ms - days * _DAY_MS:
            break
        old.append(seq)
    if old:
        await transaction.execute("UPDATE feed SET floor_seq = ? WHERE floor_seq < ?", (old[-1], old[-1]))
        await transaction.execute("DELETE FROM events WHERE seq <= ?", (old[-1],))
    return len(old)
