"""What chains say about intents: events of settlers and receipts, and the status that follows from them.

Facts are rows of `executions`, kept apart from what operators say: they are taken back when their block is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from muniment.intents.lifecycle import status_as_read
from muniment.intents.rules import check_log
from muniment.intents.types import Log, LogText, NewLog
from muniment.json_text import parse_json
from muniment.storage.sql import placeholders
from muniment.wire import encode, iso_time

if TYPE_CHECKING:
    from muniment.storage.database import Transaction

# The place of a receipt among the logs of its transaction: it is none of them.
RECEIPT_INDEX: Final = -1
# Parameters of one statement. SQLite takes 32,766, PostgreSQL 65,535; a few hundred are planned in no time.
_LISTED_AT_ONCE: Final = 500
_UNDER_WAY: Final = ("created", "enqueued", "submitted")
# What operators say that failed receipts refute. Before, no transaction of the intent need have been sent.
_REFUTABLE: Final = ("submitted", "succeeded")


@dataclass(frozen=True, slots=True)
class Execution:
    """A row of `executions`: an event of a settler, or the receipt of a transaction that operators named.

    A receipt that is good says nothing of an intent: an event would. It is kept so that nobody asks for it again.
    """

    chain_id: int
    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    log_index: int
    settler: bytes
    subject: bytes
    outcome: Literal["succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class _Said:
    """What operators say of an intent or a proposal, and what followed from the chain until now."""

    hash: bytes
    status: str
    chain_status: str | None
    transaction_hash: bytes | None
    dest_transaction_hash: bytes | None
    chain_transaction_hash: bytes | None

    @property
    def followed(self) -> tuple[str | None, bytes | None]:
        return self.chain_status, self.chain_transaction_hash


_SAID: Final = "hash, status, chain_status, transaction_hash, dest_transaction_hash, chain_transaction_hash"
_NOTHING: Final = (None, None)
_NOT_SUCCEEDED: Final = "(i.chain_status IS NULL OR i.chain_status = 'failed')"
_FACTS: Final = """
    SELECT chain_id, block_number, block_hash, transaction_hash, log_index, settler, subject, outcome
    FROM executions WHERE settler = ? AND subject IN (
      SELECT hash FROM intents WHERE seq = ?
      UNION SELECT transaction_hash FROM intents WHERE seq = ?
      UNION SELECT hash FROM intent_proposals WHERE intent_seq = ?
      UNION SELECT transaction_hash FROM intent_proposals WHERE intent_seq = ?)
    ORDER BY chain_id, block_number, log_index, block_hash, transaction_hash"""


async def keep(tx: Transaction, executions: Iterable[Execution]) -> None:
    """Store facts, each once."""
    for each in executions:
        await tx.execute(
            """INSERT INTO executions
                 (chain_id, block_number, block_hash, transaction_hash, log_index, settler, subject, outcome)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
            (
                each.chain_id, each.block_number, each.block_hash, each.transaction_hash, each.log_index,
                each.settler, each.subject, each.outcome,
            ),
        )  # fmt: skip


async def settle_subjects(
    tx: Transaction, subjects: Iterable[bytes], now_ms: int, grace_s: int, *, lost: str = ""
) -> int:
    """`settle` every intent that facts about `subjects` touch; how many there are."""
    found = await _touched(tx, subjects)
    await _settle_each(tx, found, now_ms, grace_s, lost)
    return len(found)


async def lock_subjects(tx: Transaction, subjects: Iterable[bytes]) -> None:
    """Lock every intent that facts about `subjects` touch, before these go: who writes locks in the same order."""
    for seq in sorted(await _touched(tx, subjects)):
        await _lock(tx, seq)


async def _touched(tx: Transaction, subjects: Iterable[bytes]) -> set[int]:
    wanted = list(dict.fromkeys(subjects))
    found: set[int] = set()
    for at in range(0, len(wanted), _LISTED_AT_ONCE):
        listed = wanted[at : at + _LISTED_AT_ONCE]
        marks = placeholders(len(listed))
        rows = await tx.fetch(
            f"""SELECT seq FROM intents WHERE hash IN ({marks})
                UNION SELECT seq FROM intents WHERE transaction_hash IN ({marks})
                UNION SELECT intent_seq FROM intent_proposals WHERE hash IN ({marks})
                UNION SELECT intent_seq FROM intent_proposals WHERE transaction_hash IN ({marks})""",  # noqa: S608 - ? only
            listed * 4,
        )
        found.update(seq for (seq,) in rows)
    return found


