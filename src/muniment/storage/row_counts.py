"""Counts the rows of a table for listings by offset; each row is counted once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from muniment.storage.database import Reader

# Rows that one statement counts on the event loop, in about ten microseconds.
_STEP: Final = 1_000
# Rows that one long read counts, in a few milliseconds.
_LONG_STEP: Final = 100_000
_INTEGER_MAX: Final = 2**63 - 1


async def has_row_behind(
    database: Reader, table: LiteralString, offset: int, client: str, *, step: int = _STEP, long_step: int = _LONG_STEP
) -> bool:
    """Whether `table` has more than `offset` rows. It counts the rows that were added since the last call.

    `client` is the address of the waiting client (see `Reader.fetch_slow`). Raises `DeadlineExceeded`; the next call
    continues the count.
    """
    counted = database.rows_counted
    visible = f"AND seq < {database.visible_before} " if database.visible_before else ""
    sql = f"SELECT count(*), max(seq) FROM (SELECT seq FROM {table} WHERE seq > ? {visible}ORDER BY seq LIMIT ?) added"
    fetch = database.fetch
    while True:
        last, count = counted.get(table, (0, 0))
        if count > offset:
            return True
        ((added, newest),) = await fetch(sql, (last, step))
        if added:
            last, count = newest, count + added
            # Another request may have counted further in the meantime.
            counted[table] = max(counted.get(table, (0, 0)), (last, count))
        if added < step:
            break
        fetch, step = partial(database.fetch_slow, client=client), long_step
    if count > offset or not visible:
        return count > offset
    # More rows may still appear among the others, so the others are counted each time.
    sql = f"SELECT count(*) FROM (SELECT seq FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?) uncounted"
    ((uncounted,),) = await database.fetch_slow(sql, (last, min(offset - count + 1, _INTEGER_MAX)), client=client)
    return count + uncounted > offset
