"""How intents, proposals, logs and moves are recorded.

Each write is one transaction. It locks the intent's row, so that writers of one intent take turns, in one process or
many; reads what is recorded; merges; and writes. The first fact stays, and a repetition is accepted without effect.
After a change the chain facts that are known decide again about the status (`chain_facts`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple, TypeAlias

from muniment.protocol.errors import IntentDiffers, IntentNotFound, ProposalNotFound
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.intents.lifecycle import (
    INTENT_MOVES,
    PROPOSAL_MOVES,
    SUCCEEDED,
    Claim,
    Moment,
    Recorded,
    status_as_read,
)
from muniment.protocol.intents.types import FIRST, LOGS_MAX, SECOND, NewIntent, RecordedIntent, RecordedOperationsIntent
from muniment.protocol.wire import encode, iso_time
from muniment.service.resources import operators
from muniment.service.resources.intents import parts, store
from muniment.service.resources.intents.chain_facts import apply_chain_facts
from muniment.service.resources.intents.nonces import hold, keep
from muniment.service.resources.intents.run_outputs import check_run
from muniment.service.storage.dating import date_row
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.protocol.intents.rules import CheckedIntent, CheckedLog, CheckedProposal
    from muniment.protocol.intents.types import AnyNewIntent, NewOperationsIntent, StatusChange
    from muniment.service.storage.database import Transaction

# Called for each change; refuses it by raising, and the transaction stores nothing.
Admit: TypeAlias = Callable[[], object]


def _admit_all() -> None:
    """Refuse no rows."""


class _LockedIntent(NamedTuple):
    """An intent's row, which no other transaction changes until this one ends."""

    seq: int
    generation: int
    recorded: Recorded
    execution_hash: bytes | None
    proposal_count: int
    log_count: int


async def record(
    tx: Transaction, checked: CheckedIntent, author: str, moment: Moment, admit: Admit = _admit_all
) -> bool:  # fmt: skip
    """Record an intent, or merge it into the recorded one; whether that changed anything.

    A merge moves the status forward, sets a transaction once, and adds proposals and logs that are new. `author` is
    the operator's name, for the audit log. Raises `NonceTaken`, `StatusConflict`, `IntentDiffers` (also for an intent
    that the run which it names did not make), `IntentFull`, and what `admit` raises; then nothing is recorded.
    """
    seq = moved_to = None
    intent = await _lock(tx, checked.hash, moment)
    if intent is None:
        admit()
        seq = await _insert(tx, checked, moment)
        if seq is None:  # another writer has recorded it since
            intent = await _locked(tx, checked.hash, moment)
    if intent is not None:
        claim, is_changed = await _merge(tx, intent, checked, moment.now_ms, admit)
        seq = intent.seq if is_changed else None
        moved_to = claim.status if claim.status != intent.recorded.claim.status else None
    if seq is None:
        return False
    await apply_chain_facts(tx, seq, moment)
    await operators.enter(tx, author, "record", checked.hash, moment.now_ms)
    if moved_to is not None:
        await operators.enter(tx, author, f"{operators.MOVE}{moved_to}", checked.hash, moment.now_ms)
    return True


async def append_proposal(
    tx: Transaction,
    intent_hash: bytes,
    proposal: CheckedProposal,
    author: str,
    moment: Moment,
    admit: Admit = _admit_all,
) -> str:
    """Append a proposal, or merge it into the recorded one; the proposal as it is recorded then, as JSON.

    Raises `IntentNotFound`, `IntentFull`; for a recorded one `StatusConflict`, `IntentDiffers`.
    """
    intent = await _locked(tx, intent_hash, moment)
    change = await parts.proposal_change(tx, intent.seq, intent.proposal_count, [proposal])
    if change.added or change.moved:
        admit()
        await parts.apply_proposals(tx, intent.seq, intent.proposal_count, change)
        count = intent.proposal_count + len(change.added)
        await _update(tx, intent._replace(proposal_count=count), intent.recorded.claim, moment.now_ms)
        await apply_chain_facts(tx, intent.seq, moment)
        await operators.enter(tx, author, "append proposal", intent_hash, moment.now_ms)
    return await store.proposal(tx, proposal.hash)


