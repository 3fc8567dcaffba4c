"""How many triggers are active, and how many of each function."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from muniment.service.resources.triggers.store import EARLY, ENDED
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.storage.database import Database, Reader


class Signed(NamedTuple):
    """Triggers of a function that the last sweep found active, and their signers."""

    triggers: int
    signers: int


async def count_active(database: Database, now_ms: int) -> int:
    """The active triggers: those of the last sweep, but for the few that it has wrong. Raises `DeadlineExceeded`."""
    ((live, ended, early),) = await database.fetch_slow(
        f"""SELECT (SELECT count(*) FROM triggers WHERE live = 1), (SELECT count(*) FROM triggers WHERE {ENDED}),
                   (SELECT count(*) FROM triggers WHERE {EARLY})""",
        (now_ms, now_ms),
    )
    return live - ended + early


async def count_by_function(reader: Reader, digests: Sequence[bytes], most: int) -> dict[bytes, Signed]:
    """The active triggers of each function by its digest, at most `most` of each, and the signers of these."""
    if not digests:
        return {}
    counts = " UNION ALL ".join(
        f"SELECT {number_text(number)}, count(*), count(DISTINCT signer) FROM (SELECT signer FROM triggers "
        "WHERE function_digest = ? AND live = 1 LIMIT ?) counted"
        for number in range(len(digests))
    )
    rows = await reader.fetch(counts, [value for digest in digests for value in (digest, most)])
    return {digests[number]: Signed(triggers, signers) for number, triggers, signers in rows}
