"""Pages of intents: whatever is asked, the event loop looks at a bounded number of rows.

The order of a listing is `seq`, the order of commits. `created_at_ms` hardly ever decreases with it (the writer sees
to that), so a bound on the time is a bound on `seq`. Every index ends with `seq`, so one of them leads to a page of
what it is about; a query with more filters walks along the index of one and asks each row about the others. That
finds a page soon unless the others are rare. Then, when one of them selects few rows, those are all looked at. Else
the walk goes to the end in a thread of its own, with a deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from msgspec import Meta

from muniment.evm.address import Address
from muniment.http.paging import EMPTY, OFFSET_MAX, Page, PageQuery, Sort
from muniment.intents import store
from muniment.intents.lifecycle import CAN_EXPIRE, Moment
from muniment.intents.store import EARLY, ENDED, HEAD_COLUMNS, STATUS_AS_READ, Head
from muniment.intents.types import ConfigSig, DeadlineBound, IntentStatus, Op
from muniment.storage.dating import times_differ
from muniment.storage.pages import utf8_length
from muniment.storage.row_counts import has_row_behind
from muniment.storage.sql import Where
from muniment.wire import TIMESTAMP_MS_MAX, UINT256_MAX

if TYPE_CHECKING:
    from muniment.storage.database import Reads, Row

# What a page without a cursor may be long, apart from its first intent: some hundred times a usual page. The next link
# goes on.
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
# Rows that the event loop looks at for a page beside those it shows: well under a millisecond.
WALKED_AT_ONCE: Final = 500
# A planner keeps conditions from outside out of a subquery that has a limit, and with them other indexes, which it
# would walk from end to end (https://sqlite.org/optoverview.html, "the push-down optimization"). 2^63 - 1 is no limit.
_FENCE: Final = "LIMIT 9223372036854775807"
_COLUMNS: Final = "seq, user_address, settler, config_sig, op, deadline, status, chain_status, standing, created_at_ms"

_TimestampMs = Annotated[int, Meta(ge=0, le=TIMESTAMP_MS_MAX, examples=[1_795_204_080_123])]


class IntentQuery(PageQuery, frozen=True):
    """Which intents to list."""

    user: Address | None = None
    settler: Address | None = None
    deadline_after: Annotated[DeadlineBound, Meta(description="Exclusive, Unix seconds in decimal")] | None = None
    deadline_before: Annotated[DeadlineBound, Meta(description="Inclusive, Unix seconds in decimal")] | None = None
    status: IntentStatus | None = None
    op: Op | None = None
    config_sig: ConfigSig | None = None
    created_after: Annotated[_TimestampMs, Meta(description="Exclusive")] | None = None
    created_before: Annotated[_TimestampMs, Meta(description="Inclusive")] | None = None
    sort: Sort = -1

    @property
    def deadlines(self) -> range:
        """The deadlines that are asked for."""
        after = -1 if self.deadline_after is None else int(self.deadline_after)
        before = UINT256_MAX if self.deadline_before is None else int(self.deadline_before)
        return range(after + 1, before + 1)


class _Filter(NamedTuple):
    """A condition on an intent, and the values of its parameters."""

    clause: str
    values: tuple[object, ...]


class _Span(NamedTuple):
    """The sequence numbers to look at: one bound on each side, because SQLite walks along one and filters by others."""

    after: int = 0
    until: int = OFFSET_MAX
    # Where the database knows an end that moves, and exact bounds on the time, which those above may only be near to.
    rest: tuple[_Filter, ...] = ()

    def within(self, where: Where) -> Where:
        """`where`, and a sequence number of this span."""
        if self.after > 0:
            where = where.with_clause("seq > ?", self.after)
        if self.until < OFFSET_MAX:
            where = where.with_clause("seq <= ?", self.until)
        for clause, values in self.rest:
            where = where.with_clause(clause, *values)
        return where


class _Arm(NamedTuple):
    """A part of the rows: those that `where` holds for, of all that pass `source` or else of the table."""

    where: Where
    source: _Filter | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a page is found."""

    # What one index answers, in order; and whether anything is asked of each of its rows besides.
    walked: Where
    has_more_to_ask: bool
    # The rows to choose from. Only the first is a walk.
    arms: list[_Arm]
    # Filters that may select few rows, to be tried before and after a walk: the filters of each list select different
    # rows, and those that are asked for are among theirs. And every condition, for those rows.
    tried_before: list[list[_Filter]]
    tried_after: list[list[_Filter]]
    everything: Where


