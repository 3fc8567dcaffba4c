"""The statements that read a page of a listing; `storage.pages` runs them.

A listing shows the rows of one table that fulfil some conditions, in the order of `seq`, the order of commits. The cost
of a page depends on its own rows, not on the length of the table: an index gives the rows in order, without a sort.

If no single index does that, the rows are split into parts that have no row in common, each with its own index.
Example: the active triggers are the `live` ones that have not ended since the last sweep, and the few that a sweep
marked too early. The second page of ten, newest first, merges the first 21 numbers of both parts:

    SELECT * FROM (SELECT seq FROM triggers WHERE live = 1 AND … ORDER BY seq DESC LIMIT 21) part
    UNION ALL
    SELECT * FROM (SELECT seq FROM (SELECT * FROM triggers WHERE live = 0 AND … LIMIT 9223372036854775807) few
                   ORDER BY seq DESC LIMIT 21) part
    ORDER BY 1 DESC LIMIT 11 OFFSET 10

The eleventh row shows that another page follows. Then the records are read by these numbers, so that no other record
is read. A first page whose parts are all in order is simpler: SQLite reads its records in one statement without inner
limits, because it merges the parts only up to the end of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, LiteralString, NamedTuple

from muniment.service.storage.pages import PageStatements, RecordSource
from muniment.service.storage.scopes import SEQ_MAX, PageRequest, Scope, TimedPageRequest
from muniment.service.storage.sql import Condition, Where

# A planner does not push outer conditions into a subquery that has a limit; pushed in, they could make it walk another
# index from end to end (https://sqlite.org/optoverview.html, "the push-down optimization"). 2^63 - 1 never limits.
_FENCE: Final = "LIMIT 9223372036854775807"
# Texts of statements kept: all combinations of filters, lengths of lists aside.
_STATEMENTS_KEPT: Final = 512
# Stands for the time of the request among the values of a condition, so that statements can be kept.
NOW: Final = object()


class Listed(NamedTuple):
    """The table of a listing, or joined tables, with the columns of the number and of the record."""

    tables: LiteralString
    seq: LiteralString = "seq"
    record: LiteralString = "record"
    # The columns that conditions name; a subquery for `Part.few` selects only these.
    columns: LiteralString = "*"
    # The table with its index on the time. If times follow the order and the time is the only filter, the page walks
    # this index, and an offset skips entries of the index, not rows. None: there is no such index.
    by_time: LiteralString | None = None


class Part(NamedTuple):
    """Rows of a listing that one index finds; no two parts of a listing have a row in common.

    An index has the rows in the order of `seq`; or `few` finds few rows, which are sorted. `conditions` also hold.
    """

    conditions: tuple[Condition, ...] = ()
    few: Condition | None = None
    # The tables with the index, where they are others than those of the listing, such as a join.
    tables: LiteralString | None = None


class Rows(NamedTuple):
    """The rows of a listing: all parts, and the conditions that hold in every one of them."""

    parts: tuple[Part, ...] = (Part(),)
    everywhere: tuple[Condition, ...] = ()
    # The same rows, split so that indexes alone answer all conditions: SQLite then skips many rows without reading
    # them. None: use `parts`.
    parts_of_long_walk: tuple[Part, ...] | None = None


def at_time(statements: PageStatements, now_ms: int) -> PageStatements:
    """The statements with a time in place of `NOW`."""
    return statements._replace(parameters=[now_ms if each is NOW else each for each in statements.parameters])


def page_statements(listed: Listed, rows: Rows, within: Scope, request: TimedPageRequest) -> PageStatements:
    """The statements for a page of a table whose rows have times."""
    if listed.by_time and request.offset and within.times_follow and rows.parts == (Part(),) and not rows.everywhere:
        return _by_time(listed, listed.by_time, within, request)
    parts = rows.parts
    if within.merges_unions and request.is_long and rows.parts_of_long_walk is not None:
        parts = rows.parts_of_long_walk
    is_in_order = all(part.few is None for part in parts) and (within.merges_unions or len(parts) == 1)
    if is_in_order and not request.offset:
        return in_order(listed, rows._replace(parts=parts), within, request)
    keys, parameters = page_keys(listed, rows._replace(parts=parts), within, request)
    return _with_records(listed, keys, parameters, within, request)


def in_order(listed: Listed, rows: Rows, within: Scope, request: PageRequest) -> PageStatements:
    """The statements for a page whose parts are all in order, merged only up to the end of the page."""
    chosen = [_chosen(listed, part, rows, within) for part in rows.parts]
    keys, records = _in_order(listed, tuple(tables for tables, _ in chosen), request.sort)
    parameters = [each for _, parameters in chosen for each in parameters]
    return _statements(listed, keys, records, parameters, request)


def page_keys(listed: Listed, rows: Rows, within: Scope, request: PageRequest) -> tuple[LiteralString, list[object]]:
    """The statement for the numbers of a page's rows and one row more, with its parameters."""
    return merged_page_keys([(listed, rows, within)], request)


