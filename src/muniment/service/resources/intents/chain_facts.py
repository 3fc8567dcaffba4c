"""Facts of chains about intents (events of settlers, receipts), and the status that follows from them.

Facts are rows of `executions`, kept apart from the claims of operators: a reorganisation takes facts back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple, cast

from muniment.protocol.intents.lifecycle import CAN_EXPIRE, REFUTABLE, SUCCEEDED, Claim, Moment, Outcome, status_as_read
from muniment.protocol.intents.rules import check_log
from muniment.protocol.intents.texts import LogText
from muniment.protocol.intents.types import SECOND, LogLevel, NewLog
from muniment.service.resources.intents import parts
from muniment.service.resources.intents.nonces import keep
from muniment.service.storage.sql import number_text, placeholders

if TYPE_CHECKING:
    from muniment.service.storage.database import Row, Transaction

# A receipt has no log index; its row has this one. A transaction may call several settlers and has one receipt: it
# counts for each intent that names it, also of another settler than that of the row.
RECEIPT_INDEX: Final = -1
# Parameters of one statement. SQLite takes 32,766, PostgreSQL 65,535; a few hundred are planned in no time.
_SUBJECTS_PER_STATEMENT: Final = 500
_LATE_INTENTS_MAX: Final = 500


class Fact(NamedTuple):
    """A fact, as a row of `executions`: an event of a settler, or the receipt of a transaction that operators named.

    `subject` is the hash of an intent, a proposal, or that transaction. Only an event means success; a
    good receipt is kept so that no node is asked for it again.
    """

    chain_id: int
    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    log_index: int
    settler: bytes
    subject: bytes
    outcome: Outcome


class _Subject(NamedTuple):
    """An intent or a proposal: what operators claim of it, and what chain facts have decided until now."""

    hash: bytes
    claim: Claim
    decided: tuple[Outcome | None, bytes | None]

    @classmethod
    def of(cls, row: Row) -> _Subject:
        """From the `_SUBJECT_COLUMNS`."""
        subject_hash, status, transaction_hash, dest_hash, chain_status, chain_hash = row
        return cls(subject_hash, Claim(status, transaction_hash, dest_hash), (chain_status, chain_hash))


_SUBJECT_COLUMNS: Final = "hash, status, transaction_hash, dest_transaction_hash, chain_status, chain_transaction_hash"
_NOT_SUCCEEDED: Final = "(i.chain_status IS NULL OR i.chain_status = 'failed')"
# A failed receipt has an effect only on intents of these statuses. Others would stand before those that wait for one.
_REFUTABLE: Final = ", ".join(f"'{each}'" for each in REFUTABLE)
_NOT_REFUTED: Final = f"(i.chain_status IS NULL AND i.status IN ({_REFUTABLE}))"
_NO_LOG: Final = number_text(RECEIPT_INDEX)
_FACTS: Final = f"""
    SELECT chain_id, block_number, block_hash, transaction_hash, log_index, settler, subject, outcome
    FROM executions WHERE (settler = ? OR log_index = {_NO_LOG}) AND subject IN (
      SELECT hash FROM intents WHERE seq = ?
      UNION SELECT transaction_hash FROM intents WHERE seq = ?
      UNION SELECT hash FROM intent_proposals WHERE intent_seq = ?
      UNION SELECT transaction_hash FROM intent_proposals WHERE intent_seq = ?)
    ORDER BY chain_id, block_number, log_index, block_hash, transaction_hash"""


# Joins from a fact that has had no effect to the intent, with the condition that shows this.
_OF_PROPOSAL: Final = "JOIN intents i ON i.seq = p.intent_seq"
_WITHOUT_EFFECT: Final[dict[LiteralString, LiteralString]] = {
    "JOIN intents i ON i.hash = e.subject": _NOT_SUCCEEDED,
    "JOIN intents i ON i.transaction_hash = e.subject": f"e.outcome = 'failed' AND {_NOT_REFUTED}",
    f"JOIN intent_proposals p ON p.hash = e.subject {_OF_PROPOSAL}": _NOT_SUCCEEDED,
    f"JOIN intent_proposals p ON p.transaction_hash = e.subject {_OF_PROPOSAL}":
        f"e.outcome = 'failed' AND (p.chain_status IS NULL OR {_NOT_REFUTED})",
}  # fmt: skip
_ARMS: Final = " UNION ".join(
    f"""SELECT i.seq FROM executions e {join} AND (i.settler = e.settler OR e.log_index = {_NO_LOG})
        WHERE e.chain_id = ? AND e.block_number >= ? AND {condition}"""
    for join, condition in _WITHOUT_EFFECT.items()
)
_LATE: Final = f"{_ARMS} LIMIT ?"
# How a log line names a fact, before the hash of the transaction.
_OUTCOMES: Final[Mapping[Outcome, str]] = MappingProxyType(
    {"succeeded": "executed in transaction", "failed": "failed with transaction"}
)


async def insert_facts(tx: Transaction, facts: Iterable[Fact]) -> None:
    """Store facts, each once."""
    for fact in facts:
        await tx.execute(
            """INSERT INTO executions
                 (chain_id, block_number, block_hash, transaction_hash, log_index, settler, subject, outcome)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
            fact,
        )


