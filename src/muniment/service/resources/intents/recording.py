"""How intents, proposals, logs and moves are recorded, for the endpoints of operators and for imports.

Each write first locks the intent's row, so that writers of one intent take turns, in one process or many. The first
fact stays, and a repetition is accepted without effect. Proposals and logs are rows of their own (`proposals`,
`logs`); after a change the chain facts that are known decide again about the status (`chain_facts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple

import msgspec

from muniment.protocol.errors import IntentDiffers, IntentNotFound, ProposalNotFound
from muniment.protocol.intents.generations import SECOND, generation_of
from muniment.protocol.intents.lifecycle import (
    INTENT_MOVES,
    PROPOSAL_MOVES,
    SUCCEEDED,
    Claim,
    Moment,
    Recorded,
    status_as_read,
)
from muniment.protocol.intents.types import LOGS_MAX, NewIntent, record_of
from muniment.service.auth import operators
from muniment.service.resources.intents import logs, proposals
from muniment.service.resources.intents.chain_facts import apply_chain_facts
from muniment.service.resources.intents.nonces import hold, keep
from muniment.service.resources.intents.store import insert_rows, with_members
from muniment.service.storage.dating import date_row
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.protocol.evm.hex import HexString
    from muniment.protocol.intents.rules import CheckedIntent, CheckedLog, CheckedProposal
    from muniment.protocol.intents.types import AnyNewIntent, NewOperationsIntent, StatusChange
    from muniment.service.storage.database import Transaction


class _LockedIntent(NamedTuple):
    """An intent's row, which no other transaction changes until this one ends."""

    seq: int
    generation: int
    recorded: Recorded
    proposal_count: int
    log_count: int


async def record(tx: Transaction, checked: CheckedIntent, author: str, moment: Moment) -> bool:
    """Record an intent, or merge it into the recorded one; whether that changed anything.

    A merge moves the status forward, sets a transaction once, and adds proposals and logs that are new. `author` is
    the operator's name, for the audit log. Raises `NonceTaken`, `StatusConflict`, `IntentDiffers`, `IntentFull`; then
    nothing is recorded. An import may record a past intent whose nonce another intent holds.
    """
    seq, moved_to = await _insert_or_merge(tx, checked, moment, may_share=author == operators.IMPORT)
    if seq is not None:
        await apply_chain_facts(tx, seq, moment)
    await operators.enter(tx, author, "record", checked.hash, moment.now_ms)
    if moved_to is not None and author != operators.IMPORT:  # the time of an import is not the time of the move
        await operators.enter(tx, author, f"{operators.MOVE}{moved_to}", checked.hash, moment.now_ms)
    return seq is not None


async def append_proposal(
    tx: Transaction, intent_hash: bytes, proposal: CheckedProposal, author: str, moment: Moment
) -> str:
    """Append a proposal, or merge it into the recorded one; the proposal as it is recorded then, as JSON.

    Raises `IntentNotFound`, `IntentFull`; for a recorded one `StatusConflict`, `IntentDiffers`.
    """
    intent = await _locked(tx, intent_hash, moment)
    count, is_changed = await proposals.merge(tx, intent.seq, intent.proposal_count, [proposal])
    if is_changed:
        await _update(tx, intent._replace(proposal_count=count), intent.recorded.claim, moment.now_ms)
        await apply_chain_facts(tx, intent.seq, moment)
    await operators.enter(tx, author, "append proposal", intent_hash, moment.now_ms)
    return await proposals.recorded(tx, proposal.hash)


async def append_log(tx: Transaction, intent_hash: bytes, log: CheckedLog, author: str, now_ms: int) -> str:
    """Append a log line, unless it is recorded; the recorded one, as JSON. Raises `IntentNotFound`, `IntentFull`."""
    seq, count = await _locked_for_log(tx, intent_hash)
    recorded = logs.shown(log)
    if await logs.append(tx, seq, count + 1, log):
        if count >= LOGS_MAX:
            raise logs.full()
        sql = "UPDATE intents SET log_count = ?, version = version + 1, changed_at_ms = ? WHERE seq = ?"
        await tx.execute(sql, (count + 1, now_ms, seq))
    else:
        recorded = await logs.recorded(tx, seq, log.identity)
    await operators.enter(tx, author, "append log", intent_hash, now_ms)
    return recorded


async def _locked_for_log(tx: Transaction, intent_hash: bytes) -> tuple[int, int]:
    """Lock an intent; its number, and the count of its log lines."""
    sql = f"SELECT seq, log_count FROM intents WHERE hash = ?{tx.for_update}"
    for seq, count in await tx.fetch(sql, (intent_hash,)):
        return seq, count
    raise _not_found()


