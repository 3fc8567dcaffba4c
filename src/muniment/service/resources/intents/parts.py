"""Rows of an intent's proposals and log lines: added once each; a proposal's status and transactions move forward.

The caller has locked the row of the intent, so the counts of its rows are exact. A `record` is written once: it holds
the members of an answer that never change. What changes is a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple, TypeVar

from muniment.protocol.errors import IntentDiffers, IntentFull, StatusConflict
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.intents.lifecycle import PROPOSAL_MOVES, PROPOSAL_UNDER_WAY, Claim, Recorded
from muniment.protocol.intents.rules import CheckedLog, timeless
from muniment.protocol.intents.types import LOGS_MAX, PROPOSALS_MAX, NewProposal, Offer, OperationsOffer
from muniment.protocol.wire import encode, iso_time
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.protocol.intents.rules import CheckedProposal
    from muniment.service.storage.database import Transaction

T = TypeVar("T")
# Rows in one statement: few round trips, and far from the 32,766 parameters that a statement of SQLite may have.
_ROWS_PER_STATEMENT = 200


class ProposalRow(NamedTuple):
    """A proposal's number within its intent, from 1, with its recorded statuses and transactions."""

    n: int
    recorded: Recorded


class ProposalChange(NamedTuple):
    """The changes of a write: new proposals, and new claims about recorded ones by their numbers."""

    added: list[CheckedProposal]
    moved: list[tuple[int, Claim]]


async def proposal_change(
    tx: Transaction, intent_seq: int, count: int, proposals: Sequence[CheckedProposal]
) -> ProposalChange:
    """What `proposals` change about an intent that has `count`.

    Raises `StatusConflict`, `IntentDiffers`, `IntentFull`.
    """
    known = await fetch_proposals(tx, intent_seq, [each.hash for each in proposals])
    added = [each for each in proposals if each.hash not in known]
    if added and count + len(added) > PROPOSALS_MAX:
        raise IntentFull(f"an intent has at most {PROPOSALS_MAX} proposals")
    moved = list[tuple[int, Claim]]()
    for each in proposals:
        if (row := known.get(each.hash)) is not None and (claim := _merged(row, each)) != row.recorded.claim:
            moved.append((row.n, claim))
    return ProposalChange(added, moved)


def _merged(row: ProposalRow, proposal: CheckedProposal) -> Claim:
    # A proposal that is sent without a status is `received`, so that status takes no other back.
    status = None if proposal.new.status == "received" else proposal.new.status
    try:
        return row.recorded.merge(status, proposal.new, diagram=PROPOSAL_MOVES, several=True)
    except (StatusConflict, IntentDiffers) as refusal:  # its place in the body is not known here; its name is
        name = HexString.from_raw(proposal.hash)
        raise type(refusal)(f"proposal {name}: {refusal.detail}") from None


async def fetch_proposals(tx: Transaction, intent_seq: int, hashes: Sequence[bytes]) -> dict[bytes, ProposalRow]:
    """Those of an intent's proposals that have these hashes, by hash."""
    found: dict[bytes, ProposalRow] = {}
    for part in _in_parts(hashes):
        rows = await tx.fetch(
            f"""SELECT hash, n, status, transaction_hash, dest_transaction_hash, chain_status, chain_transaction_hash
                FROM intent_proposals WHERE intent_seq = ? AND hash IN ({placeholders(len(part))})""",
            (intent_seq, *part),
        )
        for proposal_hash, n, status, transaction_hash, dest_hash, chain_status, chain_hash in rows:
            claim = Claim(status, transaction_hash, dest_hash)
            found[proposal_hash] = ProposalRow(n, Recorded(claim, chain_status or status, chain_hash))
    return found


async def apply_proposals(tx: Transaction, intent_seq: int, count: int, change: ProposalChange) -> None:
    """Store what a write changes about the proposals of an intent that has `count`."""
    await insert_proposals(tx, intent_seq, count, change.added)
    for n, claim in change.moved:
        await move_proposal(tx, intent_seq, n, claim)


async def insert_proposals(tx: Transaction, intent_seq: int, count: int, proposals: Sequence[CheckedProposal]) -> None:
    """Add proposals to an intent that has `count`."""
    rows = [
        (intent_seq, n, each.hash, *Claim.of(each.new.status, each.new), _offer(each))
        for n, each in enumerate(proposals, count + 1)
    ]
    columns = "intent_seq, n, hash, status, transaction_hash, dest_transaction_hash, record"
    await insert_rows(tx, f"intent_proposals ({columns})", rows)