async def apply_to_subjects(tx: Transaction, subjects: Iterable[bytes], moment: Moment, *, lost: str = "") -> int:
    """Apply chain facts to every intent that facts about `subjects` touch; the number of these intents."""
    intents = await _touched(tx, subjects)
    await _apply_each(tx, intents, moment, lost)
    return len(intents)


async def lock_subjects(tx: Transaction, subjects: Iterable[bytes]) -> None:
    """Lock every intent that facts about `subjects` touch, before these go: every writer locks in the same order."""
    for seq in sorted(await _touched(tx, subjects)):
        await _lock(tx, seq)


async def _touched(tx: Transaction, subjects: Iterable[bytes]) -> set[int]:
    """The numbers of the intents that facts about `subjects` touch."""
    wanted = list(dict.fromkeys(subjects))
    seqs: set[int] = set()
    for start in range(0, len(wanted), _SUBJECTS_PER_STATEMENT):
        part = wanted[start : start + _SUBJECTS_PER_STATEMENT]
        marks = placeholders(len(part))
        rows = await tx.fetch(
            f"""SELECT seq FROM intents WHERE hash IN ({marks})
                UNION SELECT seq FROM intents WHERE transaction_hash IN ({marks})
                UNION SELECT intent_seq FROM intent_proposals WHERE hash IN ({marks})
                UNION SELECT intent_seq FROM intent_proposals WHERE transaction_hash IN ({marks})""",
            part * 4,
        )
        seqs.update(seq for (seq,) in rows)
    return seqs


async def apply_late_facts(tx: Transaction, chain_id: int, from_block: int, moment: Moment) -> int:
    """Apply facts from `from_block` on that have had no effect; the number of intents that this concerned.

    Such an intent arrived in the very moment in which the fact did: on PostgreSQL neither transaction sees what the
    other has not committed.
    """
    rows = await tx.fetch(_LATE, (*(chain_id, from_block) * 4, _LATE_INTENTS_MAX))
    await _apply_each(tx, [seq for (seq,) in rows], moment, "")
    return len(rows)


async def _apply_each(tx: Transaction, seqs: Iterable[int], moment: Moment, lost: str) -> None:
    for seq in sorted(seqs):  # in one order, so that no two transactions wait for each other
        if await _lock(tx, seq):
            await apply_chain_facts(tx, seq, moment, lost=lost)


async def _lock(tx: Transaction, seq: int) -> bool:
    return await tx.execute("UPDATE intents SET version = version WHERE seq = ?", (seq,)) == 1


async def apply_chain_facts(tx: Transaction, seq: int, moment: Moment, *, lost: str = "") -> None:
    """Decide by the stored facts about an intent and its proposals; the caller has locked the intent.

    An event about the intent or one of its proposals means `succeeded`. When operators claim a status of `REFUTABLE`,
    failed receipts of every transaction that they named mean `failed`. Else the claim stands. A change of the status
    that clients see is logged on the intent; `lost` says for that log why facts were taken back.
    """
    sql = f"SELECT {_SUBJECT_COLUMNS}, settler, deadline, generation, decided_at_ms FROM intents WHERE seq = ?"
    row = await tx.fetch_one(sql, (seq,))
    if row is None:
        return
    intent, settler, deadline = _Subject.of(row[:6]), cast("bytes", row[6]), int.from_bytes(row[7])
    rows = await tx.fetch(f"SELECT n, {_SUBJECT_COLUMNS} FROM intent_proposals WHERE intent_seq = ? ORDER BY n", (seq,))
    numbered = [(cast("int", row[0]), _Subject.of(row[1:])) for row in rows]
    facts = await _facts(tx, seq, settler)
    is_changed = await _apply_to_proposals(tx, seq, numbered, facts)

    subjects = [intent, *(proposal for _, proposal in numbered)]
    named = [each.claim.transaction_hash for each in subjects] if intent.claim.status in REFUTABLE else []
    fact = _deciding(intent.claim, [each.hash for each in subjects], named, facts)
    claimed = status_as_read(intent.claim.status, deadline, moment)
    before, after = intent.decided[0] or claimed, fact.outcome if fact else claimed
    if _decision(fact) != intent.decided:
        # A fact that operators reported first has decided nothing.
        decided_at_ms = None if fact is None else row[9] if before == after else moment.now_ms
        await tx.execute(
            """UPDATE intents SET chain_status = ?, chain_transaction_hash = ?, decided_at_ms = ?, standing = ?
                WHERE seq = ?""",
            (*_decision(fact), decided_at_ms, after, seq),
        )
        is_changed = True
        if after == SUCCEEDED and row[8] == SECOND:
            await keep(tx, seq)
    if before != after:
        await _log(tx, seq, _line(fact, before, after, lost), moment.now_ms)
    if is_changed:
        sql = """UPDATE intents
                 SET version = version + 1, changed_version = version + 1, changed_at_ms = ? WHERE seq = ?"""
        await tx.execute(sql, (moment.now_ms, seq))


