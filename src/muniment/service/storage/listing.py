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

The eleventh row shows that another page follows. The records are read by these numbers, so that no other record is
read. A first page is simpler where the index gives the rows in order: one statement reads numbers and records. Several
such parts are merged by SQLite only up to the end of the page; PostgreSQL might sort all their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, LiteralString, NamedTuple

from muniment.service.storage.pages import PageStatements, RecordSource, by_key
from muniment.service.storage.scopes import SEQ_MAX, PageRequest, Scope
from muniment.service.storage.sql import Condition, Where

# A planner does not push outer conditions into a subquery that has a limit; pushed in, they could make it walk another
# index from end to end (https://sqlite.org/optoverview.html, "the push-down optimization"). 2^63 - 1 never limits.
# Without it a page of active triggers takes 1 s and more among a million on either engine, instead of 0.1 ms.
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


class Part(NamedTuple):
    """Rows of a listing that one index finds; no two parts of a listing have a row in common.

    An index has the rows in the order of `seq`; or `few` finds few rows, which are sorted. `conditions` also hold.
    """

    conditions: tuple[Condition, ...] = ()
    few: Condition | None = None
    # The tables with the index, where they are others than those of the listing, such as a join.
    tables: LiteralString | None = None


def at_time(statements: PageStatements, now_ms: Callable[[], int]) -> PageStatements:
    """The statements with the present time in place of `NOW`."""
    if NOW not in statements.parameters:
        return statements
    now = now_ms()
    return statements._replace(parameters=[now if each is NOW else each for each in statements.parameters])


def page_statements(
    listed: Listed, parts: Sequence[Part], within: Scope, request: PageRequest, *, as_written: bool
) -> PageStatements:
    """The statements for a page; `as_written` is that of the reader (`Reader.plans_as_written`)."""
    source = RecordSource(listed.tables, listed.seq, listed.record, request.sort)
    if request.offset or any(part.few for part in parts) or (len(parts) > 1 and not as_written):
        keys, parameters = page_keys(listed, parts, within, request)
        records = by_key(source, keys)
    else:
        chosen = [_chosen(listed, part, within) for part in parts]
        keys, records = _in_order(listed, tuple(tables for tables, _ in chosen), request.sort)
        parameters = [*(each for _, parameters in chosen for each in parameters), request.limit + 1, request.offset]
    return PageStatements(keys, records, source, parameters, request.limit, request.bytes_max, is_long=request.is_long)


def page_keys(
    listed: Listed, parts: Sequence[Part], within: Scope, request: PageRequest
) -> tuple[LiteralString, list[object]]:
    """The statement for the numbers of a page's rows and one row more, with its parameters."""
    chosen = [_chosen(listed, part, within) for part in parts]
    sql = _keys(listed.seq, tuple(tables for tables, _ in chosen), request.sort)
    if len(chosen) == 1:
        return sql, [*chosen[0][1], request.limit + 1, request.offset]
    reach = min(request.offset + request.limit + 1, SEQ_MAX)
    inner = [each for _, parameters in chosen for each in (*parameters, reach)]
    return sql, [*inner, request.limit + 1, request.offset]


def unindexed(*conditions: Condition) -> tuple[Condition, ...]:
    """The same conditions in a form that keeps a planner from using another index for them.

    Without it some pages of intents take 1 s instead of 0.1 ms among a million.
    """
    return tuple(Condition(f"CASE WHEN {sql} THEN 1 ELSE 0 END = 1", values) for sql, values in conditions)


def _chosen(listed: Listed, part: Part, within: Scope) -> tuple[LiteralString, list[object]]:
    """The SQL after FROM for the rows of a part, and its parameters."""
    where = Where.all_of(*within.conditions(listed.seq), *part.conditions)
    tables = part.tables or listed.tables
    if part.few is None:
        return f"{tables}{where.sql}", where.parameters
    few = f"(SELECT {listed.columns} FROM {tables} WHERE {part.few.sql} {_FENCE}) few"
    return f"{few}{where.sql}", [*part.few.values, *where.parameters]


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _in_order(listed: Listed, chosen: tuple[LiteralString, ...], sort: int) -> tuple[LiteralString, LiteralString]:
    """The statements for the numbers, and for the numbers and records, of a first page."""
    return _merged(listed.seq, chosen, sort), _merged(f"{listed.seq}, {listed.record}", chosen, sort)


def _merged(columns: LiteralString, chosen: tuple[LiteralString, ...], sort: int) -> LiteralString:
    rows = " UNION ALL ".join(f"SELECT {columns} FROM {each}" for each in chosen)
    return f"{rows} ORDER BY 1 {'ASC' if sort == 1 else 'DESC'} LIMIT ? OFFSET ?"


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _keys(seq: LiteralString, chosen: tuple[LiteralString, ...], sort: int) -> LiteralString:
    direction = "ASC" if sort == 1 else "DESC"
    if len(chosen) == 1:  # the offset applies directly to the index
        return f"SELECT {seq} AS seq FROM {chosen[0]} ORDER BY {seq} {direction} LIMIT ? OFFSET ?"
    parts = " UNION ALL ".join(
        f"SELECT * FROM (SELECT {seq} AS seq FROM {each} ORDER BY {seq} {direction} LIMIT ?) part" for each in chosen
    )
    return f"{parts} ORDER BY 1 {direction} LIMIT ? OFFSET ?"
