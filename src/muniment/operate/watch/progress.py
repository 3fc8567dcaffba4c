"""Rows of the watcher: its lease, its progress on each chain, and the block hashes that reveal a reorganisation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muniment.chains.nodes import Block
from muniment.service.storage.leases import Lease, LeaseLostError
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.operate.watch.limits import WatchLimits
    from muniment.protocol.evm.address import Address
    from muniment.service.storage.database import Transaction

# A process that has not renewed its lease for this long is dead. A write waits less for a busy database.
LEASE_MS: Final = 15_000
_LEASE: Final = Lease("intents watch", LEASE_MS)
take_lease, renew_lease, release_lease = _LEASE.take, _LEASE.renew, _LEASE.release


@dataclass(frozen=True, slots=True)
class Followed:
    """The stored progress of a chain: its newest kept block, and the settlers to follow next.

    `settlers` are those with the least progress, and `next_block` is their next block; None: they have no progress. The
    nearest of the chain's other settlers is at `others_at`.
    """

    newest: Block | None
    settlers: tuple[Address, ...]
    next_block: int | None
    others_at: int | None = None


async def read_progress(tx: Transaction, chain_id: int, settlers: Sequence[Address]) -> Followed:
    """The progress of those of `settlers` with the least progress."""
    rows = await tx.fetch("SELECT settler, next_block FROM chain_progress WHERE chain_id = ?", (chain_id,))
    known: dict[bytes, int] = dict(rows)
    newest = next(iter(await kept_blocks(tx, chain_id, below=None, limit=1)), None)
    if not_begun := tuple(each for each in settlers if each.raw not in known):
        return Followed(newest, not_begun, None)
    lowest, *higher = sorted({known[each.raw] for each in settlers})
    last = tuple(each for each in settlers if known[each.raw] == lowest)
    return Followed(newest, last, lowest, higher[0] if higher else None)


async def kept_blocks(tx: Transaction, chain_id: int, *, below: int | None, limit: int) -> list[Block]:
    """The newest kept blocks, newest first; with `below`, only blocks with lower numbers."""
    bound, given = ("AND number < ?", (below,)) if below is not None else ("", ())
    rows = await tx.fetch(
        f"SELECT number, hash FROM chain_blocks WHERE chain_id = ? {bound} ORDER BY number DESC LIMIT ?",
        (chain_id, *given, limit),
    )
    return [Block(*row) for row in rows]


async def begin(tx: Transaction, chain_id: int, settlers: Sequence[Address], block: int, below: Block | None) -> None:
    """Store the first block to follow for settlers without progress; `below` is the block under it, if known."""
    for settler in settlers:
        await tx.execute(
            "INSERT INTO chain_progress (chain_id, settler, next_block) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (chain_id, settler.raw, block),
        )
    if below is not None:
        await _keep(tx, chain_id, [below])


async def advance(
    tx: Transaction, chain_id: int, settlers: Sequence[Address], first: int, seen: Sequence[Block], limits: WatchLimits
) -> None:
    """Store that the blocks from `first` to the last of `seen` were followed, and keep the hashes of `seen`.

    Raises `LeaseLostError` when another process has changed the progress.
    """
    moved = await tx.execute(
        f"""UPDATE chain_progress SET next_block = ?
            WHERE chain_id = ? AND next_block = ? AND settler IN ({placeholders(len(settlers))})""",
        (seen[-1].number + 1, chain_id, first, *(settler.raw for settler in settlers)),
    )
    if moved != len(settlers):
        raise LeaseLostError
    await _keep(tx, chain_id, seen)
    await tx.execute(
        """DELETE FROM chain_blocks WHERE chain_id = ? AND number <= (
             SELECT number FROM chain_blocks WHERE chain_id = ? ORDER BY number DESC LIMIT 1 OFFSET ?)
           AND EXISTS (SELECT 1 FROM chain_blocks AS lower WHERE lower.chain_id = chain_blocks.chain_id
             AND lower.number < chain_blocks.number
             AND lower.number >= chain_blocks.number - chain_blocks.number % ?)""",
        (chain_id, chain_id, limits.blocks_kept, limits.blocks_between),
    )


async def _keep(tx: Transaction, chain_id: int, blocks: Sequence[Block]) -> None:
    for block in blocks:
        await tx.execute(
            """INSERT INTO chain_blocks (chain_id, number, hash) VALUES (?, ?, ?)
               ON CONFLICT (chain_id, number) DO UPDATE SET hash = excluded.hash""",
            (chain_id, block.number, block.hash),
        )


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Facts that one call removed: their lowest block, their subjects and their number.

    `is_last`: no facts remain from the requested block on.
    """

    block: int
    subjects: list[bytes]
    facts: int
    is_last: bool


async def roll_back(
    tx: Transaction, chain_id: int, down_to: int, facts_max: int, lock: Callable[[list[bytes]], Awaitable[None]]
) -> RolledBack:
    """Remove facts from block `down_to` on: the highest blocks first, about `facts_max` facts in one call.

    First it calls `lock` with their subjects, so that all writers lock intents in the same order. All settlers of the
    chain are followed again from there, because they share its blocks.
    """
    rows = await tx.fetch(
        """SELECT block_number FROM executions WHERE chain_id = ? AND block_number >= ?
           ORDER BY block_number DESC LIMIT 1 OFFSET ?""",
        (chain_id, down_to, facts_max),
    )
    block = rows[0][0] if rows else down_to
    rows_about = await tx.fetch(
        "SELECT DISTINCT subject FROM executions WHERE chain_id = ? AND block_number >= ?", (chain_id, block)
    )
    subjects = [subject for (subject,) in rows_about]
    await lock(subjects)
    facts = await tx.execute("DELETE FROM executions WHERE chain_id = ? AND block_number >= ?", (chain_id, block))
    await tx.execute("DELETE FROM chain_blocks WHERE chain_id = ? AND number >= ?", (chain_id, block))
    await tx.execute(
        "UPDATE chain_progress SET next_block = ? WHERE chain_id = ? AND next_block > ?", (block, chain_id, block)
    )
    return RolledBack(block, subjects, facts, is_last=not rows)


async def first_known(tx: Transaction, chain_id: int) -> int | None:
    """The lowest block with a fact or a kept hash."""
    row = await tx.fetch_one(
        """SELECT MIN(lowest) FROM (
             SELECT MIN(number) AS lowest FROM chain_blocks WHERE chain_id = ?
             UNION ALL SELECT MIN(block_number) FROM executions WHERE chain_id = ?) AS known""",
        (chain_id, chain_id),
    )
    return row[0] if row else None


async def registry_age_s(tx: Transaction, now_ms: int) -> float:
    """Seconds since this database was made; nothing was followed before. 0 if that time is in the future."""
    ((made_at_ms,),) = await tx.fetch("SELECT MIN(applied_at_ms) FROM schema_migrations")
    return max(0, now_ms - made_at_ms) / 1000