def merged_page_keys(
    listings: Sequence[tuple[Listed, Rows, Scope]], request: PageRequest
) -> tuple[LiteralString, list[object]]:
    """The same for a page of several listings whose rows have no number in common, in one order."""
    chosen = [_chosen(listed, part, rows, within) for listed, rows, within in listings for part in rows.parts]
    sql = _keys(tuple(tables for tables, _ in chosen), request.sort)
    if len(chosen) == 1:
        return sql, [*chosen[0][1], request.limit + 1, request.offset]
    reach = min(request.offset + request.limit + 1, SEQ_MAX)
    inner = [each for _, parameters in chosen for each in (*parameters, reach)]
    return sql, [*inner, request.limit + 1, request.offset]


def unindexed(*conditions: Condition) -> tuple[Condition, ...]:
    """The same conditions in a form that keeps a planner from using another index for them."""
    return tuple(Condition(f"CASE WHEN {sql} THEN 1 ELSE 0 END = 1", values) for sql, values in conditions)


def _by_time(listed: Listed, tables: LiteralString, within: Scope, request: TimedPageRequest) -> PageStatements:
    where = Where()
    where.add_if("created_at_ms > ?", request.created_after)
    where.add_if("created_at_ms <= ?", request.created_before)
    direction = _direction(request.sort)
    keys = f"SELECT seq FROM {tables}{where.sql} ORDER BY created_at_ms {direction}, seq {direction} LIMIT ? OFFSET ?"
    return _with_records(listed, keys, [*where.parameters, request.limit + 1, request.offset], within, request)


def _with_records(
    listed: Listed, keys: LiteralString, parameters: list[object], within: Scope, request: PageRequest
) -> PageStatements:
    """SQLite would sort, and so read, all records before it returns the first; so there they are read by key."""
    records = None if within.merges_unions else _joined(listed, keys, request.sort)
    return _statements(listed, keys, records, parameters[:-2], request)


def _statements(
    listed: Listed,
    keys: LiteralString,
    records: LiteralString | None,
    parameters: Sequence[object],
    request: PageRequest,
) -> PageStatements:
    source = RecordSource(listed.tables, listed.seq, listed.record, request.sort)
    paged = (*parameters, request.limit + 1, request.offset)
    return PageStatements(keys, records, source, paged, request.limit, request.bytes_max, is_long=request.is_long)


def _chosen(listed: Listed, part: Part, rows: Rows, within: Scope) -> tuple[LiteralString, list[object]]:
    """The SQL after FROM for the rows of a part, and its parameters."""
    where = Where.all_of(*rows.everywhere, *within.conditions(listed.seq), *part.conditions)
    tables = part.tables or listed.tables
    if part.few is None:
        return f"{tables}{where.sql}", where.parameters
    few = f"(SELECT {listed.columns} FROM {tables} WHERE {part.few.sql} {_FENCE}) few"
    return f"{few}{where.sql}", [*part.few.values, *where.parameters]


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _in_order(listed: Listed, chosen: tuple[LiteralString, ...], sort: int) -> tuple[LiteralString, LiteralString]:
    return _merged(listed.seq, chosen, sort), _merged(f"{listed.seq}, {listed.record}", chosen, sort)


def _merged(columns: LiteralString, chosen: tuple[LiteralString, ...], sort: int) -> LiteralString:
    arms = " UNION ALL ".join(f"SELECT {columns} FROM {each}" for each in chosen)
    return f"{arms} ORDER BY 1 {_direction(sort)} LIMIT ? OFFSET ?"


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _keys(chosen: tuple[LiteralString, ...], sort: int) -> LiteralString:
    direction = _direction(sort)
    if len(chosen) == 1:  # the offset applies directly to the index
        return f"SELECT seq FROM {chosen[0]} ORDER BY seq {direction} LIMIT ? OFFSET ?"
    parts = " UNION ALL ".join(
        f"SELECT * FROM (SELECT seq FROM {each} ORDER BY seq {direction} LIMIT ?) part" for each in chosen
    )
    return f"{parts} ORDER BY 1 {direction} LIMIT ? OFFSET ?"


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _joined(listed: Listed, keys: LiteralString, sort: int) -> LiteralString:
    return (
        f"SELECT t.{listed.seq}, t.{listed.record} FROM ({keys}) page JOIN {listed.tables} t ON t.seq = page.seq "
        f"ORDER BY t.seq {_direction(sort)}"
    )


def _direction(sort: int) -> LiteralString:
    return "ASC" if sort == 1 else "DESC"
