"""Which intent a hash belongs to: its own, that of a proposal, or that of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.service.storage.database import Reader

_PROPOSALS: Final = "intent_proposals p JOIN intents i ON i.seq = p.intent_seq"
# Each arm is one look into an index; a transaction may have carried several intents, of which the newest is found. The
# transactions are those that operators named; those that only the chain reported have no index.
_ARMS: Final = (
    "SELECT hash, 1, seq FROM intents WHERE hash = ?",
    f"SELECT i.hash, 2, i.seq FROM {_PROPOSALS} WHERE p.hash = ?",
    "SELECT hash, 3, seq FROM intents WHERE transaction_hash = ?",
    f"SELECT i.hash, 3, i.seq FROM {_PROPOSALS} WHERE p.transaction_hash = ?",
)
_SQL: Final = f"{' UNION ALL '.join(_ARMS)} ORDER BY 2, 3 DESC LIMIT 1"


async def find_by_hash(database: Reader, given: bytes) -> bytes | None:
    """The hash of the intent that `given` (32 bytes) names: its own, else a proposal's, else a transaction's."""
    rows = await database.fetch(_SQL, (given,) * len(_ARMS))
    return rows[0][0] if rows else None
