"""Intents in the database, read: a head with the members that never change as JSON, and numbered proposals and logs.

The status as read depends on the time: `moves.status_as_read` says how, and `STATUS_AS_READ` is the same in SQL. The
column `standing`, which sweeps keep near to it, is for indexes: no answer is made from it alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.intents.lifecycle import passed_until, status_as_read
from muniment.intents.types import NEWEST_SHOWN
from muniment.storage.sql import SWEPT_AT_ONCE, placeholders

if TYPE_CHECKING:
    from muniment.storage.database import Reads, Row, Transaction

# Those that have expired since the last sweep; its parameters are `expiry()`. The list is the one of the partial
# index `intents_by_end`, word for word: else SQLite does not see that the index holds them all.
ENDED: Final = (
    "standing IN ('created', 'enqueued', 'submitted') AND deadline <= ? AND (standing <> 'submitted' OR deadline <= ?)"
)
# Those with a status that operators told which a sweep has marked, but have not expired: it had another clock or grace.
# Its parameters are `early()`. The chain has told nothing of an intent whose standing is `expired`.
EARLY: Final = "standing = 'expired' AND status = ? AND deadline > ?"
# The parameters are `expiry()`.
STATUS_AS_READ: Final = (
    "CASE WHEN COALESCE(chain_status, status) IN ('created', 'enqueued') AND deadline <= ? THEN 'expired' "
    "WHEN COALESCE(chain_status, status) = 'submitted' AND deadline <= ? THEN 'expired' "
    "ELSE COALESCE(chain_status, status) END"
)
CAN_END: Final = ("created", "enqueued", "submitted")
HEAD_COLUMNS: Final = (
    "i.seq, i.hash, COALESCE(i.chain_status, i.status), i.deadline, i.version, "
    "COALESCE(i.chain_transaction_hash, i.transaction_hash), i.dest_transaction_hash, "
    "i.proposal_count, i.log_count, i.record"
)
# Rows that are held at once of an answer that is streamed. A proposal has up to 64 KiB, a log up to 4 (of which each
# byte may be six in JSON): about as much of either.
_PROPOSALS_AT_ONCE: Final = 100
_LOGS_AT_ONCE: Final = 500
# Proposals and logs of a listing that are read at once, in the same proportion.
_WEIGHT_AT_ONCE: Final = 2 * _LOGS_AT_ONCE
_PROPOSAL_WEIGHT: Final = _LOGS_AT_ONCE // _PROPOSALS_AT_ONCE


class _Numbered(NamedTuple):
    """A table of what belongs to intents, and the column of `intents` that counts it."""

    table: str
    counted_by: str


_PROPOSALS: Final = _Numbered("intent_proposals", "proposal_count")
_LOGS: Final = _Numbered("intent_logs", "log_count")


@dataclass(frozen=True, slots=True)
class Head:
    """An intent without its proposals and logs."""

    seq: int
    hash: bytes
    status: str
    version: int
    transaction_hash: bytes | None
    dest_transaction_hash: bytes | None
    proposal_count: int
    log_count: int
    record: str

    @classmethod
    def of(cls, row: Row, now_ms: int, grace_s: int) -> Head:
        """From the `HEAD_COLUMNS`, as it reads at `now_ms`."""
        seq, intent_hash, told, deadline, *rest = row
        status = status_as_read(told, int.from_bytes(deadline), now_ms, grace_s)
        return cls(seq, intent_hash, status, *rest)

    @property
    def etag(self) -> str:
        """Changes with everything that is written, and when the intent expires."""
        return f'"{self.hash[:16].hex()}-{self.version}-{self.status}"'

    @property
    def is_small(self) -> bool:
        """Whether it is answered in one piece."""
        return self.proposal_count <= _PROPOSALS_AT_ONCE and self.log_count <= _LOGS_AT_ONCE

    @property
    def weight(self) -> int:
        """What reading its newest proposals and logs may cost, in logs."""
        proposals = min(self.proposal_count, NEWEST_SHOWN)
        return proposals * _PROPOSAL_WEIGHT + min(self.log_count, NEWEST_SHOWN)

    @property
    def opening(self) -> str:
        """The JSON of the intent up to its first proposal."""
        hashes = (("transactionHash", self.transaction_hash), ("destTransactionHash", self.dest_transaction_hash))
        known = "".join(f',"{name}":"0x{value.hex()}"' for name, value in hashes if value is not None)
        return f'{self.record[:-1]},"status":"{self.status}"{known},"proposals":['


def expiry(now_ms: int, grace_s: int) -> tuple[bytes, bytes]:
    """The latest deadlines that have passed: for `created` and `enqueued`, and for `submitted`. As in the column."""
    passed = passed_until(now_ms)
    return _bound(passed), _bound(passed - grace_s)


def early(status: str, ended: tuple[bytes, bytes]) -> tuple[str, bytes]:
    """The parameters of `EARLY` for one of those that `CAN_END`; `ended` is the `expiry()`."""
    return status, ended[CAN_END.index(status) // 2]


def _bound(seconds: int) -> bytes:
    """A deadline as the column holds it; what is before 1970 is before every deadline."""
    return seconds.to_bytes(32) if seconds >= 0 else b""


async def find(database: Reads | Transaction, intent_hash: bytes, now_ms: int, grace_s: int) -> Head | None:
    """The head of an intent."""
    sql = f"SELECT {HEAD_COLUMNS} FROM intents i WHERE i.hash = ?"  # noqa: S608 - text of ours
    row = await database.fetch_one(sql, (intent_hash,))
    return Head.of(row, now_ms, grace_s) if row else None


async def shown(database: Reads | Transaction, intent_hash: bytes, now_ms: int, grace_s: int) -> str | None:
    """An intent as a listing shows it, as JSON."""
    head = await find(database, intent_hash, now_ms, grace_s)
    return (await listed(database, [head]))[0] if head else None


async def listed(database: Reads | Transaction, heads: Sequence[Head]) -> list[str]:
    """The intents as a listing shows them, as JSON."""
    proposals = await _newest(database, _PROPOSALS, [head.seq for head in heads if head.proposal_count])
    logs = await _newest(database, _LOGS, [head.seq for head in heads if head.log_count])
    return [
        f'{head.opening}{",".join(proposals[head.seq])}],"logs":[{",".join(logs[head.seq])}]}}' for head in heads
    ]  # fmt: skip


async def _newest(
    database: Reads | Transaction, numbered: _Numbered, seqs: Sequence[int]
) -> defaultdict[int, list[str]]:
    """The newest records of each intent, the oldest of them first."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    if seqs:
        rows = await database.fetch(
            f"SELECT r.intent_seq, r.record FROM intents i JOIN {numbered.table} r "  # noqa: S608 - text of ours, and ?
            f"ON r.intent_seq = i.seq AND r.n > i.{numbered.counted_by} - {NEWEST_SHOWN} "
            f"WHERE i.seq IN ({placeholders(len(seqs))}) ORDER BY r.intent_seq, r.n",
            seqs,
        )
        for seq, record in rows:
            found[seq].append(record)
    return found


