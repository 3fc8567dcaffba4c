"""Pages of intents: for any query, the event loop reads a bounded number of rows.

Every index ends with `seq`, the order of commits, so the rows of one filter are read in that order. A query with more
filters reads all rows of a filter that selects few. If none does, it walks along the index of one filter and tests each
row for the others. Rows that pass may be rare, so such a walk has a thread and a deadline. `plans` says which filter is
which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from muniment.service.http.paging import EMPTY, Page
from muniment.service.resources.intents import store
from muniment.service.resources.intents.plans import LISTED, planned
from muniment.service.resources.intents.store import HEAD_COLUMNS, Head
from muniment.service.storage.listing import page_keys
from muniment.service.storage.pages import utf8_length
from muniment.service.storage.scopes import has_row_after, timed_scope
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.protocol.intents.lifecycle import Moment
    from muniment.service.resources.intents.plans import Plan
    from muniment.service.resources.intents.queries import IntentQuery
    from muniment.service.storage.database import Reader, Row
    from muniment.service.storage.listing import Part

# A page without a cursor ends before the intent that makes its JSON longer than this: some hundred times a usual page.
# It has one intent at least. The next link goes on.
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
# Rows that the event loop reads in addition to the rows of the page: well under a millisecond.
ROWS_READ_MAX: Final = 500


async def search(database: Reader, query: IntentQuery, moment: Moment, client: str = "") -> Page:
    """A page of intents in the order of commits, with their statuses at `moment`; at most `PAGE_BYTES_MAX` long.

    `client` is the address of the client that waits for it. Raises `InvalidParameter` for too large an offset, and
    `DeadlineExceeded` when too many rows would have to be read.
    """
    if not query.deadlines:
        return EMPTY
    if query.is_long:
        if not await has_row_after(database, "intents", query, client):
            return EMPTY
        query.check_offset()
    heads = [Head.of(row, moment) for row in await _rows(database, query, store.expiry(moment), client)]
    bytes_max = query.bytes_max or PAGE_BYTES_MAX
    records: list[str] = []
    length = 1
    for group in store.groups(heads[: query.limit]):
        for record in await store.listed(database, group):
            length += 1 + utf8_length(record)
            if records and length > bytes_max:
                return Page(records, heads[len(records) - 1].seq, has_more=True, first_seq=heads[0].seq)
            records.append(record)
    first, last = (heads[0].seq, heads[len(records) - 1].seq) if records else (None, None)
    return Page(records, last, len(heads) > query.limit, first_seq=first)


async def _rows(database: Reader, query: IntentQuery, ended: tuple[bytes, bytes], client: str) -> list[Row]:
    """The `HEAD_COLUMNS` of the page's intents, and of one more if there is one; `ended` is the `store.expiry`."""
    within = await timed_scope(database, "intents", query)
    parts: list[Part] = []
    is_long = query.is_long
    for generation in query.generations:
        chosen, walks_far = await _parts(database, planned(query, generation, ended))
        parts += chosen
        is_long = is_long or walks_far
    keys, parameters = page_keys(LISTED, parts, within, query)
    direction = "ASC" if query.sort == 1 else "DESC"
    sql = f"SELECT {HEAD_COLUMNS} FROM intents i WHERE i.seq IN ({keys}) ORDER BY i.seq {direction}"
    if is_long:
        return await database.fetch_slow(sql, parameters, client=client)
    return await database.fetch(sql, parameters)


async def _parts(database: Reader, plan: Plan) -> tuple[tuple[Part, ...], bool]:
    """The rows to choose from, and whether a search of them may read many rows."""
    if not plan.tried:
        return plan.parts, False
    first = await _first_few(database, plan.tried)
    if first is not None and plan.tests_rows:
        return plan.tried[first], False
    return plan.parts, first is None


async def _first_few(database: Reader, tried: Sequence[tuple[Part, ...]]) -> int | None:
    """The first of `tried` whose parts have at most `ROWS_READ_MAX` rows each, before their conditions are tested."""
    cases, parameters = list[LiteralString](), list[object]()
    for number, parts in enumerate(tried):
        more = list[LiteralString]()
        for _, few, tables in parts:
            if few is not None:
                more.append(f"EXISTS (SELECT 1 FROM {tables or LISTED.tables} WHERE {few.sql} LIMIT 1 OFFSET ?)")
                parameters += [*few.values, ROWS_READ_MAX]
        cases.append(f"WHEN NOT ({' OR '.join(more)}) THEN {number_text(number)}")
    ((first,),) = await database.fetch(f"SELECT CASE {' '.join(cases)} END", parameters)
    return first