async def settle_late(tx: Transaction, chain_id: int, from_block: int, now_ms: int, grace_s: int) -> int:
    """`settle` intents on which facts from `from_block` on have had no effect; how many there were.

    Such are intents that arrived in the very moment in which the fact did: on PostgreSQL neither transaction sees
    what the other has not committed.
    """
    arms = [
        f"""SELECT i.seq FROM executions e {join} AND i.settler = e.settler
            WHERE e.chain_id = ? AND e.block_number >= ? AND {without_effect}"""  # noqa: S608 - text of ours
        for join, without_effect in (
            ("JOIN intents i ON i.hash = e.subject", _NOT_SUCCEEDED),
            ("JOIN intents i ON i.transaction_hash = e.subject", "e.outcome = 'failed' AND i.chain_status IS NULL"),
            ("JOIN intent_proposals p ON p.hash = e.subject JOIN intents i ON i.seq = p.intent_seq", _NOT_SUCCEEDED),
            (
                "JOIN intent_proposals p ON p.transaction_hash = e.subject JOIN intents i ON i.seq = p.intent_seq",
                "e.outcome = 'failed' AND (p.chain_status IS NULL OR i.chain_status IS NULL)",
            ),
        )
    ]
    rows = await tx.fetch(f"{' UNION '.join(arms)} LIMIT ?", (*(chain_id, from_block) * 4, _LISTED_AT_ONCE))
    await _settle_each(tx, {seq for (seq,) in rows}, now_ms, grace_s, "")
    return len(rows)


async def _settle_each(tx: Transaction, seqs: Iterable[int], now_ms: int, grace_s: int, lost: str) -> None:
    for seq in sorted(seqs):  # in one order, so that no two transactions wait for each other
        if await _lock(tx, seq):
            await settle(tx, seq, now_ms, grace_s, lost=lost)


async def _lock(tx: Transaction, seq: int) -> bool:
    return await tx.execute("UPDATE intents SET version = version WHERE seq = ?", (seq,)) == 1


async def settle(tx: Transaction, intent_seq: int, now_ms: int, grace_s: int, *, lost: str = "") -> None:
    """Let what is known of the chain decide about an intent and its proposals; the caller has locked the intent.

    An event about the intent or one of its proposals means `succeeded`; when operators say `submitted` or `succeeded`,
    failed receipts of every transaction that they named mean `failed`; else operators are believed. A change of the
    status that readers see is logged on the intent. `lost` says why facts went, for that log.
    """
    row = await tx.fetch_one(f"SELECT {_SAID}, settler, deadline, version FROM intents WHERE seq = ?", (intent_seq,))  # noqa: S608 - our columns
    if row is None:
        return
    intent, settler, deadline = _Said(*row[:6]), cast("bytes", row[6]), int.from_bytes(row[7])
    rows = await tx.fetch(f"SELECT n, {_SAID} FROM intent_proposals WHERE intent_seq = ? ORDER BY n", (intent_seq,))  # noqa: S608 - our columns
    proposals = [(cast("int", n), _Said(*said)) for n, *said in rows]
    facts = await _facts(tx, intent_seq, settler)
    changed = False
    for n, proposal in proposals:
        found = _decided(proposal, [proposal.hash], [proposal.transaction_hash], facts)
        if _followed(found) != proposal.followed:
            await _set_proposal(tx, intent_seq, n, proposal, *_followed(found))
            changed = True
    named = [intent.transaction_hash, *(proposal.transaction_hash for _, proposal in proposals)]
    subjects = [intent.hash, *(proposal.hash for _, proposal in proposals)]
    found = _decided(intent, subjects, named if intent.status in _REFUTABLE else [], facts)
    spoken = status_as_read(intent.status, deadline, now_ms, grace_s)
    before, after = intent.chain_status or spoken, found.outcome if found else spoken
    if _followed(found) != intent.followed:
        await tx.execute(
            "UPDATE intents SET chain_status = ?, chain_transaction_hash = ?, standing = ? WHERE seq = ?",
            (*_followed(found), after, intent_seq),
        )
        changed = True
    if before != after:
        await _log(tx, intent_seq, _told(found, before, after, lost), now_ms)
    if changed:
        await tx.execute("UPDATE intents SET version = version + 1 WHERE seq = ?", (intent_seq,))


