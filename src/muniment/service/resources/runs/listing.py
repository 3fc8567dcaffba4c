"""Pages of runs: each combination of filters has an index with the rows in the order of commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from muniment.service.http.paging import EMPTY, Page
from muniment.service.resources.runs import store
from muniment.service.resources.triggers.terms import numbers_of
from muniment.service.storage.listing import Listed, Part, page_keys
from muniment.service.storage.pages import utf8_length
from muniment.service.storage.scopes import has_row_after, timed_scope
from muniment.service.storage.sql import Condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.resources.runs.queries import RunQuery
    from muniment.service.storage.database import Reader, Row

# A page without a cursor ends before the run that makes its JSON longer than this, as one of intents does.
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
# The records of runs that are read together.
_GROUP_BYTES_MAX: Final = 1024 * 1024
_LISTED: Final = Listed("runs", columns="seq, created_at_ms")
# For filters on PostgreSQL, whose indexes end with this expression: the planner cannot walk the primary key instead.
_FILTERED: Final = Listed("runs", seq="seq + 0")


async def search(database: Reader, query: RunQuery, client: str = "") -> Page:
    """A page of runs in the order of commits, at most `PAGE_BYTES_MAX` long.

    `client` is the address of the client that waits for it. Raises `InvalidParameter` for too large an offset, and
    `DeadlineExceeded` when too many rows would have to be skipped.
    """
    if query.is_long:
        if query.trigger_sigs is not None or not await has_row_after(database, "runs", query, client):
            return EMPTY
        query.check_offset()
    found = await _listed(database, query)
    if found is None:
        return EMPTY
    heads = await _heads(database, query, *found, client)
    bytes_max = query.bytes_max or PAGE_BYTES_MAX
    records: list[str] = []
    length, last = 1, None
    for group in _groups(heads[: query.limit]):
        for seq, record in await store.listed(database, group):
            length += 1 + utf8_length(record)
            if records and length > bytes_max:
                return Page(records, last, has_more=True, first_seq=heads[0][0])
            records.append(record)
            last = seq
    return Page(records, last, len(heads) > query.limit, first_seq=heads[0][0] if records else None)


async def _listed(database: Reader, query: RunQuery) -> tuple[Listed, Part] | None:
    """The rows for a query, and how they are ordered; None: there are none."""
    chosen = list[Condition]()
    if query.relayer is not None:
        chosen.append(Condition("relayer = ?", (query.relayer.raw,)))
    if query.result is not None:
        chosen.append(Condition("result = ?", (query.result,)))
    filtered = _LISTED if database.plans_as_written else _FILTERED
    sigs = query.trigger_sigs or ([query.trigger_sig] if query.trigger_sig is not None else [])
    if not sigs:
        return filtered if chosen else _LISTED, Part(tuple(chosen))
    triggers = await numbers_of(database, sigs)
    if not triggers:
        return None
    if query.latest is None:
        return filtered, Part((Condition("trigger_seq = ?", tuple(triggers)), *chosen))
    return _LISTED, Part(few=_newest(triggers, chosen, filtered.seq))


def _newest(triggers: Sequence[int], chosen: Sequence[Condition], order: LiteralString) -> Condition:
    """The newest run of each of these triggers among those that are chosen."""
    where: LiteralString = "".join([f" AND {condition.sql}" for condition in chosen])
    values = tuple(value for condition in chosen for value in condition.values)
    newest: LiteralString = f"(SELECT max({order}) FROM runs WHERE trigger_seq = ?{where})"
    arms: LiteralString = ", ".join([newest for _ in triggers])
    return Condition(f"seq IN ({arms})", tuple(each for trigger in triggers for each in (trigger, *values)))


async def _heads(database: Reader, query: RunQuery, listed: Listed, part: Part, client: str) -> list[Row]:
    """The numbers of the page's runs and the lengths of their records, and of one more if there is one."""
    within = await timed_scope(database, "runs", query)
    keys, parameters = page_keys(listed, [part], within, query)
    direction = "ASC" if query.sort == 1 else "DESC"
    sql = f"SELECT r.seq, r.record_bytes FROM ({keys}) page JOIN runs r ON r.seq = page.seq ORDER BY r.seq {direction}"
    if query.is_long:
        return await database.fetch_slow(sql, parameters, client=client)
    return await database.fetch(sql, parameters)


def _groups(heads: Sequence[Row]) -> list[list[int]]:
    """The numbers in their order, in groups whose records are short enough to be read together."""
    made: list[list[int]] = []
    length = _GROUP_BYTES_MAX
    for seq, record_bytes in heads:
        length += record_bytes
        if not made or length > _GROUP_BYTES_MAX:
            made.append([])
            length = record_bytes
        made[-1].append(seq)
    return made
