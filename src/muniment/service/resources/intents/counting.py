"""What came of the newest intents of triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.protocol.runs.outcomes import Tally, why_undone
from muniment.service.resources.intents.store import STATUS_AS_READ, expiry
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.protocol.intents.lifecycle import Moment
    from muniment.service.storage.database import Reader

# The status as read, whether there are offers, and whether a transaction is known: what the reason is made of.
OUTCOME: Final = (
    f"{STATUS_AS_READ} AS status, CASE WHEN proposal_count > 0 THEN 1 ELSE 0 END AS has_offers, "
    "CASE WHEN COALESCE(chain_transaction_hash, transaction_hash) IS NULL THEN 0 ELSE 1 END AS is_sent"
)


async def count_by_trigger(
    reader: Reader, sigs: Sequence[bytes], most: int, moment: Moment, client: str
) -> dict[bytes, Tally]:
    """What came of the newest `most` intents of each trigger with these signatures, in both generations.

    Raises `DeadlineExceeded`.
    """
    if not sigs:
        return {}
    # By equality PostgreSQL might walk the primary key, past all newer intents of others (`run_outputs.life_of` too).
    newest = " UNION ALL ".join(
        f"SELECT * FROM (SELECT seq, {OUTCOME} FROM intents WHERE generation = {number_text(generation)} "
        f"AND trigger_sig BETWEEN ? AND ? ORDER BY trigger_sig DESC, seq DESC "
        f"LIMIT {number_text(most)}) of_{number_text(generation)}"
        for generation in (1, 2)
    )
    arms = " UNION ALL ".join(
        f"SELECT {number_text(number)}, status, has_offers, is_sent, count(*) FROM (SELECT * FROM ({newest}) of_both "
        f"ORDER BY seq DESC LIMIT {number_text(most)}) newest GROUP BY 2, 3, 4"
        for number in range(len(sigs))
    )
    parameters = [each for sig in sigs for each in (*expiry(moment), sig, sig) * 2]
    tallies = {sig: Tally() for sig in sigs}
    for number, status, has_offers, is_sent, count in await reader.fetch_slow(arms, parameters, client=client):
        why = why_undone(status, has_offers=bool(has_offers), is_sent=bool(is_sent))
        tallies[sigs[number]].add_intent(why, count)
    return tallies