async def append_log(
    tx: Transaction, intent_hash: bytes, line: CheckedLog, author: str, now_ms: int, admit: Admit = _admit_all
) -> str:  # fmt: skip
    """Append a log line, unless it is recorded; the recorded one, as JSON. Raises `IntentNotFound`, `IntentFull`."""
    intent = await _locked(tx, intent_hash, Moment(now_ms, 0))  # its status does not matter here
    if await parts.append_line(tx, intent.seq, intent.log_count + 1, line):
        if intent.log_count >= LOGS_MAX:
            raise parts.logs_full()
        admit()
        sql = "UPDATE intents SET log_count = ?, version = version + 1, changed_at_ms = ? WHERE seq = ?"
        await tx.execute(sql, (intent.log_count + 1, now_ms, intent.seq))
        await operators.enter(tx, author, "append log", intent_hash, now_ms)
    ((recorded,),) = await tx.fetch(
        "SELECT record FROM intent_logs WHERE intent_seq = ? AND identity = ?", (intent.seq, line.identity)
    )
    return recorded


async def move(
    tx: Transaction, intent_hash: bytes, change: StatusChange, author: str, moment: Moment, admit: Admit = _admit_all
) -> None:
    """Move an intent by one step, or the proposal that `change` names by one or more.

    The status that it has, or that operators sent last, is no move and no fault. Raises `IntentNotFound`,
    `ProposalNotFound`, `InvalidIntent`, `StatusConflict`, `IntentDiffers`, and what `admit` raises.
    """
    intent = await _locked(tx, intent_hash, moment)
    if change.proposal is None:
        claim, is_changed = await _move_intent(tx, intent, change)
        action = operators.MOVE if claim.status != intent.recorded.claim.status else "repeat "
    else:
        claim, is_changed = intent.recorded.claim, await _move_proposal(tx, intent, change.proposal.raw, change)
        action = "move proposal to "
    if is_changed:
        admit()
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
        is_changed = await parts.name_transaction(tx, intent.seq, change.transaction_hash) or is_changed
    return claim, is_changed


async def _move_proposal(tx: Transaction, intent: _LockedIntent, proposal_hash: bytes, change: StatusChange) -> bool:
    """Move a proposal; whether anything changed."""
    row = (await parts.fetch_proposals(tx, intent.seq, [proposal_hash])).get(proposal_hash)
    if row is None:
        raise ProposalNotFound("the intent has no proposal with this hash")
    claim = row.recorded.merge(change.status, change, diagram=PROPOSAL_MOVES, several=True)
    if claim == row.recorded.claim:
        return False
    await parts.move_proposal(tx, intent.seq, row.n, claim)
    return True


async def _lock(tx: Transaction, intent_hash: bytes, moment: Moment) -> _LockedIntent | None:
    rows = await tx.fetch(
        f"""SELECT seq, generation, status, transaction_hash, dest_transaction_hash, chain_status, deadline,
                   chain_transaction_hash, execution_hash, proposal_count, log_count
            FROM intents WHERE hash = ?{tx.for_update}""",
        (intent_hash,),
    )
    for seq, generation, status, transaction_hash, dest_hash, chain_status, deadline, chain_hash, *rest in rows:
        reads_as = status_as_read(chain_status or status, int.from_bytes(deadline), moment)
        recorded = Recorded(Claim(status, transaction_hash, dest_hash), reads_as, chain_hash)
        return _LockedIntent(seq, generation, recorded, *rest)
    return None


async def _locked(tx: Transaction, intent_hash: bytes, moment: Moment) -> _LockedIntent:
    if (intent := await _lock(tx, intent_hash, moment)) is None:
        raise IntentNotFound("no intent is recorded under this hash")
    return intent


async def _insert(tx: Transaction, checked: CheckedIntent, moment: Moment) -> int | None:
    """Record an intent with its proposals and logs; its number, or None when another writer has recorded it."""
    new = checked.new
    await check_run(tx, checked.hash, _trigger_sig(new), new.execution_hash.raw or None)
    newest = await tx.fetch_one("SELECT created_at_ms FROM intents ORDER BY created_at_ms DESC LIMIT 1")
    created_at_ms = await date_row(tx, moment.now_ms, newest[0] if newest else 0)
    # `expired` is computed, never stored: the intent was created, and its deadline makes it read as expired.
    claim = Claim.of("created" if new.status in (None, "expired") else new.status, new)
    if not isinstance(new, NewIntent):  # before any change, so that a refusal needs no rollback
        await hold(tx, new, checked.hash, moment, has_succeeded=claim.status == SUCCEEDED)
    values: dict[LiteralString, object] = {
        "hash": checked.hash, "trigger_sig": _trigger_sig(new),
        "settler": new.settler.raw,
        "deadline": int(new.deadline).to_bytes(32),
        "status": claim.status, "transaction_hash": claim.transaction_hash,
        "dest_transaction_hash": claim.dest_transaction_hash, "execution_hash": new.execution_hash.raw or None,
        "standing": status_as_read(claim.status, int(new.deadline), moment),
        "proposal_count": len(checked.proposals), "log_count": len(checked.logs), "created_at_ms": created_at_ms,
        "record": _record_of(new, checked.hash, created_at_ms),
        **_of_form(new),
    }  # fmt: skip
    rows = await tx.fetch(
        f"""INSERT INTO intents ({", ".join(values)}) VALUES ({placeholders(len(values))})
            ON CONFLICT (hash) DO NOTHING RETURNING seq""",
        list(values.values()),
    )
    for (seq,) in rows:
        if not isinstance(new, NewIntent):
            await _insert_filters(tx, seq, new)
        await parts.insert_proposals(tx, seq, 0, checked.proposals)
        await parts.insert_lines(tx, seq, 0, checked.logs)
        return seq
    return None


