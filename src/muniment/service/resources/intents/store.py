"""Intents in the database: how they are read, and how a sweep marks those that have expired.

A row of `intents`, `intent_proposals` or `intent_logs` holds the members that never change as JSON (`record`), which is
written once. Members that change are columns, and are added to them here alone. The status as read depends on the
time: `lifecycle.status_as_read` computes it, and `STATUS_AS_READ` does the same in SQL. The column `standing`, which
sweeps keep near to it, is for indexes: no answer is made from it alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from muniment.protocol.errors import IntentNotFound
from muniment.protocol.intents.lifecycle import (
    AFTER_GRACE,
    AT_DEADLINE,
    CAN_EXPIRE,
    Moment,
    passed_until,
    status_as_read,
)
from muniment.protocol.intents.types import NEWEST_SHOWN
from muniment.service.storage.sql import SWEPT_PER_BATCH, begins_with, number_text, placeholders

if TYPE_CHECKING:
    from muniment.service.storage.database import Reader, Row, Transaction


def _quoted(statuses: Sequence[LiteralString]) -> LiteralString:
    """An IN list of statuses as SQL text."""
    return ", ".join(f"'{status}'" for status in statuses)


# Rows that have expired since the last sweep; the parameters are `expiry()`. The list repeats the partial index
# `intents_by_end` word for word: else SQLite does not see that the index holds them all.
ENDED: Final = (
    f"standing IN ({_quoted(CAN_EXPIRE)}) AND deadline <= ? AND (standing <> '{AFTER_GRACE}' OR deadline <= ?)"
)
# Rows of one claimed status that a sweep of another clock or grace has marked, though they have not expired; the
# parameters are `early()`. An intent whose standing is `expired` has no fact of a chain.
EARLY: Final = "standing = 'expired' AND status = ? AND deadline > ?"
_RECORDED: Final = "COALESCE(chain_status, status)"
# The parameters are `expiry()`.
STATUS_AS_READ: Final = (
    f"CASE WHEN {_RECORDED} IN ({_quoted(AT_DEADLINE)}) AND deadline <= ? THEN 'expired' "
    f"WHEN {_RECORDED} = '{AFTER_GRACE}' AND deadline <= ? THEN 'expired' "
    f"ELSE {_RECORDED} END"
)
# The columns of a `Head`, of the table with the alias `i`.
HEAD_COLUMNS: Final = (
    "i.generation, i.seq, i.hash, COALESCE(i.chain_status, i.status), i.deadline, i.version, "
    "COALESCE(i.chain_transaction_hash, i.transaction_hash), i.dest_transaction_hash, "
    "i.execution_hash, i.proposal_count, i.log_count, i.record"
)
# Rows of one piece of a streamed answer. A proposal has up to 64 KiB, a log up to 4 (of which each byte may be six in
# JSON): about as much of either.
_PROPOSALS_PER_PIECE: Final = 100
_LOGS_PER_PIECE: Final = 500
# Proposals and logs that a listing reads in one statement, in the same proportion.
_WEIGHT_MAX: Final = 2 * _LOGS_PER_PIECE
# Hashes that one statement looks up.
_HASHES_PER_READ: Final = 500
_PROPOSAL_WEIGHT: Final = _LOGS_PER_PIECE // _PROPOSALS_PER_PIECE


def _transactions(transaction_hash: bytes | None, dest_transaction_hash: bytes | None) -> str:
    """The members for the transactions that are known, each with a comma before it."""
    text = "" if transaction_hash is None else f',"transactionHash":"0x{transaction_hash.hex()}"'
    if dest_transaction_hash is None:
        return text
    return f'{text},"destTransactionHash":"0x{dest_transaction_hash.hex()}"'


def _proposal_text(row: Row) -> str:
    """A proposal as it is answered, as JSON."""
    _, record, status, transaction_hash, dest_transaction_hash = row
    if transaction_hash is None and dest_transaction_hash is None:  # most of them
        return f'{record[:-1]},"status":"{status}"}}'
    return f'{record[:-1]},"status":"{status}"{_transactions(transaction_hash, dest_transaction_hash)}}}'


class _Numbered(NamedTuple):
    """A table whose rows are numbered within an intent, and the column of `intents` that counts them.

    `text` makes the JSON of a row from the `columns` of the table with the alias `r`.
    """

    table: LiteralString
    counted_by: LiteralString
    columns: LiteralString
    text: Callable[[Row], str]


_PROPOSALS: Final = _Numbered(
    "intent_proposals",
    "proposal_count",
    "r.intent_seq, r.record, COALESCE(r.chain_status, r.status), "
    "COALESCE(r.chain_transaction_hash, r.transaction_hash), r.dest_transaction_hash",
    _proposal_text,
)
_LOGS: Final = _Numbered("intent_logs", "log_count", "r.intent_seq, r.record", itemgetter(1))


@dataclass(frozen=True, slots=True)
class Head:
    """An intent without its proposals and logs; `status` is the status as read."""

    generation: int
    seq: int
    hash: bytes
    status: str
    version: int
    transaction_hash: bytes | None
    dest_transaction_hash: bytes | None
    execution_hash: bytes | None
    proposal_count: int
    log_count: int
    record: str

    @classmethod
    def of(cls, row: Row, moment: Moment) -> Head:
        """From the `HEAD_COLUMNS`, as the intent reads at that moment."""
        generation, seq, intent_hash, recorded, deadline, *rest = row
        status = status_as_read(recorded, int.from_bytes(deadline), moment)
        return cls(generation, seq, intent_hash, status, *rest)

    @property
    def etag(self) -> str:
        """Changes with everything that is written, and when the intent expires."""
        return f'"{self.hash[:16].hex()}-{self.version}-{self.status}"'

    @property
    def is_small(self) -> bool:
        """Whether it is answered in one piece."""
        return self.proposal_count <= _PROPOSALS_PER_PIECE and self.log_count <= _LOGS_PER_PIECE

    @property
    def weight(self) -> int:
        """The cost of reading its newest proposals and logs, in logs."""
        proposals = min(self.proposal_count, NEWEST_SHOWN)
        return proposals * _PROPOSAL_WEIGHT + min(self.log_count, NEWEST_SHOWN)

    @property
    def opening(self) -> str:
        """The JSON of the intent up to its first proposal."""
        executed = "" if self.execution_hash is None else self.execution_hash.hex()
        transactions = _transactions(self.transaction_hash, self.dest_transaction_hash)
        return (
            f'{self.record[:-1]},"executionHash":"0x{executed}","status":"{self.status}"{transactions},'
            f'"generation":{self.generation},"proposals":['
        )


def expiry(moment: Moment) -> tuple[bytes, bytes]:
    """The latest deadlines that have passed, as the column holds them: without the grace, and with it."""
    passed = passed_until(moment.now_ms)
    return _bound(passed), _bound(passed - moment.grace_s)


def early(status: str, ended: tuple[bytes, bytes]) -> tuple[str, bytes]:
    """The parameters of `EARLY` for a status of `CAN_EXPIRE`; `ended` is the result of `expiry`."""
    at_deadline, after_grace = ended
    return status, after_grace if status == AFTER_GRACE else at_deadline


def _bound(seconds: int) -> bytes:
    """A deadline as the column holds it; a time before 1970 is before every deadline."""
    return seconds.to_bytes(32) if seconds >= 0 else b""


_OF_PROPOSAL: Final = "intent_proposals p JOIN intents i ON i.seq = p.intent_seq"
# Each arm is one look into an index; a transaction may have carried several intents, of which the newest is found. The
# transactions are those that operators named; those that only the chain reported have no index.
_NAMED_BY: Final = (
    "SELECT hash, 1, seq FROM intents WHERE hash = ?",
    f"SELECT i.hash, 2, i.seq FROM {_OF_PROPOSAL} WHERE p.hash = ?",
    "SELECT hash, 3, seq FROM intents WHERE transaction_hash = ?",
    f"SELECT i.hash, 3, i.seq FROM {_OF_PROPOSAL} WHERE p.transaction_hash = ?",
)
_FIND_BY_HASH: Final = f"{' UNION ALL '.join(_NAMED_BY)} ORDER BY 2, 3 DESC LIMIT 1"


async def find_by_hash(database: Reader, given: bytes) -> bytes | None:
    """The hash of the intent that `given` (32 bytes) names: its own, else a proposal's, else a transaction's."""
    rows = await database.fetch(_FIND_BY_HASH, (given,) * len(_NAMED_BY))
    return rows[0][0] if rows else None


async def triggers_of(database: Reader | Transaction, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
    """The signature of its trigger for each of `hashes` under which an intent is recorded."""
    found = dict[bytes, bytes]()
    for start in range(0, len(hashes), _HASHES_PER_READ):
        asked = hashes[start : start + _HASHES_PER_READ]
        sql = f"SELECT hash, trigger_sig FROM intents WHERE hash IN ({placeholders(len(asked))})"
        found.update(await database.fetch(sql, asked))
    return found


async def find(database: Reader | Transaction, intent_hash: bytes, moment: Moment) -> Head:
    """The head of an intent. Raises `IntentNotFound`."""
    row = await database.fetch_one(f"SELECT {HEAD_COLUMNS} FROM intents i WHERE i.hash = ?", (intent_hash,))
    if row is None:
        raise IntentNotFound("no intent is recorded under this hash")
    return Head.of(row, moment)


async def proposal(tx: Transaction, proposal_hash: bytes) -> str:
    """A proposal that is recorded, as JSON."""
    sql = f"SELECT {_PROPOSALS.columns} FROM intent_proposals r WHERE r.hash = ?"
    (row,) = await tx.fetch(sql, (proposal_hash,))
    return _proposal_text(row)


async def shown(database: Reader | Transaction, intent_hash: bytes, moment: Moment) -> str:
    """An intent as a listing shows it, as JSON. Raises `IntentNotFound`."""
    return (await listed(database, [await find(database, intent_hash, moment)]))[0]


async def listed(database: Reader | Transaction, heads: Sequence[Head]) -> list[str]:
    """The intents as a listing shows them, as JSON."""
    proposals, logs = defaultdict[int, list[str]](list), defaultdict[int, list[str]](list)
    await _add_newest(proposals, database, _PROPOSALS, [head.seq for head in heads if head.proposal_count])
    await _add_newest(logs, database, _LOGS, [head.seq for head in heads if head.log_count])
    return [
        f'{head.opening}{",".join(proposals[head.seq])}],"logs":[{",".join(logs[head.seq])}]}}' for head in heads
    ]  # fmt: skip


async def _add_newest(
    found: defaultdict[int, list[str]], database: Reader | Transaction, numbered: _Numbered, seqs: Sequence[int]
) -> None:
    """Add the newest records of each intent to `found`, the oldest of them first."""
    if seqs:
        rows = await database.fetch(
            f"SELECT {numbered.columns} FROM intents i JOIN {numbered.table} r "
            f"ON r.intent_seq = i.seq AND r.n > i.{numbered.counted_by} - {number_text(NEWEST_SHOWN)} "
            f"WHERE i.seq IN ({placeholders(len(seqs))}) ORDER BY r.intent_seq, r.n",
            seqs,
        )
        text = numbered.text
        for row in rows:
            found[row[0]].append(text(row))


def groups(heads: Sequence[Head]) -> list[list[Head]]:
    """`heads` in order, in groups whose newest proposals and logs are few enough for one statement."""
    made: list[list[Head]] = []
    weight = _WEIGHT_MAX
    for head in heads:
        weight += head.weight
        if not made or weight > _WEIGHT_MAX:
            made.append([])
            weight = head.weight
        made[-1].append(head)
    return made


async def pieces(database: Reader, head: Head) -> AsyncIterator[bytes]:
    """The JSON of an intent with every proposal and log that it had when `head` was read, piece by piece."""
    yield head.opening.encode()
    async for piece in _records(database, head.seq, _PROPOSALS, head.proposal_count, _PROPOSALS_PER_PIECE):
        yield piece
    yield b'],"logs":['
    async for piece in _records(database, head.seq, _LOGS, head.log_count, _LOGS_PER_PIECE):
        yield piece
    yield b"]}"


async def _records(database: Reader, seq: int, numbered: _Numbered, count: int, size: int) -> AsyncIterator[bytes]:
    """The first `count` records of an intent, `size` in a piece, with a comma between any two."""
    sql = (
        f"SELECT {numbered.columns} FROM {numbered.table} r "
        "WHERE r.intent_seq = ? AND r.n > ? AND r.n <= ? ORDER BY r.n"
    )
    for start in range(0, count, size):
        rows = await database.fetch(sql, (seq, start, min(start + size, count)))
        yield (("," if start else "") + ",".join(map(numbered.text, rows))).encode()


async def mark_expired(tx: Transaction, moment: Moment, count: int = SWEPT_PER_BATCH) -> int:
    """Mark at most `count` intents that have expired, and unmark as many that have not.

    Returns the largest number of rows that one statement changed: below `count` all are done.
    """
    # Each condition occurs twice: an intent that changed while a statement waited for its row is checked again.
    ended = expiry(moment)
    marked = await tx.execute(
        f"UPDATE intents SET standing = 'expired' WHERE {ENDED} "
        f"AND seq IN (SELECT seq FROM intents WHERE {ENDED} LIMIT ?)",
        (*ended, *ended, count),
    )
    arms = " UNION ALL ".join(f"SELECT seq FROM intents WHERE {EARLY}" for _ in CAN_EXPIRE)
    unmarked = await tx.execute(
        f"UPDATE intents SET standing = status WHERE standing = 'expired' "
        f"AND seq IN (SELECT seq FROM ({arms}) early LIMIT ?)",
        (*(value for status in CAN_EXPIRE for value in early(status, ended)), count),
    )
    return max(marked, unmarked)


async def find_by_prefix(reader: Reader, digits: str, most: int) -> list[bytes]:
    """The hashes of intents that begin with these hex digits, in their order, at most `most`."""
    begins = begins_with("hash", digits, 32)
    sql = f"SELECT hash FROM intents WHERE {begins.sql} ORDER BY hash LIMIT ?"
    return [found for (found,) in await reader.fetch(sql, (*begins.values, most))]
