"""Counts the rows of a table for listings by offset; rows that were counted once are not counted again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.storage.database import Reads

# Rows that one statement counts on the event loop, in some ten microseconds.
_STEP: Final = 1_000
# Rows that one long read counts, in some milliseconds.
_LONG_STEP: Final = 100_000
_INTEGER_MAX: Final = 2**63 - 1


async def has_row_behind(
    database: Reads, table: str, offset: int, client: str, *, step: int = _STEP, long_step: int = _LONG_STEP
) -> bool:
    """Whether `table` has more than `offset` rows. It counts the rows that were added since the last call.

    `client` is the address of the client that waits (see `Reads.fetch_slow`). Raises `DeadlineExceeded`; the next call
    goes on from the rows that were counted by then.
    """
    counted = database.rows_counted
    visible = f"AND seq < {database.visible_before} " if database.visible_before else ""
    sql = (
        f"SELECT count(*), max(seq) FROM (SELECT seq FROM {table} WHERE seq > ? {visible}"  # noqa: S608 - text of a store
        "ORDER BY seq LIMIT ?) added"
    )
    fetch = database.fetch
    while True:
        last, count = counted.get(table, (0, 0))
        if count > offset:
            return True
        ((added, newest),) = await fetch(sql, (last, step))
        if added:
            last, count = newest, count + added
            # Another request may have counted further meanwhile.
            counted[table] = max(counted.get(table, (0, 0)), (last, count))
        if added < step:
            break
        fetch, step = partial(database.fetch_slow, client=client), long_step
    if count > offset or not visible:
        return count > offset
    # Other rows may still appear between the rest, so the rest is counted each time.
    sql = f"SELECT count(*) FROM (SELECT seq FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?) uncounted"  # noqa: S608 - text of a store
    ((uncounted,),) = await database.fetch_slow(sql, (last, min(offset - count + 1, _INTEGER_MAX)), client=client)
    return count + uncounted > offset
