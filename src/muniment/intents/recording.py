"""The one function behind the three doors: how intents, proposals, logs and moves are recorded.

Each write first locks the intent's row, so that writers of one intent take turns, in one process or many. What is
written twice is written once: a repetition is accepted and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.auth import operators
from muniment.errors import IntentFull, IntentNotFound, ProposalNotFound
from muniment.evm.hex import Bytes32, HexString
from muniment.intents import chain_facts as evidence, merging as joining
from muniment.intents.lifecycle import INTENT_MOVES, PROPOSAL_MOVES, check_move, status_as_read
from muniment.intents.merging import Facts, Held
from muniment.intents.types import LOGS_MAX, Hashed
from muniment.storage.dating import date_row
from muniment.storage.sql import placeholders
from muniment.wire import DateTime, encode, iso_time

if TYPE_CHECKING:
    from muniment.intents.rules import CheckedIntent, CheckedLog, CheckedProposal
    from muniment.intents.types import StatusChange
    from muniment.storage.database import Transaction


class _Unchanging(Hashed, frozen=True):
    """The members of an intent that stay as they are: its `record`."""

    hash: Bytes32
    execution_hash: HexString
    created_at: DateTime


async def record(tx: Transaction, checked: CheckedIntent, author: str, now_ms: int, grace_s: int) -> bool:
    """Record an intent, or merge it into what is recorded of it; whether that changed anything.

    `author` is the operator's name, for the audit log.

    What is recorded of it stays: its status only moves forward, a transaction is set once, proposals and logs join
    those that are there. Raises `StatusConflict`, `IntentDiffers`, `IntentFull`; then nothing of it is recorded.
    """
    held = await _lock(tx, checked.hash, now_ms, grace_s)
    seq = await _insert(tx, checked, now_ms, grace_s) if held is None else None
    if seq is None:  # it was there, or came from another writer in between
        held = held or await _lock(tx, checked.hash, now_ms, grace_s)
        if held is None:
            raise RuntimeError("an intent that was there is gone; none is ever deleted")
        seq = await _merge(tx, held, checked)
    if seq is not None:
        await evidence.settle(tx, seq, now_ms, grace_s)
    await operators.enter(tx, author, "record", checked.hash, now_ms)
    return seq is not None


async def append_proposal(
    tx: Transaction, intent_hash: bytes, proposal: CheckedProposal, author: str, now_ms: int, grace_s: int
) -> str:
    """Append a proposal; the one that is recorded, as JSON.

    Raises `IntentNotFound`, `IntentFull`, and for one that is recorded `StatusConflict`, `IntentDiffers`.
    """
    held = await _found(tx, intent_hash, now_ms, grace_s)
    count, is_changed = await joining.join_proposals(tx, held, [proposal])
    if is_changed:
        await _update(tx, held, held.said, count, held.log_count)
        await evidence.settle(tx, held.seq, now_ms, grace_s)
    await operators.enter(tx, author, "append proposal", intent_hash, now_ms)
    ((recorded,),) = await tx.fetch("SELECT record FROM intent_proposals WHERE hash = ?", (proposal.hash,))
    return recorded


async def append_log(tx: Transaction, intent_hash: bytes, log: CheckedLog, author: str, now_ms: int) -> str:
    """Append a log line; the one that is recorded, as JSON. Raises `IntentNotFound`, `IntentFull`."""
    rows = await tx.fetch(
        f"SELECT seq, log_count FROM intents WHERE hash = ?{tx.for_update}",  # noqa: S608 - text of ours
        (intent_hash,),
    )
    if not rows:
        raise IntentNotFound("no intent is recorded under this hash")
    ((seq, count),) = rows
    recorded = joining.shown_log(log)
    added = await tx.execute(
        """INSERT INTO intent_logs (intent_seq, n, identity, record) VALUES (?, ?, ?, ?)
           ON CONFLICT (intent_seq, identity) DO NOTHING""",
        (seq, count + 1, log.identity, recorded),
    )
    if added and count >= LOGS_MAX:
        raise IntentFull(f"an intent has at most {LOGS_MAX} logs")
    if added:
        await tx.execute("UPDATE intents SET log_count = ?, version = version + 1 WHERE seq = ?", (count + 1, seq))
    else:
        ((recorded,),) = await tx.fetch(
            "SELECT record FROM intent_logs WHERE intent_seq = ? AND identity = ?", (seq, log.identity)
        )
    await operators.enter(tx, author, "append log", intent_hash, now_ms)
    return recorded


async def move(
    tx: Transaction, intent_hash: bytes, change: StatusChange, author: str, now_ms: int, grace_s: int
) -> None:
    """Move an intent by one step of its diagram, or the proposal that is named by one or more of its own.

    The status that it has, or that operators gave it last, is no move and no fault. A transaction that is told of the
    intent is also that of the one proposal which is accepted or submitted, if exactly one is. Raises `IntentNotFound`,
    `ProposalNotFound`, `InvalidIntent`, `StatusConflict`, `IntentDiffers`.
    """
    held = await _found(tx, intent_hash, now_ms, grace_s)
    if change.proposal is None:
        if change.status != held.said.status:
            check_move(INTENT_MOVES, held.reads_as, change.status, several=False)
        said = joining.joined(held, change.status, change)
        is_changed, of = said != held.said, ""
        if change.transaction_hash is not None:
            is_changed = await joining.name_transaction(tx, held.seq, change.transaction_hash) or is_changed
    else:
        known = (await joining.fetch_proposals(tx, held.seq, [change.proposal.raw])).get(change.proposal.raw)
        if known is None:
            raise ProposalNotFound("the intent has no proposal with this hash")
        if change.status != known.said.status:
            check_move(PROPOSAL_MOVES, known.reads_as, change.status, several=True)
        is_changed = await joining.update_proposal(tx, held.seq, known, joining.joined(known, change.status, change))
        said, of = held.said, "proposal "
    if is_changed:
        await _update(tx, held, said, held.proposal_count, held.log_count)
        await evidence.settle(tx, held.seq, now_ms, grace_s)
    await operators.enter(tx, author, f"move {of}to {change.status}", intent_hash, now_ms)


async def _lock(tx: Transaction, intent_hash: bytes, now_ms: int, grace_s: int) -> Held | None:
    """The intent's row, which no other transaction changes until this one ends."""
    rows = await tx.fetch(
        f"""SELECT seq, status, transaction_hash, dest_transaction_hash, chain_status, deadline,
                   chain_transaction_hash, proposal_count, log_count
            FROM intents WHERE hash = ?{tx.for_update}""",  # noqa: S608 - text of ours
        (intent_hash,),
    )
    for seq, status, transaction_hash, dest_hash, chain_status, deadline, *rest in rows:
        reads_as = status_as_read(chain_status or status, int.from_bytes(deadline), now_ms, grace_s)
        return Held(seq, Facts(status, transaction_hash, dest_hash), reads_as, *rest)
    return None


