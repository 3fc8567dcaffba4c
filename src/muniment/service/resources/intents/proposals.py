"""Rows of `intent_proposals`: added once each; status and transactions move forward.

The caller has locked the row of the intent, so the count of its proposals is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import UNSET

from muniment.protocol.errors import IntentDiffers, IntentFull, StatusConflict
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.intents.lifecycle import PROPOSAL_MOVES, PROPOSAL_UNDER_WAY, Claim, Outcome, Recorded
from muniment.protocol.intents.types import PROPOSALS_MAX, NewProposal, OperationsProposal, Proposal
from muniment.protocol.json_text import parse_json
from muniment.protocol.wire import encode
from muniment.service.resources.intents.store import in_parts, insert_rows, with_members
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.protocol.intents.rules import CheckedProposal
    from muniment.service.storage.database import Transaction

# A proposal is answered with its members as they came, except these, which are left out until they are known.
_UNSET_UNTIL_KNOWN: Final = ("transaction_hash", "dest_transaction_hash")


class ProposalRow(NamedTuple):
    """A proposal's number within its intent, from 1, with its recorded statuses and transactions."""

    n: int
    recorded: Recorded


async def fetch(tx: Transaction, intent_seq: int, hashes: Sequence[bytes]) -> dict[bytes, ProposalRow]:
    """Those of an intent's proposals that have these hashes, by hash."""
    found: dict[bytes, ProposalRow] = {}
    for part in in_parts(hashes):
        rows = await tx.fetch(
            f"""SELECT hash, n, status, transaction_hash, dest_transaction_hash, chain_status, chain_transaction_hash
                FROM intent_proposals WHERE intent_seq = ? AND hash IN ({placeholders(len(part))})""",
            (intent_seq, *part),
        )
        for proposal_hash, n, status, transaction_hash, dest_hash, chain_status, chain_hash in rows:
            claim = Claim(status, transaction_hash, dest_hash)
            found[proposal_hash] = ProposalRow(n, Recorded(claim, chain_status or status, chain_hash))
    return found


async def insert(tx: Transaction, intent_seq: int, count: int, proposals: Sequence[CheckedProposal]) -> None:
    """Add proposals to an intent that has `count`."""
    rows = [
        (intent_seq, n, each.hash, *Claim.of(each.new.status, each.new), _shown(each))
        for n, each in enumerate(proposals, count + 1)
    ]
    columns = "intent_seq, n, hash, status, transaction_hash, dest_transaction_hash, record"
    await insert_rows(tx, f"intent_proposals ({columns})", rows)


async def merge(tx: Transaction, intent_seq: int, count: int, proposals: Sequence[CheckedProposal]) -> tuple[int, bool]:
    """Add new proposals to an intent that has `count`, and move the others forward.

    Returns the count after that, and whether anything changed. Raises `StatusConflict`, `IntentDiffers`, `IntentFull`.
    """
    known = await fetch(tx, intent_seq, [each.hash for each in proposals])
    new = [each for each in proposals if each.hash not in known]
    if new and count + len(new) > PROPOSALS_MAX:
        raise IntentFull(f"an intent has at most {PROPOSALS_MAX} proposals")
    await insert(tx, intent_seq, count, new)
    is_changed = bool(new)
    for each in proposals:
        if (row := known.get(each.hash)) is not None:
            is_changed = await update(tx, intent_seq, row, _merged(row, each)) or is_changed
    return count + len(new), is_changed


def _merged(row: ProposalRow, proposal: CheckedProposal) -> Claim:
    # A proposal that is sent without a status is `received`, so that status takes no other back.
    status = None if proposal.new.status == "received" else proposal.new.status
    try:
        return row.recorded.merge(status, proposal.new, diagram=PROPOSAL_MOVES, several=True)
    except (StatusConflict, IntentDiffers) as refusal:  # its place in the body is not known here; its name is
        name = HexString.from_raw(proposal.hash)
        raise type(refusal)(f"proposal {name}: {refusal.detail}") from None


