"""What happened to a hook: its last attempts, and its dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from muniment.webhooks.types import ATTEMPTS_KEPT

if TYPE_CHECKING:
    from muniment.storage.database import Reader, Transaction


class Attempt(NamedTuple):
    """One request to a receiver. `epoch` and `seq` name its last event and are None for a test.

    `status` is None when no answer came; `outcome` is one word. Times in milliseconds.
    """

    at_ms: int
    epoch: int | None
    seq: int | None
    status: int | None
    took_ms: int
    outcome: str


class DeadLetter(NamedTuple):
    """An event that the receiver refused, and the status with which it did so."""

    epoch: int
    seq: int
    at_ms: int
    status: int


async def note_attempts(tx: Transaction, hook_id: bytes, attempts: list[Attempt]) -> None:
    """Keep the last `ATTEMPTS_KEPT` attempts, these among them.

    Call it behind `store.lock`, `update` or `store_progress` in the same transaction: then the row of the hook is
    there, and attempts are numbered one after the other.
    """
    ((last,),) = await tx.fetch("SELECT coalesce(max(n), 0) FROM webhook_attempts WHERE hook = ?", (hook_id,))
    for n, attempt in enumerate(attempts[-ATTEMPTS_KEPT:], last + 1):
        await tx.execute(
            """INSERT INTO webhook_attempts (hook, n, at_ms, epoch, seq, status, took_ms, outcome)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            (hook_id, n, *attempt),
        )
    newest = last + min(len(attempts), ATTEMPTS_KEPT)
    await tx.execute("DELETE FROM webhook_attempts WHERE hook = ? AND n <= ?", (hook_id, newest - ATTEMPTS_KEPT))


async def attempts(reader: Reader, hook_id: bytes) -> list[Attempt]:
    """The attempts that are kept, the newest first."""
    rows = await reader.fetch(
        """SELECT at_ms, epoch, seq, status, took_ms, outcome FROM webhook_attempts
           WHERE hook = ? ORDER BY n DESC LIMIT ?""",
        (hook_id, ATTEMPTS_KEPT),
    )
    return [Attempt(*row) for row in rows]


async def set_aside(tx: Transaction, hook_id: bytes, letter: DeadLetter) -> int:
    """Note an event that the receiver refuses; the number of dead letters now. Call it as `note_attempts`."""
    await tx.execute(
        """INSERT INTO webhook_dead_letters (hook, epoch, seq, at_ms, status) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT DO NOTHING""",
        (hook_id, *letter),
    )
    ((count,),) = await tx.fetch("SELECT count(*) FROM webhook_dead_letters WHERE hook = ?", (hook_id,))
    return count


async def dead_letters(reader: Reader | Transaction, hook_id: bytes) -> list[DeadLetter]:
    """The dead letters of a hook in the order of their events."""
    rows = await reader.fetch(
        "SELECT epoch, seq, at_ms, status FROM webhook_dead_letters WHERE hook = ? ORDER BY at_ms, seq", (hook_id,)
    )
    return [DeadLetter(*row) for row in rows]


async def forget_dead_letters(tx: Transaction, hook_id: bytes) -> None:
    """Remove the dead letters of a hook: it begins again."""
    await tx.execute("DELETE FROM webhook_dead_letters WHERE hook = ?", (hook_id,))


async def forget(tx: Transaction, hook_id: bytes) -> None:
    """Remove the attempts and the dead letters of a hook."""
    await tx.execute("DELETE FROM webhook_attempts WHERE hook = ?", (hook_id,))
    await forget_dead_letters(tx, hook_id)
