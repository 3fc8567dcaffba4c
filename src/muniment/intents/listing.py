"""Pages of intents: for any query, the event loop reads a bounded number of rows.

Every index ends with `seq`, the order of commits, so the rows of one filter are read in that order. A query with more
filters walks along the index of one filter and tests each row for the others. Such a walk finds a page soon, unless
rows that pass the other filters are rare. Then there are two ways: if one filter selects few rows, all of them are
read; otherwise the walk goes to its end in a thread of its own, with a deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from muniment.evm.address import Address
from muniment.http.paging import EMPTY, Page, PageQuery, Sort
from muniment.intents import store
from muniment.intents.lifecycle import CAN_EXPIRE, Moment
from muniment.intents.store import EARLY, ENDED, HEAD_COLUMNS, STATUS_AS_READ, Head
from muniment.intents.types import ConfigSig, DeadlineBound, IntentStatus, Op
from muniment.storage.listing import Listed, Part, Rows, page_keys, unindexed
from muniment.storage.pages import utf8_length
from muniment.storage.row_counts import has_row_behind
from muniment.storage.scopes import Scope, are_few, first_rows, timed_scope
from muniment.storage.sql import Condition
from muniment.wire import TIMESTAMP_MS_MAX, UINT256_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.storage.database import Reader, Row

# A page without a cursor ends before the intent that makes its JSON longer than this: some hundred times a usual page.
# It has one intent at least. The next link goes on.
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
# Rows that the event loop reads for a page beside the rows of the page: well under a millisecond.
ROWS_WALKED_MAX: Final = 500
_TABLE: Final = Listed(
    "intents",
    columns="seq, user_address, settler, config_sig, op, deadline, status, chain_status, standing, created_at_ms",
)

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
        """The deadlines that the query admits, Unix seconds."""
        after = -1 if self.deadline_after is None else int(self.deadline_after)
        before = UINT256_MAX if self.deadline_before is None else int(self.deadline_before)
        return range(after + 1, before + 1)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The ways to find a page."""

    # The conditions that one index answers, in order; and whether each of its rows is tested for others besides.
    walked: tuple[Condition, ...]
    tests_rows: bool
    # The rows to choose from. Only the first part is a walk.
    parts: tuple[Part, ...]
    # Filters that may select few rows, to be tried before and after a walk. The conditions of one list select different
    # rows, and every row of the listing is among these.
    tried_before: list[tuple[Condition, ...]]
    tried_after: list[tuple[Condition, ...]]
    # All conditions, to test the rows of such a list.
    everything: tuple[Condition, ...]


async def search(database: Reader, query: IntentQuery, moment: Moment, client: str = "") -> Page:
    """A page of intents in the order of commits, with their statuses at `moment`; at most `PAGE_BYTES_MAX` long.

    `client` is the address of the client that waits for it. Raises `InvalidParameter` for too large an offset, and
    `DeadlineExceeded` when too many rows would have to be read.
    """
    if not query.deadlines:
        return EMPTY
    if query.is_long:
        if not await has_row_behind(database, "intents", query.offset, client):
            return EMPTY
        query.check_offset()
    within, plan = await timed_scope(database, "intents", query), _planned(query, store.expiry(moment))
    heads = [Head.of(row, moment) for row in await _rows(database, query, within, plan, client)]
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


async def _rows(database: Reader, query: IntentQuery, within: Scope, plan: _Plan, client: str) -> list[Row]:
    """The `HEAD_COLUMNS` of the page's intents, and of one more if there is one."""
    whole = _statement(query, within, plan.parts)
    selected = [part.few for part in plan.parts if part.few]
    if query.is_long or not await _are_few(database, selected):
        return await database.fetch_slow(*whole, client=client)
    if not plan.tests_rows:
        return await database.fetch(*whole)
    for few in plan.tried_before:
        if await _are_few(database, few):
            return await database.fetch(*_statement(query, within, _tested(plan, few)))
    walked = await first_rows(database, "intents", plan.walked, within, sort=query.sort, count=ROWS_WALKED_MAX)
    if walked == within:
        return await database.fetch(*whole)
    rows = await database.fetch(*_statement(query, walked, plan.parts))
    if len(rows) > query.limit:
        return rows
    for few in plan.tried_after:
        if await _are_few(database, few):
            return await database.fetch(*_statement(query, within, _tested(plan, few)))
    return await database.fetch_slow(*whole, client=client)