async def _apply_to_proposals(
    tx: Transaction, seq: int, numbered: Iterable[tuple[int, _Subject]], facts: Mapping[bytes, Sequence[Fact]]
) -> bool:
    """Decide about each proposal by itself; whether any decision is another than before."""
    is_changed = False
    for n, proposal in numbered:
        claim = proposal.claim
        decision = _decision(_deciding(claim, [proposal.hash], [claim.transaction_hash], facts))
        if decision != proposal.decided:
            await tx.execute(
                """UPDATE intent_proposals SET chain_status = ?, chain_transaction_hash = ?
                    WHERE intent_seq = ? AND n = ?""",
                (*decision, seq, n),
            )
            is_changed = True
    return is_changed


async def _facts(tx: Transaction, seq: int, settler: bytes) -> dict[bytes, list[Fact]]:
    """The facts about an intent by subject, in the order of the chain.

    They are locked: a transaction that takes one back waits, and then sees what this transaction wrote.
    """
    parameters = (settler, *[seq] * 4)
    rows = await tx.fetch(_FACTS, parameters)
    if rows and tx.for_update:
        rows = await tx.fetch(_FACTS + tx.for_update, parameters)
    facts: dict[bytes, list[Fact]] = {}
    for row in rows:
        fact = Fact(*row)
        facts.setdefault(fact.subject, []).append(fact)
    return facts


def _deciding(
    claim: Claim, subjects: Sequence[bytes], named: Sequence[bytes | None], facts: Mapping[bytes, Sequence[Fact]]
) -> Fact | None:
    """The fact that decides: a success about one of `subjects`, else a failure when all `named` transactions failed.

    A swap between chains succeeds in two transactions: the one that operators call the destination's comes last.
    """
    successes = [fact for subject in subjects for fact in facts.get(subject, ()) if fact.outcome == "succeeded"]
    if successes:
        return min(
            successes,
            key=lambda fact: (
                fact.transaction_hash != claim.transaction_hash,
                fact.transaction_hash == claim.dest_transaction_hash,
            ),
        )
    transactions = list(dict.fromkeys(each for each in named if each is not None))
    failures = [
        next((fact for fact in facts.get(each, ()) if fact.outcome == "failed"), None) for each in transactions
    ]  # fmt: skip
    return failures[0] if failures and None not in failures else None


def _decision(fact: Fact | None) -> tuple[Outcome | None, bytes | None]:
    return (None, None) if fact is None else (fact.outcome, fact.transaction_hash)


def _line(fact: Fact | None, before: str, after: str, lost: str) -> tuple[LogLevel, str]:
    """Level and text of the log line about a change of the status."""
    if fact is None:
        reason = lost or "another transaction may still carry it out"
        return "warning", f"{reason}: the status was {before} and is {after} again"
    where = f"chain {fact.chain_id} block {fact.block_number}"
    text = f"{where}: {_OUTCOMES[fact.outcome]} 0x{fact.transaction_hash.hex()}"
    if before in CAN_EXPIRE:  # the intent was under way, as expected
        return "info", text
    return "warning", f"{text}; the status was {before}"


async def _log(tx: Transaction, seq: int, line: tuple[LogLevel, str], now_ms: int) -> None:
    """Append a line, also to an intent whose log is full."""
    level, text = line
    checked = check_log(NewLog(level=level, data=LogText.parse(text)), now_ms)
    ((last,),) = await tx.fetch("SELECT COALESCE(MAX(n), 0) FROM intent_logs WHERE intent_seq = ?", (seq,))
    if await parts.append_line(tx, seq, last + 1, checked):
        await tx.execute("UPDATE intents SET log_count = ? WHERE seq = ?", (last + 1, seq))