async def move(tx: Transaction, intent_hash: bytes, change: StatusChange, author: str, moment: Moment) -> None:
    """Move an intent by one step, or the proposal that `change` names by one or more.

    The status that it has, or that operators sent last, is no move and no fault. Raises `IntentNotFound`,
    `ProposalNotFound`, `InvalidIntent`, `StatusConflict`, `IntentDiffers`.
    """
    intent = await _locked(tx, intent_hash, moment)
    if change.proposal is None:
        claim, is_changed = await _move_intent(tx, intent, change)
        action = operators.MOVE if claim.status != intent.recorded.claim.status else "repeat "
    else:
        claim, is_changed = intent.recorded.claim, await _move_proposal(tx, intent, change.proposal.raw, change)
        action = "move proposal to "
    if is_changed:
        await _update(tx, intent, claim, moment.now_ms)
        await apply_chain_facts(tx, intent.seq, moment)
    await operators.enter(tx, author, f"{action}{change.status}", intent_hash, moment.now_ms)


async def _move_intent(tx: Transaction, intent: _LockedIntent, change: StatusChange) -> tuple[Claim, bool]:
    """The claim after the move, and whether anything changed.

    The intent's transaction is also that of its proposal under way, if exactly one is.
    """
    claim = intent.recorded.merge(change.status, change, diagram=INTENT_MOVES, several=False)
    is_changed = claim != intent.recorded.claim
    if change.transaction_hash is not None:
        is_changed = await proposals.name_transaction(tx, intent.seq, change.transaction_hash) or is_changed
    return claim, is_changed


async def _move_proposal(tx: Transaction, intent: _LockedIntent, proposal_hash: bytes, change: StatusChange) -> bool:
    """Move a proposal; whether anything changed."""
    row = (await proposals.fetch(tx, intent.seq, [proposal_hash])).get(proposal_hash)
    if row is None:
        raise ProposalNotFound("the intent has no proposal with this hash")
    claim = row.recorded.merge(change.status, change, diagram=PROPOSAL_MOVES, several=True)
    return await proposals.update(tx, intent.seq, row, claim)


async def _lock(tx: Transaction, intent_hash: bytes, moment: Moment) -> _LockedIntent | None:
    rows = await tx.fetch(
        f"""SELECT seq, generation, status, transaction_hash, dest_transaction_hash, chain_status, deadline,
                   chain_transaction_hash, proposal_count, log_count
            FROM intents WHERE hash = ?{tx.for_update}""",
        (intent_hash,),
    )
    for seq, generation, status, transaction_hash, dest_hash, chain_status, deadline, chain_hash, *counts in rows:
        reads_as = status_as_read(chain_status or status, int.from_bytes(deadline), moment)
        recorded = Recorded(Claim(status, transaction_hash, dest_hash), reads_as, chain_hash)
        return _LockedIntent(seq, generation, recorded, *counts)
    return None


async def _locked(tx: Transaction, intent_hash: bytes, moment: Moment) -> _LockedIntent:
    if (intent := await _lock(tx, intent_hash, moment)) is None:
        raise _not_found()
    return intent


def _not_found() -> IntentNotFound:
    return IntentNotFound("no intent is recorded under this hash")


async def _insert_or_merge(
    tx: Transaction, checked: CheckedIntent, moment: Moment, *, may_share: bool
) -> tuple[int | None, str | None]:
    """The number of an intent that is new or has changed, else None; and the status after a move.

    The status is None for a new intent, and for one that did not move.
    """
    intent = await _lock(tx, checked.hash, moment)
    if intent is None:
        if (seq := await _insert(tx, checked, moment, may_share=may_share)) is not None:
            return seq, None
        intent = await _lock(tx, checked.hash, moment)  # another writer has recorded it since
    if intent is None:
        raise RuntimeError("a recorded intent has vanished, although intents are never deleted")
    claim, is_changed = await _merge(tx, intent, checked, moment.now_ms)
    return intent.seq if is_changed else None, claim.status if claim.status != intent.recorded.claim.status else None


