"""The times of rows. They follow the order of commits but for known differences, which listings allow for.

A new row takes the time at which it was asked for, whatever the rows before it say. Where the newest of those is ahead
by what processes of one machine may differ in, it takes that time too, so that the order holds. By how much it does not
hold is kept in `time_differences`, in the transaction that adds the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.storage.database import Reads, Transaction

# A row may be dated ahead by this much: as much as a clock may be moved before that is noticed.
AHEAD_MS_MAX: Final = 5 * 60 * 1000
# Those who wait for a commit at the same moment come as late as this.
_USUAL_MS: Final = 15_000
_DIFFERENCE: Final = "SELECT COALESCE(MAX(differ_ms), 0) FROM time_differences"


async def date_row(tx: Transaction, now_ms: int, newest_ms: int) -> int:
    """The time of a new row, asked for at `now_ms`, in a table whose latest time is `newest_ms`."""
    ahead_ms = newest_ms - now_ms
    if ahead_ms <= 0:
        return now_ms
    if ahead_ms <= _USUAL_MS:
        return newest_ms
    ((differ_ms,),) = await tx.fetch(_DIFFERENCE)
    if ahead_ms <= differ_ms:
        return now_ms
    if ahead_ms <= AHEAD_MS_MAX:
        return newest_ms
    # To the next power of two: a row for each of the times that follow would be many.
    await tx.execute(
        "INSERT INTO time_differences (differ_ms, noted_at_ms) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (1 << ahead_ms.bit_length(), now_ms),
    )
    return now_ms


async def times_differ(reads: Reads) -> int:
    """By how many milliseconds the time in a row may be ahead of the time in a later one."""
    ((differ_ms,),) = await reads.fetch(_DIFFERENCE)
    return max(differ_ms, reads.times_differ_ms)
