"""What came of the runs of the last day, and of the newest runs of triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from muniment.protocol.runs.outcomes import PUBLISHED_MS, Tally
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.storage.database import Database, Reader

# How many, by result, reason, and whether the intent is lost.
Outcomes: TypeAlias = dict[tuple[str, str | None, bool], int]
_DAY_MS: Final = 86_400_000
# Whether the first intent of a run is not recorded, though the run has been for a while.
_IS_LOST: Final = (
    "CASE WHEN result = 'intents' AND created_at_ms <= ? "
    # Its block is canonical: some relayer has not taken its record back.
    "AND EXISTS (SELECT 1 FROM run_records r WHERE r.run_seq = runs.seq AND r.orphaned_at_ms IS NULL) "
    "AND NOT EXISTS (SELECT 1 FROM intents i WHERE i.hash = substr(outputs, 1, 32)) THEN 1 ELSE 0 END AS is_lost"
)


async def count_by_outcome(database: Database, now_ms: int) -> Outcomes:
    """The runs that were recorded in the 24 hours before `now_ms`. Raises `DeadlineExceeded`."""
    rows = await database.fetch_slow(
        # Not by the column itself: SQLite would walk all runs by the index of results.
        f"SELECT result || '', reason, {_IS_LOST}, count(*) FROM runs WHERE created_at_ms > ? GROUP BY 1, 2, 3",
        (now_ms - PUBLISHED_MS, now_ms - _DAY_MS),
    )
    return {(result, reason, bool(is_lost)): count for result, reason, is_lost, count in rows}


async def count_by_trigger(
    reader: Reader, sigs: Sequence[bytes], most: int, now_ms: int, client: str
) -> dict[bytes, Tally]:
    """What came of the newest `most` runs of each trigger with these signatures. Raises `DeadlineExceeded`."""
    if not sigs:
        return {}
    order = "seq" if reader.plans_as_written else "(seq + 0)"  # as the index of each engine ends
    arms = " UNION ALL ".join(
        f"SELECT {number_text(number)}, result, reason, is_lost, count(*) FROM (SELECT result, reason, {_IS_LOST} "
        "FROM runs WHERE trigger_seq = (SELECT t.seq FROM triggers t WHERE t.sig = ?) "
        f"ORDER BY {order} DESC LIMIT {number_text(most)}) newest GROUP BY 2, 3, 4"
        for number in range(len(sigs))
    )
    parameters = [each for sig in sigs for each in (now_ms - PUBLISHED_MS, sig)]
    tallies = {sig: Tally() for sig in sigs}
    for number, result, reason, is_lost, count in await reader.fetch_slow(arms, parameters, client=client):
        tallies[sigs[number]].add_run(result, reason, is_lost=bool(is_lost), count=count)
    return tallies