async def _insert(tx: Transaction, checked: CheckedIntent, moment: Moment, *, may_share: bool) -> int | None:
    """Record an intent with its proposals and logs; its number, or None when another writer has recorded it."""
    new = checked.new
    newest = await tx.fetch_one("SELECT created_at_ms FROM intents ORDER BY created_at_ms DESC LIMIT 1")
    created_at_ms = await date_row(tx, moment.now_ms, newest[0] if newest else 0)
    # `expired` is computed, never stored: the intent was created, and its deadline makes it read as expired.
    claim = Claim.of("created" if new.status in (None, "expired") else new.status, new)
    standing = status_as_read(claim.status, int(new.deadline), moment)
    if not isinstance(new, NewIntent):  # before any change, so that a refusal needs no rollback
        has_succeeded = claim.status == SUCCEEDED
        await hold(tx, new, checked.hash, moment, has_succeeded=has_succeeded, may_share=may_share)
    values: dict[LiteralString, object] = {
        "generation": generation_of(new), "hash": checked.hash, "settler": new.settler.raw,
        "deadline": int(new.deadline).to_bytes(32),
        "status": claim.status, "transaction_hash": claim.transaction_hash,
        "dest_transaction_hash": claim.dest_transaction_hash, "standing": standing,
        "proposal_count": len(checked.proposals), "log_count": len(checked.logs), "created_at_ms": created_at_ms,
        "record": record_of(new, checked.hash, created_at_ms),
        **_filtered(new),
    }  # fmt: skip
    rows = await tx.fetch(
        f"""INSERT INTO intents ({", ".join(values)}) VALUES ({placeholders(len(values))})
            ON CONFLICT (hash) DO NOTHING RETURNING seq""",
        list(values.values()),
    )
    for (seq,) in rows:
        if not isinstance(new, NewIntent):
            await _insert_filters(tx, seq, new)
        await proposals.insert(tx, seq, 0, checked.proposals)
        await logs.insert(tx, seq, 0, checked.logs)
        return seq
    return None


def _filtered(new: AnyNewIntent) -> dict[LiteralString, object]:
    """The columns of an intent's row that only its form has, most of them for filters."""
    if isinstance(new, NewIntent):
        return {"user_address": new.user.raw, "trigger_sig": new.config_sig.raw, "op": new.op}
    return {"trigger_sig": new.trigger_sig.raw, "operation_count": len(new.operations)}


async def _insert_filters(tx: Transaction, seq: int, new: NewOperationsIntent) -> None:
    """Add the rows by which listings find an intent of several operations."""
    users = sorted({new.fee_payer.raw, *(each.user.raw for each in new.operations)})
    await insert_rows(tx, "intent_users (address, seq)", [(user, seq) for user in users])
    ops = sorted({each.op_type for each in new.operations})
    await insert_rows(tx, "intent_ops (op_type, seq)", [(op, seq) for op in ops])


async def _merge(
    tx: Transaction, intent: _LockedIntent, checked: CheckedIntent, now_ms: int
) -> tuple[Claim, bool]:  # fmt: skip
    """Merge `checked` into a recorded intent: the claim after that, and whether anything in it is new."""
    new, before = checked.new, intent.recorded.claim
    claim = intent.recorded.merge(new.status, new, diagram=INTENT_MOVES, several=True)
    is_executed = await _set_execution_hash(tx, intent.seq, new.execution_hash)
    proposal_count, is_proposed = await proposals.merge(tx, intent.seq, intent.proposal_count, checked.proposals)
    log_count = await logs.merge(tx, intent.seq, intent.log_count, checked.logs)
    is_changed = claim != before or log_count != intent.log_count or is_executed or is_proposed
    if is_changed:
        await _update(tx, intent._replace(proposal_count=proposal_count, log_count=log_count), claim, now_ms)
    return claim, is_changed


async def _set_execution_hash(tx: Transaction, seq: int, execution_hash: HexString) -> bool:
    """Set the execution hash once; whether it is new. Raises `IntentDiffers` for another than the recorded one."""
    if execution_hash == "0x":
        return False
    ((record,),) = await tx.fetch("SELECT record FROM intents WHERE seq = ?", (seq,))
    known = msgspec.json.decode(record, type=dict[str, Any])["executionHash"]
    if known == execution_hash:
        return False
    if known != "0x":
        raise IntentDiffers(f"recorded with the executionHash {known}, which stays", pointer="/executionHash")
    changed = with_members(record, executionHash=execution_hash)
    await tx.execute("UPDATE intents SET record = ? WHERE seq = ?", (changed, seq))
    return True


async def _update(tx: Transaction, intent: _LockedIntent, claim: Claim, now_ms: int) -> None:
    """Write a claim and the counts of `intent` into its row, at the time `now_ms`."""
    before, reads_as, _ = intent.recorded
    standing = reads_as if claim.status == before.status else claim.status
    await tx.execute(
        """UPDATE intents
           SET status = ?, transaction_hash = ?, dest_transaction_hash = ?, standing = ?, proposal_count = ?,
                log_count = ?, version = version + 1, changed_version = version + 1, changed_at_ms = ?
            WHERE seq = ?""",
        (*claim, standing, intent.proposal_count, intent.log_count, now_ms, intent.seq),
    )
    if claim.status == SUCCEEDED != before.status and intent.generation == SECOND:
        await keep(tx, intent.seq)