async def search(database: Reads, query: IntentQuery, moment: Moment, client: str = "") -> Page:
    """A page of intents in the order of commits, as they read at `moment`; at most `PAGE_BYTES_MAX` long.

    `client` is the address of whoever waits for it. Raises `InvalidParameter` for an offset that is not walked, and
    `DeadlineExceeded` when the last of many rows would have to be looked at.
    """
    if not query.deadlines:
        return EMPTY
    if query.is_long:
        if not await has_row_behind(database, "intents", query.offset, client):
            return EMPTY
        query.check_offset()
    span, plan = await _span(database, query), _planned(query, store.expiry(moment))
    heads = [Head.of(row, moment) for row in await _rows(database, query, span, plan, client)]
    bytes_max = query.bytes_max or PAGE_BYTES_MAX
    records: list[str] = []
    length = 1
    for group in store.groups(heads[: query.limit]):
        for record in await store.listed(database, group):
            length += 1 + utf8_length(record)
            if records and length > bytes_max:
                return Page(records, heads[len(records) - 1].seq, has_more=True)
            records.append(record)
    return Page(records, heads[len(records) - 1].seq if records else None, len(heads) > query.limit)


async def _span(database: Reads, query: IntentQuery) -> _Span:
    """The span that `query` asks for, by times and cursor.

    Where the times of neighbours may differ, the bounds by time are wider, and rows are asked for their time as well.
    """
    is_by_time = query.created_after is not None or query.created_before is not None
    slack_ms = await times_differ(database) if is_by_time else 0
    after, until, rest = 0, OFFSET_MAX, list[_Filter]()
    if query.created_after is not None:
        after = await _seq_at(database, "<= ? ORDER BY created_at_ms DESC, seq DESC", query.created_after - slack_ms)
        rest += _unindexed(_Filter("created_at_ms > ?", (query.created_after,))) if slack_ms else []
    if query.created_before is not None:
        first = await _seq_at(database, "> ? ORDER BY created_at_ms, seq", query.created_before + slack_ms)
        until = first - 1 if first else OFFSET_MAX
        rest += _unindexed(_Filter("created_at_ms <= ?", (query.created_before,))) if slack_ms else []
    if query.sort == 1 and database.visible_before:
        rest.append(_Filter(f"seq < {database.visible_before}", ()))
    if query.cursor is not None:
        seq = query.cursor.seq
        after, until = (max(after, seq), until) if query.sort == 1 else (after, min(until, seq - 1))
    return _Span(after, until, tuple(rest))


async def _seq_at(database: Reads, condition: str, time_ms: int) -> int:
    """The sequence number of the first intent whose `created_at_ms` fulfils a condition, 0 if there is none."""
    sql = f"SELECT seq FROM intents WHERE created_at_ms {condition} LIMIT 1"  # noqa: S608 - text of ours
    rows = await database.fetch(sql, (time_ms,))
    return rows[0][0] if rows else 0


async def _rows(database: Reads, query: IntentQuery, span: _Span, plan: _Plan, client: str) -> list[Row]:
    """The `HEAD_COLUMNS` of the page's intents, and of one more if there is one."""
    whole = _statement(query, span, plan.arms)
    sources = [arm.source for arm in plan.arms if arm.source]
    if query.is_long or not await _are_few(database, sources):
        return await database.fetch_slow(*whole, client=client)
    if not plan.has_more_to_ask:
        return await database.fetch(*whole)
    for few in plan.tried_before:
        if await _are_few(database, few):
            return await database.fetch(*_statement(query, span, _looked_at(plan, few)))
    walked = await _walked(database, query, span, plan.walked)
    if walked == span:
        return await database.fetch(*whole)
    rows = await database.fetch(*_statement(query, walked, plan.arms))
    if len(rows) > query.limit:
        return rows
    for few in plan.tried_after:
        if await _are_few(database, few):
            return await database.fetch(*_statement(query, span, _looked_at(plan, few)))
    return await database.fetch_slow(*whole, client=client)


def _planned(query: IntentQuery, ended: tuple[bytes, bytes]) -> _Plan:
    """The plan for `query`; `ended` are the parameters of `ENDED`."""
    pairs = (("config_sig", query.config_sig), ("user_address", query.user), ("settler", query.settler))
    equal = [_Filter(f"{name} = ?", (value.raw,)) for name, value in pairs if value is not None]
    op = [_Filter("op = ?", (query.op,))] if query.op is not None else []
    deadline = _deadline_filters(query)
    standing = [_Filter("standing = ?", (query.status,))] if query.status else []
    status = [_Filter(f"{STATUS_AS_READ} = ?", (*ended, query.status))] if query.status else []
    near, asked = equal[:1], [*equal[1:], *deadline]  # the most selective index
    tried_after = [equal[1:2], equal[2:], op]
    unswept = _unswept(query, ended)
    arms: list[_Arm] = []
    if standing and query.config_sig is None:
        asked = [*asked, *op, *(status if unswept else [])]
        arms = [_Arm(_where(*near, *_unindexed(*asked)), each) for each in unswept]
        near = [*near, *standing]
    elif near:
        asked, tried_after = [*asked, *op, *status], [*tried_after, [*standing, *unswept]]
    else:
        near, tried_after = op, []
    return _Plan(
        walked=_where(*near), has_more_to_ask=bool(asked),
        arms=[_Arm(_where(*near, *_unindexed(*asked))), *arms],
        tried_before=[each for each in [deadline] if each], tried_after=[each for each in tried_after if each],
        everything=_where(*_unindexed(*equal, *op, *deadline, *status)),
    )  # fmt: skip