def _offer(proposal: CheckedProposal) -> str:
    new, (verified, signers) = proposal.new, proposal.signed
    shape = Offer if isinstance(new, NewProposal) else OperationsOffer
    computed: dict[str, Any] = {"hash": Bytes32.from_raw(proposal.hash), "verified": verified, "signers": signers}
    given = {name: getattr(new, name) for name in shape.__struct_fields__ if name not in computed}
    return encode(shape(**given, **computed)).decode()


async def move_proposal(tx: Transaction, intent_seq: int, n: int, claim: Claim) -> None:
    """Store the claim of operators about a proposal."""
    await tx.execute(
        """UPDATE intent_proposals SET status = ?, transaction_hash = ?, dest_transaction_hash = ?
            WHERE intent_seq = ? AND n = ?""",
        (*claim, intent_seq, n),
    )


async def name_transaction(tx: Transaction, intent_seq: int, transaction_hash: Bytes32) -> bool:
    """Set the transaction of the intent's only proposal under way, if it has none; whether it was set.

    If a proposal already has this transaction, nothing changes: operators may repeat its report.
    """
    if await tx.fetch(
        "SELECT 1 FROM intent_proposals WHERE intent_seq = ? AND transaction_hash = ? LIMIT 1",
        (intent_seq, transaction_hash.raw),
    ):
        return False
    marks = placeholders(len(PROPOSAL_UNDER_WAY))
    rows = await tx.fetch(
        f"""SELECT n, transaction_hash FROM intent_proposals
            WHERE intent_seq = ? AND COALESCE(chain_status, status) IN ({marks}) LIMIT 2""",
        (intent_seq, *PROPOSAL_UNDER_WAY),
    )
    if len(rows) != 1 or rows[0][1] is not None:
        return False
    await tx.execute(
        "UPDATE intent_proposals SET transaction_hash = ? WHERE intent_seq = ? AND n = ?",
        (transaction_hash.raw, intent_seq, rows[0][0]),
    )
    return True


async def new_lines(tx: Transaction, intent_seq: int, count: int, lines: Sequence[CheckedLog]) -> list[CheckedLog]:
    """Those of `lines` that an intent with `count` lines lacks. Raises `IntentFull`.

    A line that was sent without a time got one, and may come back with it.
    """
    known: dict[bytes, str] = {}
    for part in _in_parts(lines):
        identities = {identity for each in part for identity in (each.identity, timeless(each))}
        rows = await tx.fetch(
            f"""SELECT identity, record FROM intent_logs
                WHERE intent_seq = ? AND identity IN ({placeholders(len(identities))})""",
            (intent_seq, *identities),
        )
        known.update(dict(rows))
    new = [each for each in lines if each.identity not in known and known.get(timeless(each)) != line_text(each)]
    if new and count + len(new) > LOGS_MAX:
        raise logs_full()
    return new


async def insert_lines(tx: Transaction, intent_seq: int, count: int, lines: Sequence[CheckedLog]) -> None:
    """Add lines to an intent that has `count`."""
    rows = [(intent_seq, n, each.identity, line_text(each)) for n, each in enumerate(lines, count + 1)]
    await insert_rows(tx, "intent_logs (intent_seq, n, identity, record)", rows)


async def append_line(tx: Transaction, intent_seq: int, n: int, line: CheckedLog) -> bool:
    """Add one line under the number `n`; False when the intent has a line of this identity."""
    added = await tx.execute(
        """INSERT INTO intent_logs (intent_seq, n, identity, record) VALUES (?, ?, ?, ?)
            ON CONFLICT (intent_seq, identity) DO NOTHING""",
        (intent_seq, n, line.identity, line_text(line)),
    )
    return added == 1


def line_text(line: CheckedLog) -> str:
    """A line as it is answered, as JSON."""
    return encode(
        {"level": line.level, "data": line.data, "createdAt": iso_time(line.created_at_ms)}
        | ({} if line.id is None else {"id": line.id})
    ).decode()


def logs_full() -> IntentFull:
    """The refusal of a line beyond the last."""
    return IntentFull(f"an intent has at most {LOGS_MAX} log lines")


async def insert_rows(tx: Transaction, into: LiteralString, rows: Sequence[tuple[object, ...]]) -> None:
    """Add rows, many in a statement; `into` is the table with its columns as SQL text."""
    for part in _in_parts(rows):
        values = ", ".join(f"({placeholders(len(row))})" for row in part)
        await tx.execute(f"INSERT INTO {into} VALUES {values}", [value for row in part for value in row])


def _in_parts(listed: Sequence[T]) -> Iterator[Sequence[T]]:
    """`listed` in order, in parts that fit into one statement."""
    for start in range(0, len(listed), _ROWS_PER_STATEMENT):
        yield listed[start : start + _ROWS_PER_STATEMENT]
