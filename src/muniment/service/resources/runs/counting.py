"""How many runs were recorded in the last day, by result."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.service.storage.database import Database

_DAY_MS: Final = 86_400_000


async def count_by_result(database: Database, now_ms: int) -> Counter[str]:
    """The runs that were recorded in the 24 hours before `now_ms`, by result. Raises `DeadlineExceeded`."""
    rows = await database.fetch_slow(
        "SELECT result, count(*) FROM runs WHERE created_at_ms > ? GROUP BY result", (now_ms - _DAY_MS,)
    )
    counts = Counter[str]()
    for result, count in rows:
        counts[result] = count
    return counts
