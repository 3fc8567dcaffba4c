"""Removes old runs that made no intents. Runs with intents stay, as the intents do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.service.storage.sql import SWEPT_PER_BATCH, placeholders

if TYPE_CHECKING:
    from muniment.service.storage.database import Transaction

DAY_MS = 24 * 60 * 60 * 1000
# Rows that a statement removes: SQLite keeps them in memory until it ends, and a run has up to 250 KB.
_REMOVED_TOGETHER = 20


async def remove_old(tx: Transaction, older_than_ms: int) -> int:
    """Remove at most `SWEPT_PER_BATCH` runs without intents that arrived before that time; returns their number.

    The time is in milliseconds since 1970. The newest run stays, because cursors are compared with its number.
    """
    rows = await tx.fetch(
        """SELECT seq FROM runs WHERE result <> 'intents' AND created_at_ms < ?
           AND seq < (SELECT max(seq) FROM runs) ORDER BY created_at_ms LIMIT ?""",
        (older_than_ms, SWEPT_PER_BATCH),
    )
    for start in range(0, len(rows), _REMOVED_TOGETHER):
        seqs = [seq for (seq,) in rows[start : start + _REMOVED_TOGETHER]]
        marks = placeholders(len(seqs))
        await tx.execute(f"DELETE FROM run_records WHERE run_seq IN ({marks})", seqs)
        await tx.execute(f"DELETE FROM runs WHERE seq IN ({marks})", seqs)
    return len(rows)