def groups(heads: Sequence[Head]) -> list[list[Head]]:
    """`heads` in order, in groups whose proposals and logs may be read at once."""
    made: list[list[Head]] = []
    weight = _WEIGHT_AT_ONCE
    for head in heads:
        weight += head.weight
        if not made or weight > _WEIGHT_AT_ONCE:
            made.append([])
            weight = head.weight
        made[-1].append(head)
    return made


async def pieces(database: Reads, head: Head) -> AsyncIterator[bytes]:
    """The JSON of an intent with every proposal and log that it had when `head` was read, piece by piece."""
    yield head.opening.encode()
    async for piece in _records(database, head.seq, _PROPOSALS, head.proposal_count, _PROPOSALS_AT_ONCE):
        yield piece
    yield b'],"logs":['
    async for piece in _records(database, head.seq, _LOGS, head.log_count, _LOGS_AT_ONCE):
        yield piece
    yield b"]}"


async def _records(database: Reads, seq: int, numbered: _Numbered, count: int, at_once: int) -> AsyncIterator[bytes]:
    """The first `count` records of an intent, `at_once` in a piece, with a comma between any two."""
    sql = f"SELECT record FROM {numbered.table} WHERE intent_seq = ? AND n > ? AND n <= ? ORDER BY n"  # noqa: S608 - text of ours
    for start in range(0, count, at_once):
        rows = await database.fetch(sql, (seq, start, min(start + at_once, count)))
        yield (("," if start else "") + ",".join(record for (record,) in rows)).encode()


async def settle_expired(transaction: Transaction, now_ms: int, grace_s: int) -> int:
    """Mark some of the intents that have expired as such, and unmark some that have not; the larger number of both.

    The conditions stand twice: an intent that moved while a statement waited for its row is looked at again.
    """
    ended = expiry(now_ms, grace_s)
    marked = await transaction.execute(
        f"UPDATE intents SET standing = 'expired' WHERE {ENDED} "  # noqa: S608 - text of ours
        f"AND seq IN (SELECT seq FROM intents WHERE {ENDED} LIMIT ?)",
        (*ended, *ended, SWEPT_AT_ONCE),
    )
    arms = " UNION ALL ".join([f"SELECT seq FROM intents WHERE {EARLY}"] * len(CAN_END))  # noqa: S608 - text of ours
    unmarked = await transaction.execute(
        f"UPDATE intents SET standing = status WHERE standing = 'expired' "  # noqa: S608 - text of ours
        f"AND seq IN (SELECT seq FROM ({arms}) early LIMIT ?)",
        (*(value for status in CAN_END for value in early(status, ended)), SWEPT_AT_ONCE),
    )
    return max(marked, unmarked)
