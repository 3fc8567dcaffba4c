"""Listings of triggers: the rows for a query, as parts that an index finds (see `storage.listing`).

A trigger is active or not by its end and the present time. The column `live`, for indexes, is the result of the last
sweep. It is wrong for two kinds of rows: rows that ended after the sweep, and rows that a sweep marked too early,
because its clock was ahead. Each kind has its own index.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.ipfs.cid import BundleCid
from muniment.protocol.triggers.types import TRIGGER_SIGS_MAX, TimestampMs
from muniment.service.http.paging import EMPTY, LIST_ELEMENTS_PER_UNIT, Page, PageQuery
from muniment.service.resources.triggers.store import EARLY, ENDED
from muniment.service.storage.listing import NOW, Listed, Part, at_time, page_statements
from muniment.service.storage.pages import PageStatements, read_page
from muniment.service.storage.scopes import Scope, has_row_after, timed_scope
from muniment.service.storage.sql import Condition, placeholders

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.service.storage.database import Reader


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
    created_after: Annotated[TimestampMs, Meta(description="Only later ones (exclusive)")] | None = None
    created_before: Annotated[TimestampMs, Meta(description="Only earlier ones (inclusive)")] | None = None

    @property
    def units(self) -> int:
        """As of any page, and for the signatures that are looked up."""
        return super().units + len(self.sigs or ()) // LIST_ELEMENTS_PER_UNIT


_TABLE: Final = Listed("triggers")
_ACTIVE: Final = "deactivated = 0 AND (end_date_ms = 0 OR end_date_ms > ?)"
# The rows for which `live` is right: the live rows that are active, and the other rows that are not.
_LIVE: Final = Condition("live = 1 AND (end_date_ms = 0 OR end_date_ms > ?)", (NOW,))
_OVER: Final = Condition("live = 0 AND (deactivated = 1 OR end_date_ms <= ?)", (NOW,))
# The rows for which `live` is wrong.
_NOT_YET_OVER: Final = Condition(EARLY, (NOW,))
_ENDED_SINCE: Final = Condition(ENDED, (NOW,))
# `_LIVE` and `_OVER` for a long walk, which reads only indexes: the subquery finds the rows for which `live` is wrong.
# Among a million triggers SQLite takes 0.05 s to skip 100,000 active ones; reading their rows took more than 5 s.
# PostgreSQL may read the list from end to end for every row.
_LIVE_IN_INDEX: Final = Condition(f"live = 1 AND seq NOT IN (SELECT seq FROM triggers WHERE {ENDED})", (NOW,))
_OVER_IN_INDEX: Final = Condition(f"live = 0 AND seq NOT IN (SELECT seq FROM triggers WHERE {EARLY})", (NOW,))
# The indexes have `live` before `seq`: without a condition on `live`, they give the rows in two parts.
_DEAD_OR_LIVE: Final = (Condition("live = 0"), Condition("live = 1"))
# Statements kept, a kilobyte each, for the pages that pollers and wallets read repeatedly.
_PAGES_KEPT: Final = 1_024


async def search(database: Reader, query: TriggerQuery, now_ms: Callable[[], int], client: str = "") -> Page:
    """A page of records in the order of commits.

    `now_ms` is read if the query depends on the time. `client` is the address of the waiting client. Raises
    `InvalidParameter` for too large an offset, and `DeadlineExceeded`.
    """
    if query.is_long:
        if query.sigs is not None or not await has_row_after(database, "triggers", query, client):
            return EMPTY
        query.check_offset()
    within = await timed_scope(database, "triggers", query)
    # A query with a list has no hash, and other clients rarely name the same signatures.
    statements = _statements if query.sigs is None else _statements.__wrapped__
    page = at_time(statements(query, within, database.plans_as_written), now_ms)
    return Page(*await read_page(database, page, client))


@lru_cache(maxsize=_PAGES_KEPT)
def _statements(query: TriggerQuery, within: Scope, as_written: bool) -> PageStatements:  # noqa: FBT001 - a key of the cache
    parts = _parts(query, in_index=query.is_long and as_written)
    return page_statements(_TABLE, parts, within, query, as_written=as_written)


def _parts(query: TriggerQuery, *, in_index: bool) -> list[Part]:
    """The rows for a query; with `in_index` indexes alone answer the conditions, apart from few rows."""
    everywhere: list[Condition] = []
    if query.signer is not None:
        everywhere.append(Condition("signer = ?", (query.signer.raw,)))
    if query.function_cid is not None:
        everywhere.append(Condition("function_digest = ?", (query.function_cid.digest,)))
    if query.sigs is not None:
        few = Condition(f"sig IN ({placeholders(len(query.sigs))})", tuple(sig.raw for sig in query.sigs))
        if query.active is not None:
            everywhere.append(Condition(_ACTIVE if query.active else f"NOT ({_ACTIVE})", (NOW,)))
        return [Part(tuple(everywhere), few)]
    if query.active is not None:
        live, over = (_LIVE_IN_INDEX, _OVER_IN_INDEX) if in_index else (_LIVE, _OVER)
        right, wrong = (live, _NOT_YET_OVER) if query.active else (over, _ENDED_SINCE)
        return [Part((*everywhere, right)), Part(tuple(everywhere), wrong)]
    return [Part((*everywhere, state)) for state in _DEAD_OR_LIVE] if everywhere or in_index else [Part()]