async def _found(tx: Transaction, intent_hash: bytes, now_ms: int, grace_s: int) -> Held:
    held = await _lock(tx, intent_hash, now_ms, grace_s)
    if held is None:
        raise IntentNotFound("no intent is recorded under this hash")
    return held


async def _insert(tx: Transaction, checked: CheckedIntent, now_ms: int, grace_s: int) -> int | None:
    """Record an intent that is not there with all that is said of it; its seq, or None when it is there after all."""
    new = checked.new
    newest = await tx.fetch_one("SELECT created_at_ms FROM intents ORDER BY created_at_ms DESC LIMIT 1")
    created_at_ms = await date_row(tx, now_ms, newest[0] if newest else 0)
    # Operators cannot let an intent expire; one that is said to have expired was created, and its deadline does it.
    status = "created" if new.status in (None, "expired") else new.status
    rows = await tx.fetch(
        f"""INSERT INTO intents
             (hash, user_address, settler, config_sig, op, deadline, status, standing, transaction_hash,
              dest_transaction_hash, proposal_count, log_count, created_at_ms, record)
           VALUES ({placeholders(14)}) ON CONFLICT (hash) DO NOTHING RETURNING seq""",  # noqa: S608 - ? only
        (
            checked.hash, new.user.raw, new.settler.raw, new.config_sig.raw, new.op, int(new.deadline).to_bytes(32),
            status, status_as_read(status, int(new.deadline), now_ms, grace_s), joining.raw(new.transaction_hash),
            joining.raw(new.dest_transaction_hash), len(checked.proposals), len(checked.logs), created_at_ms,
            _unchanging(checked, created_at_ms),
        ),
    )  # fmt: skip
    for (seq,) in rows:
        await joining.insert_proposals(tx, seq, 0, checked.proposals)
        await joining.insert_logs(tx, seq, 0, checked.logs)
        return seq
    return None


async def _merge(tx: Transaction, held: Held, checked: CheckedIntent) -> int | None:
    """Add to an intent what is new; its seq, or None when nothing is."""
    new = checked.new
    if new.status is not None and new.status != held.said.status:
        check_move(INTENT_MOVES, held.reads_as, new.status, several=True)
    said = joining.joined(held, new.status, new)
    is_executed = await joining.join_execution(tx, held.seq, new.execution_hash)
    proposal_count, is_proposed = await joining.join_proposals(tx, held, checked.proposals)
    log_count = await joining.join_logs(tx, held, checked.logs)
    if said == held.said and log_count == held.log_count and not is_executed and not is_proposed:
        return None
    await _update(tx, held, said, proposal_count, log_count)
    return held.seq


async def _update(tx: Transaction, held: Held, said: Facts, proposal_count: int, log_count: int) -> None:
    """Write what has changed into the intent's row."""
    standing = held.reads_as if said.status == held.said.status else said.status
    await tx.execute(
        """UPDATE intents SET status = ?, transaction_hash = ?, dest_transaction_hash = ?, standing = ?,
                  proposal_count = ?, log_count = ?, version = version + 1 WHERE seq = ?""",
        (*said, standing, proposal_count, log_count, held.seq),
    )


def _unchanging(checked: CheckedIntent, created_at_ms: int) -> str:
    """The record of a new intent."""
    new = checked.new
    members = _Unchanging(
        **{name: getattr(new, name) for name in Hashed.__struct_fields__},
        hash=Bytes32.from_raw(checked.hash), execution_hash=new.execution_hash, created_at=iso_time(created_at_ms),
    )  # fmt: skip
    return encode(members).decode()
