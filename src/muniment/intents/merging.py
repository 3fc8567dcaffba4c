"""What is new of an intent joins what is recorded: the first fact stays, proposals and logs are added once each.

Everything here runs under the lock of the intent's row (`writing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from muniment.errors import IntentDiffers, IntentFull, StatusConflict
from muniment.evm.hex import Bytes32, HexString
from muniment.intents.lifecycle import PROPOSAL_MOVES, check_move
from muniment.intents.rules import timeless
from muniment.intents.types import LOGS_MAX, PROPOSALS_MAX, NewProposal, Proposal
from muniment.storage.sql import placeholders
from muniment.wire import encode, iso_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from muniment.intents.rules import CheckedLog, CheckedProposal
    from muniment.intents.types import NewIntent, StatusChange
    from muniment.storage.database import Transaction

T = TypeVar("T")

# Rows in one statement: few round trips, and far from the 32,766 parameters that a statement of SQLite may have.
_ROWS_AT_ONCE: Final = 200


class Facts(NamedTuple):
    """What operators say of an intent or a proposal."""

    status: str
    transaction_hash: bytes | None
    dest_transaction_hash: bytes | None


class Held(NamedTuple):
    """An intent's row, which this transaction has locked; `reads_as` is its status at this time."""

    seq: int
    said: Facts
    reads_as: str
    chain_transaction_hash: bytes | None
    proposal_count: int
    log_count: int


class HeldProposal(NamedTuple):
    """A proposal's row."""

    n: int
    said: Facts
    reads_as: str
    chain_transaction_hash: bytes | None


def joined(held: Held | HeldProposal, status: str | None, new: NewIntent | NewProposal | StatusChange) -> Facts:
    """What operators say once `new` is said too; `status`, which may follow, is None when it says none.

    Raises `IntentDiffers`.
    """
    said, chain_hash = held.said, held.chain_transaction_hash
    return Facts(
        said.status if status is None or status == held.reads_as else status,
        _first(said.transaction_hash, new.transaction_hash, "transactionHash", of_chain=chain_hash),
        _first(said.dest_transaction_hash, new.dest_transaction_hash, "destTransactionHash"),
    )


def _first(known: bytes | None, given: Bytes32 | None, member: str, *, of_chain: bytes | None = None) -> bytes | None:
    """The fact to keep: the first. One that the chain has shown needs no operator to say it."""
    if given is None or given.raw in {known, of_chain}:
        return known
    if first := known or of_chain:
        raise IntentDiffers(f"recorded with the {member} {HexString.from_raw(first)}, which stays")
    return given.raw


async def join_execution(tx: Transaction, seq: int, execution_hash: HexString) -> bool:
    """Add the execution hash to the record, unless it is there; whether it is new. Raises `IntentDiffers`."""
    if execution_hash == "0x":  # none is said
        return False
    ((record,),) = await tx.fetch("SELECT record FROM intents WHERE seq = ?", (seq,))
    known = msgspec.json.decode(record, type=dict[str, Any])["executionHash"]
    if known == execution_hash:
        return False
    if known != "0x":
        raise IntentDiffers(f"recorded with the executionHash {known}, which stays", pointer="/executionHash")
    changed = _with(record, executionHash=execution_hash)
    await tx.execute("UPDATE intents SET record = ? WHERE seq = ?", (changed, seq))
    return True


async def name_transaction(tx: Transaction, seq: int, transaction_hash: Bytes32) -> bool:
    """Let a transaction be that of the intent's one proposal under way, unless that has one; whether it is new."""
    rows = await tx.fetch(
        """SELECT hash FROM intent_proposals
           WHERE intent_seq = ? AND COALESCE(chain_status, status) IN ('accepted', 'submitted') LIMIT 2""",
        (seq,),
    )
    if len(rows) != 1:
        return False
    ((proposal_hash,),) = rows
    row = (await fetch_proposals(tx, seq, [proposal_hash]))[proposal_hash]
    if row.said.transaction_hash is not None:
        return False
    return await update_proposal(tx, seq, row, row.said._replace(transaction_hash=transaction_hash.raw))


async def fetch_proposals(tx: Transaction, seq: int, hashes: Sequence[bytes]) -> dict[bytes, HeldProposal]:
    """Those of an intent's proposals that have these hashes."""
    found: dict[bytes, HeldProposal] = {}
    for part in _parts(hashes):
        rows = await tx.fetch(
            f"""SELECT hash, n, status, transaction_hash, dest_transaction_hash, chain_status, chain_transaction_hash
                FROM intent_proposals WHERE intent_seq = ? AND hash IN ({placeholders(len(part))})""",  # noqa: S608 - ? only
            (seq, *part),
        )
        for proposal_hash, n, status, transaction_hash, dest_hash, chain_status, chain_hash in rows:
            said = Facts(status, transaction_hash, dest_hash)
            found[proposal_hash] = HeldProposal(n, said, chain_status or status, chain_hash)
    return found


async def join_proposals(tx: Transaction, held: Held, proposals: Sequence[CheckedProposal]) -> tuple[int, bool]:
    """Add those that are new, bring forward those that are there; how many there are then, and if any changed.

    `received` is what a proposal is without a status, so it takes none back. Raises `StatusConflict`,
    `IntentDiffers`, `IntentFull`.
    """
    known = await fetch_proposals(tx, held.seq, [each.hash for each in proposals])
    new = [each for each in proposals if each.hash not in known]
    count = held.proposal_count + len(new)
    if new and count > PROPOSALS_MAX:
        raise IntentFull(f"an intent has at most {PROPOSALS_MAX} proposals")
    await insert_proposals(tx, held.seq, held.proposal_count, new)
    is_changed = bool(new)
    for each in proposals:
        if (row := known.get(each.hash)) is not None:
            said = _proposal_joined(row, each)
            is_changed = await update_proposal(tx, held.seq, row, said) or is_changed
    return count, is_changed


