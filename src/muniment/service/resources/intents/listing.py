"""Pages of intents: for any query, the event loop reads a bounded number of rows.

Every index ends with `seq`, the order of commits, so the rows of one filter are read in that order. A query with more
filters walks along the index of one filter and tests each row for the others. Such a walk finds a page soon, unless
rows that pass the other filters are rare. Then there are two ways: if one filter selects few rows, all of them are
read; otherwise the walk goes to its end in a thread of its own, with a deadline. `plans` says which filter is which.

A page of both generations merges the first rows of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString

from msgspec.structs import replace

from muniment.protocol.intents.types import Generation
from muniment.service.http.paging import EMPTY, Page
from muniment.service.resources.intents import store
from muniment.service.resources.intents.plans import LISTED, Plan, planned
from muniment.service.resources.intents.run_outputs import outputs_of
from muniment.service.resources.intents.store import HEAD_COLUMNS, Head
from muniment.service.storage.listing import Part, page_keys
from muniment.service.storage.pages import utf8_length
from muniment.service.storage.scopes import Scope, are_few, first_rows, has_row_after, timed_scope
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.protocol.intents.lifecycle import Moment
    from muniment.service.resources.intents.plans import Filter
    from muniment.service.resources.intents.queries import IntentQuery
    from muniment.service.resources.intents.run_outputs import Outputs
    from muniment.service.storage.database import Reader, Row

# A page without a cursor ends before the intent that makes its JSON longer than this: some hundred times a usual page.
# It has one intent at least. The next link goes on.
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
# Rows that the event loop reads in addition to the rows of the page: well under a millisecond.
ROWS_WALKED_MAX: Final = 500


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
    outputs = None
    if query.execution_hash is not None:
        outputs = await outputs_of(database, query.execution_hash.raw)
        if outputs is None or not outputs.hashes:
            return EMPTY
    heads = [Head.of(row, moment) for row in await _rows(database, query, store.expiry(moment), outputs, client)]
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


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for the rows of one generation."""

    database: Reader
    query: IntentQuery
    within: Scope
    plan: Plan
    client: str
    # Whether the rows have the `head_columns`, or the number alone.
    reads_heads: bool

    async def rows(self) -> list[Row]:
        """The rows of the page, and one more if there is one."""
        database, query, plan, within = self.database, self.query, self.plan, self.within
        whole = self._statement(within, plan.parts)
        selected = [part.few for part in plan.parts if part.few]
        if query.is_long or not await are_few(database, "intents", selected, ROWS_WALKED_MAX):
            return await database.fetch_slow(*whole, client=self.client)
        if not plan.tests_rows:
            return await database.fetch(*whole)
        if few := await self._few_of(plan.tried_before):
            return await database.fetch(*self._statement(within, plan.parts_of(few)))
        walked = await first_rows(
            database, plan.tables, plan.walked, within, sort=query.sort, count=ROWS_WALKED_MAX
        )  # fmt: skip
        if walked == within:
            return await database.fetch(*whole)
        rows = await database.fetch(*self._statement(walked, plan.parts))
        if len(rows) > query.limit:
            return rows
        if few := await self._few_of(plan.tried_after):
            return await database.fetch(*self._statement(within, plan.parts_of(few)))
        return await database.fetch_slow(*whole, client=self.client)

    async def _few_of(self, tried: Sequence[tuple[Filter, ...]]) -> tuple[Filter, ...]:
        """The first filters of `tried` that select few rows; empty if all select many."""
        for filters in tried:
            for each in filters:
                if not await are_few(self.database, each.tables, [each.index], ROWS_WALKED_MAX):
                    break
            else:
                return filters
        return ()

    def _statement(self, within: Scope, parts: tuple[Part, ...]) -> tuple[LiteralString, list[object]]:
        """The statement for the rows that are chosen from `parts`, and its parameters."""
        keys, parameters = page_keys(LISTED, parts, within, self.query)
        if not self.reads_heads:
            return keys, parameters
        direction = _direction(self.query)
        sql = f"SELECT {HEAD_COLUMNS} FROM ({keys}) page JOIN intents i ON i.seq = page.seq ORDER BY i.seq {direction}"
        return sql, parameters


async def _rows(
    database: Reader, query: IntentQuery, ended: tuple[bytes, bytes], outputs: Outputs | None, client: str
) -> list[Row]:
    """The `head_columns` of the page's intents, and of one more if there is one.

    `ended` is the `store.expiry`; `outputs` is what the query's run made, None without a run.
    """
    generation = query.only_generation
    if generation is None:
        plans = [planned(query, each, ended, outputs) for each in Generation]
        return await _rows_of_all(database, query, plans, client)
    within, plan = await timed_scope(database, "intents", query), planned(query, generation, ended, outputs)
    return await _Search(database, query, within, plan, client, reads_heads=True).rows()


async def _rows_of_all(database: Reader, query: IntentQuery, plans: Sequence[Plan], client: str) -> list[Row]:
    """The `head_columns` for a page of all generations: merge their numbers, then read the rows with these numbers."""
    # They are read one after the other, up to the same number: a reader that follows the order of commits must miss no
    # row of the first that is committed meanwhile.
    within = await timed_scope(database, "intents", query)
    ((last,),) = await database.fetch("SELECT max(seq) FROM intents")
    within = within._replace(below=min(within.below, (last or 0) + 1))
    if query.is_long:
        parts = [part for plan in plans for part in plan.parts]
        rows = await database.fetch_slow(*page_keys(LISTED, parts, within, query), client=client)
        return await _heads(database, query, [seq for (seq,) in rows])
    # The first rows of each generation that may be on the page, with those that the offset skips.
    reach = replace(query, offset=0, limit=query.offset + query.limit)
    numbers: list[int] = []
    for plan in plans:
        search = _Search(database, reach, within, plan, client, reads_heads=False)
        numbers += [seq for (seq,) in await search.rows()]
    numbers.sort(reverse=query.sort != 1)
    return await _heads(database, query, numbers[query.offset : query.offset + query.limit + 1])


async def _heads(database: Reader, query: IntentQuery, numbers: Sequence[int]) -> list[Row]:
    """The `head_columns` of the intents with these numbers."""
    if not numbers:
        return []
    marks = placeholders(len(numbers))
    sql = f"SELECT {HEAD_COLUMNS} FROM intents i WHERE i.seq IN ({marks}) ORDER BY i.seq {_direction(query)}"
    return await database.fetch(sql, numbers)


def _direction(query: IntentQuery) -> LiteralString:
    return "ASC" if query.sort == 1 else "DESC"
