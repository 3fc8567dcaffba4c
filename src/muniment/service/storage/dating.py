"""Gives times to new rows. Times follow the order of commits, except for known differences that listings allow for.

A new row has the time of its request. If the latest row is a little ahead of that time, as happens between processes,
the new row takes the time of the latest row, so that the order holds. A large difference is stored in
`time_differences` by the transaction that adds the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.service.storage.database import Reader, Transaction

# A row may be dated this far ahead of its request: a clock can be wrong by this much before the service notices.
AHEAD_MS_MAX: Final = 5 * 60 * 1000
# The times of requests in one commit differ by this much at most.
_USUAL_MS: Final = 15_000
_DIFFERENCE: Final = "SELECT COALESCE(MAX(differ_ms), 0) FROM time_differences"


def usual_time(now_ms: int, newest_ms: int) -> int | None:
    """As `date_row`; None when a transaction must decide, because the latest row is far ahead."""
    return max(now_ms, newest_ms) if newest_ms - now_ms <= _USUAL_MS else None


async def date_row(tx: Transaction, now_ms: int, newest_ms: int) -> int:
    """The time of a new row, requested at `now_ms`, in a table whose latest time is `newest_ms`."""
    if (time_ms := usual_time(now_ms, newest_ms)) is not None:
        return time_ms
    ahead_ms = newest_ms - now_ms
    ((differ_ms,),) = await tx.fetch(_DIFFERENCE)
    if ahead_ms <= differ_ms:
        return now_ms
    if ahead_ms <= AHEAD_MS_MAX:
        return newest_ms
    # Rounded up to a power of two; otherwise each later row could add another difference.
    await tx.execute(
        "INSERT INTO time_differences (differ_ms, noted_at_ms) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (1 << ahead_ms.bit_length(), now_ms),
    )
    return now_ms


async def times_differ(reader: Reader) -> int:
    """How far, in milliseconds, the time of a row may be ahead of the time of a row committed later."""
    ((differ_ms,),) = await reader.fetch(_DIFFERENCE)
    return max(differ_ms, reader.times_differ_ms)