def _proposal_joined(row: HeldProposal, proposal: CheckedProposal) -> Facts:
    status = None if proposal.new.status in {"received", row.said.status} else proposal.new.status
    name = HexString.from_raw(proposal.hash)
    try:
        if status is not None:
            check_move(PROPOSAL_MOVES, row.reads_as, status, several=True)
        return joined(row, status, proposal.new)
    except (StatusConflict, IntentDiffers) as refusal:  # its place in the body is not known here; its name is
        raise type(refusal)(f"proposal {name}: {refusal.detail}") from None


async def insert_proposals(tx: Transaction, seq: int, count: int, proposals: Sequence[CheckedProposal]) -> None:
    """Add proposals to an intent that has `count`."""
    rows = [
        (seq, n, each.hash, each.new.status, raw(each.new.transaction_hash), raw(each.new.dest_transaction_hash),
         _shown_proposal(each))
        for n, each in enumerate(proposals, count + 1)
    ]  # fmt: skip
    into = "intent_proposals (intent_seq, n, hash, status, transaction_hash, dest_transaction_hash, record)"
    await _insert(tx, into, rows)


async def update_proposal(tx: Transaction, seq: int, row: HeldProposal, said: Facts) -> bool:
    """Let operators say `said` of a proposal; whether that is anything new."""
    if said == row.said:
        return False
    ((record,),) = await tx.fetch("SELECT record FROM intent_proposals WHERE intent_seq = ? AND n = ?", (seq, row.n))
    shown: dict[str, str] = {"status": said.status} if row.reads_as == row.said.status else {}
    if said.transaction_hash is not None and row.chain_transaction_hash is None:
        shown["transactionHash"] = HexString.from_raw(said.transaction_hash)
    if said.dest_transaction_hash is not None:
        shown["destTransactionHash"] = HexString.from_raw(said.dest_transaction_hash)
    await tx.execute(
        """UPDATE intent_proposals SET status = ?, transaction_hash = ?, dest_transaction_hash = ?, record = ?
           WHERE intent_seq = ? AND n = ?""",
        (*said, _with(record, **shown), seq, row.n),
    )
    return True


async def join_logs(tx: Transaction, held: Held, logs: Sequence[CheckedLog]) -> int:
    """Add the logs that are new; how many there are then. Raises `IntentFull`.

    A line that was sent without a time got one, and may come back with it.
    """
    known: dict[bytes, str] = {}
    for part in _parts(logs):
        identities = {identity for each in part for identity in (each.identity, timeless(each))}
        rows = await tx.fetch(
            f"""SELECT identity, record FROM intent_logs
                WHERE intent_seq = ? AND identity IN ({placeholders(len(identities))})""",  # noqa: S608 - ? only
            (held.seq, *identities),
        )
        known.update(dict(rows))
    new = [each for each in logs if each.identity not in known and known.get(timeless(each)) != shown_log(each)]
    count = held.log_count + len(new)
    if new and count > LOGS_MAX:
        raise IntentFull(f"an intent has at most {LOGS_MAX} logs")
    await insert_logs(tx, held.seq, held.log_count, new)
    return count


async def insert_logs(tx: Transaction, seq: int, count: int, logs: Sequence[CheckedLog]) -> None:
    """Add logs to an intent that has `count`."""
    rows = [(seq, n, each.identity, shown_log(each)) for n, each in enumerate(logs, count + 1)]
    await _insert(tx, "intent_logs (intent_seq, n, identity, record)", rows)


def shown_log(log: CheckedLog) -> str:
    """A log as it is answered."""
    return encode(
        {"level": log.level, "data": log.data, "createdAt": iso_time(log.created_at_ms)}
        | ({} if log.id is None else {"id": log.id})
    ).decode()


def _shown_proposal(proposal: CheckedProposal) -> str:
    """A proposal as it is answered, before a chain says anything of it."""
    new = proposal.new
    shown = Proposal(
        hash=Bytes32.from_raw(proposal.hash), verified=proposal.signed.verified,
        signers=proposal.signed.signers,
        transaction_hash=new.transaction_hash or UNSET, dest_transaction_hash=new.dest_transaction_hash or UNSET,
        **{name: getattr(new, name) for name in _SAME},
    )  # fmt: skip
    return encode(shown).decode()


# The members that a proposal is answered with as they came.
_SAME: Final = sorted({*NewProposal.__struct_fields__} - {"transaction_hash", "dest_transaction_hash"})


def raw(text: Bytes32 | None) -> bytes | None:
    """The bytes, if there are any."""
    return None if text is None else text.raw


def _with(record: str, **members: str) -> str:
    """A record with other values for some members; the rest keeps its bytes."""
    kept: dict[str, object] = dict(msgspec.json.decode(record, type=dict[str, msgspec.Raw]))
    return encode({**kept, **members}).decode()


async def _insert(tx: Transaction, into: str, rows: Sequence[tuple[object, ...]]) -> None:
    for part in _parts(rows):
        values = ", ".join(f"({placeholders(len(row))})" for row in part)
        await tx.execute(f"INSERT INTO {into} VALUES {values}", [value for row in part for value in row])  # noqa: S608 - ? only


def _parts(listed: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(listed), _ROWS_AT_ONCE):
        yield listed[at : at + _ROWS_AT_ONCE]
