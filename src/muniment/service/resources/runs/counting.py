"""How many runs were recorded in the last day, by result."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import DeadlineExceeded
from muniment.service.running.kept import Kept

if TYPE_CHECKING:
    from muniment.service.running.clock import Clock
    from muniment.service.storage.database import Database

_DAY_MS: Final = 86_400_000
# How long a count is reused: it reads every run of a day.
_KEPT_MS: Final = 30_000


async def count_by_result(database: Database, now_ms: int) -> Counter[str]:
    """The runs that were recorded in the 24 hours before `now_ms`, by result. Raises `DeadlineExceeded`."""
    rows = await database.fetch_slow(
        "SELECT result, count(*) FROM runs WHERE created_at_ms > ? GROUP BY result", (now_ms - _DAY_MS,)
    )
    counts = Counter[str]()
    for result, count in rows:
        counts[result] = count
    return counts


class DailyCounts:
    """The counts of a process: counted at most twice a minute, once for concurrent readers."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Count on the first read."""
        self._database = database
        self._kept = Kept[Counter[str] | None](clock, _KEPT_MS)

    async def read(self, now_ms: int) -> Counter[str] | None:
        """The counts; None while there are too many runs to count them in time."""

        async def count() -> Counter[str] | None:
            try:
                return await count_by_result(self._database, now_ms)
            except DeadlineExceeded:
                return None

        return await self._kept.read(count)