async def update(tx: Transaction, intent_seq: int, row: ProposalRow, claim: Claim) -> bool:
    """Store the claim of operators about a proposal; whether it is new."""
    (before, reads_as, chain_transaction_hash) = row.recorded
    if claim == before:
        return False
    record = await _record(tx, intent_seq, row.n)
    # The record shows the outcome on chain, if there is one.
    shown: dict[str, str] = {"status": claim.status} if reads_as == before.status else {}
    if claim.transaction_hash is not None and chain_transaction_hash is None:
        shown["transactionHash"] = HexString.from_raw(claim.transaction_hash)
    if claim.dest_transaction_hash is not None:
        shown["destTransactionHash"] = HexString.from_raw(claim.dest_transaction_hash)
    await tx.execute(
        """UPDATE intent_proposals
            SET status = ?, transaction_hash = ?, dest_transaction_hash = ?, record = ?
            WHERE intent_seq = ? AND n = ?""",
        (*claim, with_members(record, **shown), intent_seq, row.n),
    )
    return True


async def _record(tx: Transaction, intent_seq: int, n: int) -> str:
    sql = "SELECT record FROM intent_proposals WHERE intent_seq = ? AND n = ?"
    ((record,),) = await tx.fetch(sql, (intent_seq, n))
    return record


async def recorded(tx: Transaction, proposal_hash: bytes) -> str:
    """A proposal that is recorded, as JSON."""
    sql = "SELECT record FROM intent_proposals WHERE hash = ?"
    ((record,),) = await tx.fetch(sql, (proposal_hash,))
    return record


async def name_transaction(tx: Transaction, intent_seq: int, transaction_hash: Bytes32) -> bool:
    """Give the intent's transaction to its one proposal under way, unless that has one; whether anything changed.

    A transaction that another proposal already has stays there: operators may repeat a report of that proposal.
    """
    if await tx.fetch(
        "SELECT 1 FROM intent_proposals WHERE intent_seq = ? AND transaction_hash = ? LIMIT 1",
        (intent_seq, transaction_hash.raw),
    ):
        return False
    marks = placeholders(len(PROPOSAL_UNDER_WAY))
    rows = await tx.fetch(
        f"""SELECT hash FROM intent_proposals
            WHERE intent_seq = ? AND COALESCE(chain_status, status) IN ({marks}) LIMIT 2""",
        (intent_seq, *PROPOSAL_UNDER_WAY),
    )
    if len(rows) != 1:
        return False
    ((proposal_hash,),) = rows
    row = (await fetch(tx, intent_seq, [proposal_hash]))[proposal_hash]
    claim = row.recorded.claim
    if claim.transaction_hash is not None:
        return False
    return await update(tx, intent_seq, row, claim._replace(transaction_hash=transaction_hash.raw))


async def set_chain_outcome(
    tx: Transaction,
    intent_seq: int,
    n: int,
    claim: Claim,
    outcome: Outcome | None,
    transaction_hash: bytes | None,
) -> None:
    """Store the outcome on chain of a proposal; with None its record shows the `claim` of operators."""
    record: dict[str, Any] = parse_json((await _record(tx, intent_seq, n)).encode())
    record["status"] = outcome or claim.status
    for name, value in (
        ("transactionHash", transaction_hash or claim.transaction_hash),
        ("destTransactionHash", claim.dest_transaction_hash),
    ):
        record.pop(name, None)
        if value is not None:
            record[name] = HexString.from_raw(value)
    await tx.execute(
        """UPDATE intent_proposals SET chain_status = ?, chain_transaction_hash = ?, record = ?
            WHERE intent_seq = ? AND n = ?""",
        (outcome, transaction_hash, encode(record).decode(), intent_seq, n),
    )


def _shown(proposal: CheckedProposal) -> str:
    """A new proposal as it is answered, as JSON."""
    new = proposal.new
    shape = Proposal if isinstance(new, NewProposal) else OperationsProposal
    shown = shape(
        hash=Bytes32.from_raw(proposal.hash), verified=proposal.signed.verified, signers=proposal.signed.signers,
        transaction_hash=new.transaction_hash or UNSET, dest_transaction_hash=new.dest_transaction_hash or UNSET,
        **{name: getattr(new, name) for name in new.__struct_fields__ if name not in _UNSET_UNTIL_KNOWN},
    )  # fmt: skip
    return encode(shown).decode()