def _record_of(new: AnyNewIntent, intent_hash: bytes, created_at_ms: int) -> str:
    """The members that never change, as JSON."""
    shape = RecordedIntent if isinstance(new, NewIntent) else RecordedOperationsIntent
    computed: dict[str, Any] = {"hash": Bytes32.from_raw(intent_hash), "created_at": iso_time(created_at_ms)}
    given = {name: getattr(new, name) for name in shape.__struct_fields__ if name not in computed}
    return encode(shape(**given, **computed)).decode()


def _of_form(new: AnyNewIntent) -> dict[LiteralString, object]:
    """The columns that depend on the form."""
    if isinstance(new, NewIntent):
        return {"generation": FIRST, "user_address": new.user.raw, "op": new.op}
    return {"generation": SECOND, "operation_count": len(new.operations), "nonce": new.nonce}


def _trigger_sig(new: AnyNewIntent) -> bytes:
    return new.config_sig.raw if isinstance(new, NewIntent) else new.trigger_sig.raw


async def _insert_filters(tx: Transaction, seq: int, new: NewOperationsIntent) -> None:
    """Add the rows by which listings find an intent of several operations."""
    users = sorted({new.fee_payer.raw, *(each.user.raw for each in new.operations)})
    await parts.insert_rows(tx, "intent_users (address, seq)", [(user, seq) for user in users])
    ops = sorted({each.op_type for each in new.operations})
    await parts.insert_rows(tx, "intent_ops (op_type, seq)", [(op, seq) for op in ops])


async def _merge(
    tx: Transaction, intent: _LockedIntent, checked: CheckedIntent, now_ms: int, admit: Admit
) -> tuple[Claim, bool]:  # fmt: skip
    """Merge `checked` into a recorded intent: the claim after that, and whether anything in it is new."""
    new, seq = checked.new, intent.seq
    claim = intent.recorded.merge(new.status, new, diagram=INTENT_MOVES, several=True)
    execution_hash = _merged_execution_hash(intent.execution_hash, new.execution_hash)
    if intent.execution_hash is None:
        await check_run(tx, checked.hash, _trigger_sig(new), execution_hash)
    proposals = await parts.proposal_change(tx, seq, intent.proposal_count, checked.proposals)
    lines = await parts.new_lines(tx, seq, intent.log_count, checked.logs)
    await parts.apply_proposals(tx, seq, intent.proposal_count, proposals)
    await parts.insert_lines(tx, seq, intent.log_count, lines)
    after = intent._replace(
        execution_hash=execution_hash,
        proposal_count=intent.proposal_count + len(proposals.added),
        log_count=intent.log_count + len(lines),
    )
    is_changed = after != intent or claim != intent.recorded.claim or bool(proposals.moved)
    if is_changed:
        admit()
        await _update(tx, after, claim, now_ms)
    return claim, is_changed


def _merged_execution_hash(known: bytes | None, given: HexString) -> bytes | None:
    """The execution hash, which is set once. Raises `IntentDiffers` for another than the recorded one."""
    if known is not None and given.raw not in (b"", known):
        detail = f"recorded with the executionHash {HexString.from_raw(known)}, which stays"
        raise IntentDiffers(detail, pointer="/executionHash")
    return known or given.raw or None


async def _update(tx: Transaction, intent: _LockedIntent, claim: Claim, now_ms: int) -> None:
    """Write a claim and what `intent` has into its row, at the time `now_ms`."""
    before, reads_as, _ = intent.recorded
    standing = reads_as if claim.status == before.status else claim.status
    await tx.execute(
        """UPDATE intents
           SET status = ?, transaction_hash = ?, dest_transaction_hash = ?, standing = ?, execution_hash = ?,
                proposal_count = ?, log_count = ?, version = version + 1, changed_version = version + 1,
                changed_at_ms = ?
            WHERE seq = ?""",
        (*claim, standing, intent.execution_hash, intent.proposal_count, intent.log_count, now_ms, intent.seq),
    )
    if claim.status == SUCCEEDED != before.status and intent.generation == SECOND:
        await keep(tx, intent.seq)