def _unswept(query: IntentQuery, ended: tuple[bytes, bytes]) -> list[_Filter]:
    """The intents whose standing is not the status that is asked for, though they read so.

    Some expired and no sweep has seen it; some were marked by a sweep of another time or grace. A final status stands.
    """
    if query.status == "expired":
        return [_Filter(ENDED, ended)]
    return [_Filter(EARLY, store.early(query.status, ended))] if query.status in CAN_EXPIRE else []


def _looked_at(plan: _Plan, few: list[_Filter]) -> list[_Arm]:
    """The rows of filters that select few, of which everything is asked."""
    return [_Arm(plan.everything, each) for each in few]


def _deadline_filters(query: IntentQuery) -> list[_Filter]:
    if query.deadline_after is None and query.deadline_before is None:
        return []
    first, last = query.deadlines[0], query.deadlines[-1]
    return [_Filter("deadline >= ? AND deadline <= ?", (first.to_bytes(32), last.to_bytes(32)))]


def _unindexed(*filters: _Filter) -> list[_Filter]:
    """The same conditions in a form for which no planner leaves the index that it walks along."""
    return [_Filter(f"CASE WHEN {clause} THEN 1 ELSE 0 END = 1", values) for clause, values in filters]


def _where(*filters: _Filter) -> Where:
    where = Where()
    for clause, values in filters:
        where.add(clause, *values)
    return where


async def _are_few(database: Reads, filters: list[_Filter]) -> bool:
    """Whether at most `WALKED_AT_ONCE` intents pass each of some filters that have an index."""
    for clause, values in filters:
        sql = f"SELECT 1 FROM intents WHERE {clause} LIMIT 1 OFFSET ?"  # noqa: S608 - text of ours
        if await database.fetch(sql, (*values, WALKED_AT_ONCE)):
            return False
    return True


async def _walked(database: Reads, query: IntentQuery, span: _Span, where: Where) -> _Span:
    """The part of `span` in which a walk sees `WALKED_AT_ONCE` rows; all of it when there are no more."""
    chosen = span.within(where)
    direction = "ASC" if query.sort == 1 else "DESC"
    sql = f"SELECT seq FROM intents{chosen} ORDER BY seq {direction} LIMIT 1 OFFSET ?"  # noqa: S608 - text of ours
    rows = await database.fetch(sql, [*chosen.parameters, WALKED_AT_ONCE])
    if not rows:
        return span
    ((seq,),) = rows
    return span._replace(until=seq) if query.sort == 1 else span._replace(after=seq - 1)


def _statement(query: IntentQuery, span: _Span, arms: list[_Arm]) -> tuple[str, list[object]]:
    """The statement that reads the page from `arms`, which have no row in common, and its parameters."""
    direction = "ASC" if query.sort == 1 else "DESC"
    reach = min(query.offset + query.limit + 1, OFFSET_MAX)
    parameters: list[object] = []
    selects: list[str] = []
    for number, (conditions, source) in enumerate(arms):
        where = span.within(conditions)
        rows = "intents"
        if source is not None:
            rows = f"(SELECT {_COLUMNS} FROM intents WHERE {source.clause} {_FENCE}) few"  # noqa: S608 - text of ours
            parameters += source.values
        ordered = f"SELECT seq FROM {rows}{where} ORDER BY seq {direction} LIMIT ?"  # noqa: S608 - text of ours
        selects.append(f"SELECT seq FROM ({ordered}) arm{number}")  # noqa: S608 - text of ours
        parameters += [*where.parameters, reach]
    sql = (
        f"SELECT {HEAD_COLUMNS} FROM ({' UNION ALL '.join(selects)} ORDER BY 1 {direction} LIMIT ? OFFSET ?) page "  # noqa: S608 - text of ours
        f"JOIN intents i ON i.seq = page.seq ORDER BY i.seq {direction}"
    )
    return sql, [*parameters, query.limit + 1, query.offset]
