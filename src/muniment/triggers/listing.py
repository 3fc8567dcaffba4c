"""Listings of triggers.

Their order is `seq`, the order of commits. `created_at_ms` decreases with it by no more than is known (`storage.dating`
sees to that), so a bound on the time is a bound on `seq`, found by one look into an index.

Whether a trigger is active follows from its end and the time of asking. `live`, which sweeps keep near to that, is for
indexes: those that ended since the last sweep, and those that a sweep marked too early, are found by indexes of theirs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from msgspec import Meta

from muniment.evm.address import Address
from muniment.evm.signature import Signature
from muniment.http.paging import EMPTY, OFFSET_MAX, Page, PageQuery, Sort
from muniment.ipfs.cid import BundleCid
from muniment.storage.dating import times_differ
from muniment.storage.pages import Asked, Source, read_page
from muniment.storage.row_counts import has_row_behind
from muniment.storage.sql import Where, placeholders
from muniment.triggers.store import EARLY, ENDED
from muniment.triggers.types import TRIGGER_SIGS_MAX, TimestampMs

if TYPE_CHECKING:
    from muniment.storage.database import Reads


class TriggerQuery(PageQuery, frozen=True):
    """Which triggers to list."""

    sigs: (
        Annotated[list[Signature], Meta(min_length=1, max_length=TRIGGER_SIGS_MAX, description="Only these")] | None
    ) = None
    function_cid: BundleCid | None = None
    signer: Address | None = None
    active: Annotated[bool, Meta(description="true: not deactivated and not past its end; false: the rest")] | None = (
        None
    )
    created_after: Annotated[TimestampMs, Meta(description="Exclusive")] | None = None
    created_before: Annotated[TimestampMs, Meta(description="Inclusive")] | None = None
    sort: Sort = -1


_ACTIVE: Final = "deactivated = 0 AND (end_date_ms = 0 OR end_date_ms > ?)"
# Those of the live that are active, and those of the others that are not.
_LIVE: Final = "live = 1 AND (end_date_ms = 0 OR end_date_ms > ?)"
_OVER: Final = "live = 0 AND (deactivated = 1 OR end_date_ms <= ?)"
# The same for a long walk, which reads no row then: those of which `live` is not true are found by their own indexes.
# SQLite makes a list of them once, and looks into it. PostgreSQL does so if it expects the list to fit into its memory,
# and else reads it from end to end for every row; told to join instead, it reads more rows than it saves.
_LIVE_IN_INDEX: Final = f"live = 1 AND seq NOT IN (SELECT seq FROM triggers WHERE {ENDED})"  # noqa: S608 - text of ours
_OVER_IN_INDEX: Final = f"live = 0 AND seq NOT IN (SELECT seq FROM triggers WHERE {EARLY})"  # noqa: S608 - text of ours
# A planner keeps conditions from outside out of a subquery that has a limit, and with them other indexes, which it
# would walk from end to end (https://sqlite.org/optoverview.html, "the push-down optimization"). 2^63 - 1 is no limit.
_FENCE: Final = "LIMIT 9223372036854775807"
_EVERY_ROW_BY_TIME: Final = "triggers INDEXED BY triggers_by_creation"
# Texts of statements kept: all mixes of filters but for the lengths of `sigs`.
_STATEMENTS_KEPT: Final = 512
# Pages kept as they are asked of the database, a kilobyte each: what pollers and wallets ask again and again.
_PAGES_KEPT: Final = 1_024
# Stands among the parameters of a page for the time at which it is read.
_NOW: Final = object()


async def search(database: Reads, query: TriggerQuery, now_ms: int, client: str = "") -> Page:
    """A page of records in the order of commits.

    `client` is the address of whoever waits for it. Raises `InvalidParameter` for an offset that is not walked, and
    `DeadlineExceeded`.
    """
    if query.is_long:
        if query.sigs is not None or not await has_row_behind(database, "triggers", query.offset, client):
            return EMPTY
        query.check_offset()
    above, below, differ_ms = 0, OFFSET_MAX, database.times_differ_ms
    is_by_time = query.created_after is not None or query.created_before is not None
    if is_by_time or (query.offset and not differ_ms):
        differ_ms = await times_differ(database)
    if is_by_time:
        above, below = await _times(database, query, differ_ms)
    ask = _ask if query.sigs is None else _ask.__wrapped__  # a list is no key, and who names some names others next
    engine = database.visible_before, database.merges_unions, differ_ms
    asked, asks_the_time = ask(query, engine, above, below)
    if asks_the_time:
        asked = asked._replace(parameters=[now_ms if each is _NOW else each for each in asked.parameters])
    return Page(*await read_page(database, asked, client))


async def _times(database: Reads, query: TriggerQuery, slack_ms: int) -> tuple[int, int]:
    """Bounds on the time as bounds on `seq`; where the times of rows may differ, by `slack_ms`, wide ones."""
    above, below = 0, OFFSET_MAX
    if query.created_after is not None:
        rows = await database.fetch(
            "SELECT seq FROM triggers WHERE created_at_ms <= ? ORDER BY created_at_ms DESC, seq DESC LIMIT 1",
            (query.created_after - slack_ms,),
        )
        above = rows[0][0] if rows else 0
    if query.created_before is not None:
        rows = await database.fetch(
            "SELECT seq FROM triggers WHERE created_at_ms > ? ORDER BY created_at_ms, seq LIMIT 1",
            (query.created_before + slack_ms,),
        )
        below = rows[0][0] if rows else OFFSET_MAX
    return above, below


@lru_cache(maxsize=_PAGES_KEPT)
def _ask(query: TriggerQuery, engine: tuple[str, bool, int], above: int, below: int) -> tuple[Asked, bool]:
    """How to ask for a page of the rows whose `seq` lies between the two, and whether `_NOW` is asked.

    `engine` says how it reads (see `Reads`).
    """
    visible_before, merges_unions, times_differ_ms = engine
    # Where times follow the order, their index is walked in place of the rows: an offset counts entries, not pages.
    by_time = bool(query.offset) and not times_differ_ms and _is_of_every_kind(query)
    where = _times_asked(query) if by_time else _conditions(query, visible_before, times_differ_ms, above, below)
    arms = [_Arm(_EVERY_ROW_BY_TIME)] if by_time else _arms(query, finds_in_lists=merges_unions)
    reach = min(query.offset + query.limit + 1, OFFSET_MAX)
    is_ordered = all(arm.source == "triggers" for arm in arms) and (merges_unions or len(arms) == 1)
    is_first = is_ordered and not query.offset
    keys, records = _page_sql(
        tuple((arm.source, arm.clause) for arm in arms), str(where), query.sort, is_first=is_first
    )
    if merges_unions and not is_first:  # SQLite would sort the records, and so read them all before the first
        records = None
    parameters: list[object] = []
    for arm in arms:
        parameters += [*arm.given, *where.parameters, *arm.values]
        if not is_first and len(arms) > 1:
            parameters.append(reach)
    parameters += [query.limit + 1, query.offset]
    asked = Asked(
        keys,
        records,
        Source("triggers", "seq", "record", query.sort),
        tuple(parameters),
        query.limit,
        query.bytes_max,
        is_long=query.is_long,
    )
    return asked, _NOW in parameters


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _page_sql(
    arms: tuple[tuple[str, str], ...], conditions: str, sort: Sort, *, is_first: bool
) -> tuple[str, str]:  # fmt: skip
    """The statements for the keys and for the records of a page of what the arms give.

    Each arm is a source and a clause on top of the conditions.
    The first page of arms that an index has in order is merged from them as far as it goes. Else the rows are found
    by their numbers alone, so that no record is read, and sorted, that is not shown.
    """
    direction = "ASC" if sort == 1 else "DESC"
    chosen = [
        source + conditions + (f"{' AND ' if conditions else ' WHERE '}{clause}" if clause else "")
        for source, clause in arms
    ]
    if is_first:
        keys, records = (
            " UNION ALL ".join(f"SELECT {columns} FROM {each}" for each in chosen)  # noqa: S608 - text of ours
            + f" ORDER BY 1 {direction} LIMIT ? OFFSET ?"
            for columns in ("seq", "seq, record")
        )
        return keys, records
    if len(arms) == 1:  # skipped where it is walked, and not sorted
        order = f"created_at_ms {direction}, seq" if arms[0][0] == _EVERY_ROW_BY_TIME else "seq"
        page = f"SELECT seq FROM {chosen[0]} ORDER BY {order} {direction} LIMIT ? OFFSET ?"  # noqa: S608 - text of ours
    else:
        selects = [f"SELECT * FROM (SELECT seq FROM {each} ORDER BY seq {direction} LIMIT ?) arm" for each in chosen]  # noqa: S608 - text of ours
        page = f"{' UNION ALL '.join(selects)} ORDER BY 1 {direction} LIMIT ? OFFSET ?"
    return page, (
        f"SELECT t.seq, t.record FROM ({page}) page JOIN triggers t ON t.seq = page.seq "  # noqa: S608 - text of ours
        f"ORDER BY t.seq {direction}"
    )


def _is_of_every_kind(query: TriggerQuery) -> bool:
    """Whether nothing but the time is asked of a row."""
    return query.sigs is None and query.signer is None and query.function_cid is None and query.active is None


def _times_asked(query: TriggerQuery) -> Where:
    """The exact times, where they follow the order."""
    where = Where()
    where.add_if("created_at_ms > ?", query.created_after)
    where.add_if("created_at_ms <= ?", query.created_before)
    return where


def _conditions(query: TriggerQuery, visible_before: str, times_differ_ms: int, above: int, below: int) -> Where:
    """What is asked of a row. Bounds by time and by cursor are one on either side: an index is walked from one."""
    where = Where()
    where.add_if("signer = ?", query.signer and query.signer.raw)
    where.add_if("function_digest = ?", query.function_cid and query.function_cid.digest)
    if times_differ_ms:
        # The exact times, where the bounds are wide. `+ 0` keeps the index on the time out of it: rows are walked in
        # the order of `seq`.
        where.add_if("created_at_ms + 0 > ?", query.created_after)
        where.add_if("created_at_ms + 0 <= ?", query.created_before)
    if query.cursor is not None:
        seq = query.cursor.seq
        above, below = (max(above, seq), below) if query.sort == 1 else (above, min(below, seq))
    if above:
        where.add("seq > ?", above)
    if below < OFFSET_MAX:
        where.add("seq < ?", below)
    if query.sort == 1 and visible_before:
        where.add(f"seq < {visible_before}")
    return where


class _Arm(NamedTuple):
    """A part of the rows that one index gives, in order or few: where it is read from, and what is asked of a row."""

    source: str = "triggers"
    given: tuple[object, ...] = ()
    clause: str = ""
    values: tuple[object, ...] = ()


def _arms(query: TriggerQuery, *, finds_in_lists: bool) -> list[_Arm]:
    """The rows to choose from; apart from the state and the list of signatures, the conditions come on top."""
    if query.sigs is not None:
        listed = f"(SELECT * FROM triggers WHERE sig IN ({placeholders(len(query.sigs))}) {_FENCE}) listed"  # noqa: S608 - ? only
        state = "" if query.active is None else _ACTIVE if query.active else f"NOT ({_ACTIVE})"
        return [_Arm(listed, tuple(sig.raw for sig in query.sigs), state, (_NOW,) if state else ())]
    is_long = finds_in_lists and query.is_long
    if query.active is True:
        early = f"(SELECT * FROM triggers WHERE {EARLY} {_FENCE}) early"  # noqa: S608 - text of ours
        return [_Arm(clause=_LIVE_IN_INDEX if is_long else _LIVE, values=(_NOW,)), _Arm(early, (_NOW,))]
    if query.active is False:
        ended = f"(SELECT * FROM triggers WHERE {ENDED} {_FENCE}) ended"  # noqa: S608 - text of ours
        return [_Arm(clause=_OVER_IN_INDEX if is_long else _OVER, values=(_NOW,)), _Arm(ended, (_NOW,))]
    if query.signer is not None or query.function_cid is not None or is_long:
        return [_Arm(clause="live = 0"), _Arm(clause="live = 1")]  # in the indexes `live` stands before `seq`
    return [_Arm()]