async def _facts(tx: Transaction, intent_seq: int, settler: bytes) -> dict[bytes, list[Execution]]:
    """By subject, in the order of the chain. Who takes one back waits, and then sees what this transaction wrote."""
    asked = (settler, intent_seq, intent_seq, intent_seq, intent_seq)
    rows = await tx.fetch(_FACTS, asked)
    if rows and tx.for_update:
        rows = await tx.fetch(_FACTS + tx.for_update, asked)
    facts: dict[bytes, list[Execution]] = {}
    for row in rows:
        fact = Execution(*row)
        facts.setdefault(fact.subject, []).append(fact)
    return facts


def _decided(
    said: _Said, subjects: Sequence[bytes], named: Sequence[bytes | None], facts: dict[bytes, list[Execution]]
) -> Execution | None:
    """The fact that decides: a success about one of `subjects`, else a failure when all that are `named` failed.

    A swap between chains succeeds in two transactions: the one that operators call the destination's comes last.
    """
    successes = [fact for subject in subjects for fact in facts.get(subject, ()) if fact.outcome == "succeeded"]
    if successes:
        return min(
            successes,
            key=lambda fact: (
                fact.transaction_hash != said.transaction_hash,
                fact.transaction_hash == said.dest_transaction_hash,
            ),
        )
    known = list(dict.fromkeys(name for name in named if name is not None))
    failures = [
        next((fact for fact in facts.get(name, ()) if fact.outcome == "failed"), None) for name in known
    ]  # fmt: skip
    return failures[0] if failures and None not in failures else None


def _followed(found: Execution | None) -> tuple[str | None, bytes | None]:
    return _NOTHING if found is None else (found.outcome, found.transaction_hash)


async def _set_proposal(
    tx: Transaction, intent_seq: int, n: int, said: _Said, status: str | None, transaction_hash: bytes | None
) -> None:
    row = await tx.fetch_one("SELECT record FROM intent_proposals WHERE intent_seq = ? AND n = ?", (intent_seq, n))
    record: dict[str, Any] = parse_json(row[0].encode()) if row else {}
    record["status"] = status or said.status
    for name, value in (
        ("transactionHash", transaction_hash or said.transaction_hash),
        ("destTransactionHash", said.dest_transaction_hash),
    ):
        record.pop(name, None)
        if value is not None:
            record[name] = "0x" + value.hex()
    await tx.execute(
        """UPDATE intent_proposals SET chain_status = ?, chain_transaction_hash = ?, record = ?
           WHERE intent_seq = ? AND n = ?""",
        (status, transaction_hash, encode(record).decode(), intent_seq, n),
    )


def _told(found: Execution | None, before: str, after: str, lost: str) -> tuple[Literal["info", "warning"], str]:
    if found is None:
        reason = lost or "another transaction may still carry it out"
        return "warning", f"{reason}: the status was {before} and is {after} again"
    where = f"chain {found.chain_id} block {found.block_number}"
    what = "executed in transaction" if found.outcome == "succeeded" else "failed with transaction"
    text = f"{where}: {what} 0x{found.transaction_hash.hex()}"
    if before in _UNDER_WAY:
        return "info", text
    return "warning", f"{text}; the status was {before}"


async def _log(tx: Transaction, intent_seq: int, told: tuple[Literal["info", "warning"], str], now_ms: int) -> None:
    """Append a line, also to an intent whose log is full."""
    level, text = told
    data = LogText.parse(text)
    identity = check_log(NewLog(level=level, data=data), now_ms).identity
    last = await tx.fetch_one("SELECT COALESCE(MAX(n), 0) FROM intent_logs WHERE intent_seq = ?", (intent_seq,))
    n = (last[0] if last else 0) + 1
    record = encode(Log(level=level, data=data, created_at=iso_time(now_ms))).decode()
    added = await tx.execute(
        "INSERT INTO intent_logs (intent_seq, n, identity, record) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (intent_seq, n, identity, record),
    )
    if added:
        await tx.execute("UPDATE intents SET log_count = ? WHERE seq = ?", (n, intent_seq))
