"""Intents of the last day by hour and status, for an overview."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.protocol.errors import DeadlineExceeded
from muniment.service.resources.intents.store import STATUS_AS_READ, expiry
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from muniment.protocol.intents.lifecycle import Moment
    from muniment.service.running.clock import Clock
    from muniment.service.storage.database import Database

HOUR_MS: Final = 3_600_000
HOURS: Final = 24
# How long a count is reused: it reads every intent of a day.
_KEPT_MS: Final = 30_000


class Hour(NamedTuple):
    """The intents that arrived in one hour (UTC): its beginning in milliseconds since 1970, and counts by status."""

    begin_ms: int
    counts: Counter[str]


async def count_by_hour(database: Database, moment: Moment) -> list[Hour]:
    """The last 24 hours, oldest first, the last being the present one. Raises `DeadlineExceeded`.

    The statuses are those that clients see at `moment`.
    """
    last = moment.now_ms // HOUR_MS
    found = {(last - age) * HOUR_MS: Counter[str]() for age in reversed(range(HOURS))}
    since = min(found)
    rows = await database.fetch_slow(
        f"SELECT created_at_ms / {number_text(HOUR_MS)} AS hour, {STATUS_AS_READ} AS seen, count(*) "
        "FROM intents WHERE created_at_ms >= ? GROUP BY 1, 2",
        (*expiry(moment), since),
    )
    for hour, status, count in rows:
        if (begin_ms := hour * HOUR_MS) in found:  # a row may be dated ahead of this process
            found[begin_ms][status] += count
    return [Hour(begin_ms, counts) for begin_ms, counts in found.items()]


class HourlyCounts:
    """The counts of a process: counted at most twice a minute, once for concurrent readers."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Count on the first read."""
        self._database = database
        self._clock = clock
        self._until_ms = 0
        self._known: list[Hour] | None = None
        self._counting = asyncio.Lock()

    async def read(self, moment: Moment) -> list[Hour] | None:
        """The counts; None while there are too many intents to count them in time."""
        async with self._counting:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._until_ms:
                try:
                    self._known = await count_by_hour(self._database, moment)
                except DeadlineExceeded:
                    self._known = None
                self._until_ms = now_ms + _KEPT_MS
            return self._known