def _planned(query: IntentQuery, ended: tuple[bytes, bytes]) -> _Plan:
    """The plan for `query`; `ended` are the parameters of `ENDED`."""
    pairs = (("config_sig", query.config_sig), ("user_address", query.user), ("settler", query.settler))
    equal = tuple(Condition(f"{name} = ?", (value.raw,)) for name, value in pairs if value is not None)
    op = (Condition("op = ?", (query.op,)),) if query.op is not None else ()
    deadline = _deadline_conditions(query)
    standing = (Condition("standing = ?", (query.status,)),) if query.status else ()
    status = (Condition(f"{STATUS_AS_READ} = ?", (*ended, query.status)),) if query.status else ()
    near, tested = equal[:1], (*equal[1:], *deadline)  # the most selective index
    tried_after = [equal[1:2], equal[2:], op]
    unswept = _unswept(query, ended)
    parts: tuple[Part, ...] = ()
    if standing and query.config_sig is None:
        tested = (*tested, *op, *(status if unswept else ()))
        parts = tuple(Part((*near, *unindexed(*tested)), each) for each in unswept)
        near = (*near, *standing)
    elif near:
        tested, tried_after = (*tested, *op, *status), [*tried_after, (*standing, *unswept)]
    else:
        near, tried_after = op, []
    return _Plan(
        walked=near, tests_rows=bool(tested),
        parts=(Part((*near, *unindexed(*tested))), *parts),
        tried_before=[deadline] if deadline else [], tried_after=[each for each in tried_after if each],
        everything=unindexed(*equal, *op, *deadline, *status),
    )  # fmt: skip


def _unswept(query: IntentQuery, ended: tuple[bytes, bytes]) -> tuple[Condition, ...]:
    """The intents that have the status of the query now, although their `standing` is another.

    Some expired after the last sweep; some were marked by a sweep with another time or grace. A final status stays.
    """
    if query.status == "expired":
        return (Condition(ENDED, ended),)
    return (Condition(EARLY, store.early(query.status, ended)),) if query.status in CAN_EXPIRE else ()


def _tested(plan: _Plan, few: tuple[Condition, ...]) -> tuple[Part, ...]:
    """All rows of conditions that select few, each tested for every condition of the query."""
    return tuple(Part(plan.everything, each) for each in few)


def _deadline_conditions(query: IntentQuery) -> tuple[Condition, ...]:
    if query.deadline_after is None and query.deadline_before is None:
        return ()
    first, last = query.deadlines[0], query.deadlines[-1]
    return (Condition("deadline >= ? AND deadline <= ?", (first.to_bytes(32), last.to_bytes(32))),)


async def _are_few(database: Reader, conditions: Sequence[Condition]) -> bool:
    return await are_few(database, "intents", conditions, ROWS_WALKED_MAX)


def _statement(query: IntentQuery, within: Scope, parts: tuple[Part, ...]) -> tuple[str, list[object]]:
    """The statement for the heads of a page that is chosen from `parts`, and its parameters."""
    keys, parameters = page_keys(_TABLE, Rows(parts), within, query)
    direction = "ASC" if query.sort == 1 else "DESC"
    sql = f"SELECT {HEAD_COLUMNS} FROM ({keys}) page JOIN intents i ON i.seq = page.seq ORDER BY i.seq {direction}"  # noqa: S608 - text of ours
    return sql, parameters
