"""The scope of a page: bounds on `seq`, the order of commits, for the times and the cursor of a request.

`created_at_ms` follows `seq`, with known exceptions (`storage.dating`). So one look into an index turns a bound on the
time into a bound on `seq`.

Example: "created after 12:00, oldest first, after the cursor of row 40". The newest row that is not after 12:00 is
row 77, so the page begins after row 77. If times may differ by 15 s, it begins after the newest row that is not after
11:59:45, and the query also checks the time of each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple, Protocol

from muniment.service.storage.dating import times_differ
from muniment.service.storage.epoch import settled_seq
from muniment.service.storage.sql import Condition, Where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.storage.database import Reader

# The largest integer that SQLite and PostgreSQL hold; no row has it.
SEQ_MAX: Final = 2**63 - 1


class _Cursor(Protocol):
    @property
    def seq(self) -> int: ...


class PageRequest(Protocol):
    """The page of a listing that a client wants; the queries of all listings have these members."""

    @property
    def sort(self) -> int:
        """1: oldest first; -1: newest first."""
        ...

    @property
    def offset(self) -> int:
        """The number of rows to skip."""
        ...

    @property
    def offset_max(self) -> int:
        """The largest offset that is walked."""
        ...

    @property
    def limit(self) -> int:
        """The number of rows in a page."""
        ...

    @property
    def cursor(self) -> _Cursor | None:
        """The page begins after the row of this cursor."""
        ...

    @property
    def is_long(self) -> bool:
        """Whether the page skips too many rows to be read on the event loop."""
        ...

    @property
    def bytes_max(self) -> int | None:
        """The most bytes of the page; None: no limit."""
        ...


class TimedPageRequest(PageRequest, Protocol):
    """A page of a table whose rows have a time, `created_at_ms`: milliseconds since 1970."""

    @property
    def created_after(self) -> int | None:
        """Exclusive."""
        ...

    @property
    def created_before(self) -> int | None:
        """Inclusive."""
        ...


class Scope(NamedTuple):
    """The rows among which a page is found.

    There is one bound on each side: SQLite walks an index from one bound, and tests each row for any other.
    """

    # Both exclusive.
    above: int = 0
    below: int = SEQ_MAX
    # The exact times that the client wants, if the bounds are wider.
    exact_times: tuple[Condition, ...] = ()

    def conditions(self, seq: LiteralString = "seq") -> list[Condition]:
        """The scope as conditions on a row; `seq` is the column of the number."""
        chosen = list(self.exact_times)
        if self.above > 0:
            chosen.append(Condition(f"{seq} > ?", (self.above,)))
        if self.below < SEQ_MAX:
            chosen.append(Condition(f"{seq} < ?", (self.below,)))
        return chosen


async def scope(database: Reader, request: PageRequest) -> Scope:
    """The scope of a listing without times. Oldest first, it ends below the rows among which others may appear."""
    cursor = request.cursor
    if request.sort == 1:
        return Scope(above=cursor.seq if cursor else 0, below=await settled_seq(database))
    return Scope(below=cursor.seq if cursor else SEQ_MAX)


async def timed_scope(database: Reader, table: LiteralString, request: TimedPageRequest) -> Scope:
    """The scope of a listing of `table`, whose rows have times."""
    within = await scope(database, request)
    if request.created_after is None and request.created_before is None:
        return within
    slack_ms = await times_differ(database)
    above, below, exact = within.above, within.below, list[Condition]()
    # `+ 0` keeps the planner from the index on the time, so that it walks the rows in the order of `seq`.
    if request.created_after is not None:
        last = await _first_seq(database, table, "<= ? ORDER BY created_at_ms DESC, seq DESC",
                                request.created_after - slack_ms)  # fmt: skip
        above = max(above, last or 0)
        exact.append(Condition("created_at_ms + 0 > ?", (request.created_after,)))
    if request.created_before is not None:
        first = await _first_seq(database, table, "> ? ORDER BY created_at_ms, seq", request.created_before + slack_ms)
        below = min(below, first or SEQ_MAX)
        exact.append(Condition("created_at_ms + 0 <= ?", (request.created_before,)))
    return within._replace(above=above, below=below, exact_times=tuple(exact) if slack_ms else ())


async def _first_seq(database: Reader, table: LiteralString, condition: LiteralString, time_ms: int) -> int | None:
    """The number of the first row whose `created_at_ms` fulfils a condition; None when no row does."""
    sql = f"SELECT seq FROM {table} WHERE created_at_ms {condition} LIMIT 1"
    rows = await database.fetch(sql, (time_ms,))
    return rows[0][0] if rows else None


async def has_row_after(database: Reader, table: LiteralString, request: PageRequest, client: str) -> bool:
    """Whether rows may follow the offset of a long page; a short walk or none decides it.

    Numbers begin at 1, so their maximum bounds the count. On PostgreSQL they have gaps, so an offset too large to walk
    needs a count of as many rows as can be walked. Raises `DeadlineExceeded`.
    """
    ((last,),) = await database.fetch(f"SELECT max(seq) FROM {table}")
    if (last or 0) <= request.offset or request.offset <= request.offset_max:
        return (last or 0) > request.offset
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT ?) counted"
    ((count,),) = await database.fetch_slow(sql, (request.offset_max + 1,), client=client)
    return count > request.offset_max


async def are_few(database: Reader, table: LiteralString, conditions: Sequence[Condition], rows_max: int) -> bool:
    """Whether each of `conditions`, which all have an index, holds for at most `rows_max` rows of `table`."""
    for condition, values in conditions:
        sql = f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1 OFFSET ?"
        if await database.fetch(sql, (*values, rows_max)):
            return False
    return True


async def first_rows(
    database: Reader, table: LiteralString, conditions: Sequence[Condition], within: Scope, *, sort: int, count: int
) -> Scope:
    """The part of `within` up to its row number `count` + 1 that fulfils `conditions`, which an index answers.

    It is `within` itself if there are fewer rows.
    """
    where = Where.all_of(*within.conditions(), *conditions)
    direction = "ASC" if sort == 1 else "DESC"
    sql = f"SELECT seq FROM {table}{where.sql} ORDER BY seq {direction} LIMIT 1 OFFSET ?"
    rows = await database.fetch(sql, (*where.parameters, count))
    if not rows:
        return within
    ((seq,),) = rows
    return within._replace(below=seq + 1) if sort == 1 else within._replace(above=seq - 1)
