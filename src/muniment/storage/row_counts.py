"""Whether an offset leads behind the last row of a table: what was counted once is not counted again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.storage.database import Reads

# Rows that are counted in one statement on the event loop, some ten microseconds; and elsewhere, some milliseconds.
_STEP: Final = 1_000
_LONG_STEP: Final = 100_000
_INTEGER_MAX: Final = 2**63 - 1


async def has_row_behind(database: Reads, table: str, offset: int, client: str) -> bool:
    """Whether `table` has more than `offset` rows. It costs a look at those that were added since the last time.

    `client` is whoever waits for it (see `Reads.fetch_slow`). Raises `DeadlineExceeded`; what was counted until then is
    known the next time.
    """
    counted = database.rows_counted
    settled = f"AND seq < {database.settled_before} " if database.settled_before else ""
    sql = (
        f"SELECT count(*), max(seq) FROM (SELECT seq FROM {table} WHERE seq > ? {settled}"  # noqa: S608 - text of ours
        "ORDER BY seq LIMIT ?) added"
    )
    fetch, step = database.fetch, _STEP
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
        fetch, step = partial(database.fetch_slow, client=client), _LONG_STEP
    if count > offset or not settled:
        return count > offset
    # Between these rows others may still appear, so they are counted each time.
    sql = f"SELECT count(*) FROM (SELECT seq FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?) unsettled"  # noqa: S608 - text of ours
    ((unsettled,),) = await database.fetch_slow(sql, (last, min(offset - count + 1, _INTEGER_MAX)), client=client)
    return count + unsettled > offset
