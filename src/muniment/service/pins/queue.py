"""The rows of the queue: one for each bundle that is to be pinned. A row stays when its bundle is pinned.

A worker *takes* a due row: it moves the time at which the row is due past the end of its work. So a row whose worker
was killed is due again without any help. Each taking has a number (`turn`), and only the last one may write its result.
Statements lock one row, or rows in the order of their digests, so that two processes cannot deadlock.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from muniment.protocol.ipfs.cid import Cid
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.storage.database import Database, Row, Transaction

# A row that has failed this often is stuck: the reason will hardly go away by itself.
STUCK_FAILURES: Final = 5
# The longest pause between two attempts with one bundle. `PinLimits` keeps to it.
WAIT_MS_MAX: Final = 3_600_000
# A row that is due later was dated by a clock that was ahead, and is due now. Synchronised clocks differ by less.
_DUE_MS_MAX: Final = WAIT_MS_MAX + 5 * 60 * 1000
# Due rows that a worker looks at in one query: if others take them first, it goes on with the next.
_LOOKED_AT: Final = 16
# Functions that `add_missing` reads in one query.
_FUNCTIONS_PER_STEP: Final = 200

_ADD: Final = "INSERT INTO pins (digest, waits_since_ms, due_at_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_DUE: Final = """SELECT p.digest, p.turn, p.failures, f.record FROM pins p JOIN functions f ON f.digest = p.digest
WHERE p.pinned_at_ms IS NULL AND p.due_at_ms {} ? ORDER BY p.due_at_ms LIMIT ?"""


class _Named(msgspec.Struct):
    """The member of a function's record that holds its CID."""

    cid: str = msgspec.field(name="CID")


@dataclass(frozen=True, slots=True)
class Taken:
    """A row that this process works on until its result is written, or its time is over."""

    digest: bytes
    cid: Cid
    turn: int
    failures: int


class Backlog(NamedTuple):
    """The rows that wait: their number, those that are stuck, and the start of the longest wait (None: no row)."""

    waiting: int
    stuck: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class Pin:
    """A row as an operator sees it. Times are milliseconds since 1970; `pinned_at_ms` None: it waits."""

    cid: Cid
    waits_since_ms: int
    due_at_ms: int
    is_taken: bool
    failures: int
    error: str | None
    pinned_at_ms: int | None


def cid_of(record: str) -> Cid:
    """The CID in the record of a function, in the version under which it was registered."""
    return Cid.parse(msgspec.json.decode(record, type=_Named).cid)


async def add(tx: Transaction, digest: bytes, now_ms: int) -> None:
    """Add the bundle with this root block, unless it is there: a bundle is pinned once."""
    await tx.execute(_ADD, (digest, now_ms, now_ms))


async def add_missing(database: Database, now_ms: int) -> int:
    """Add the registered bundles that are not in the queue; their number.

    They came while pinning was off, or through a process that does not pin. The functions are read in steps.
    """
    added, seq = 0, 0
    while rows := await database.fetch(
        """SELECT f.seq, f.digest, p.digest FROM functions f LEFT JOIN pins p ON p.digest = f.digest
           WHERE f.seq > ? ORDER BY f.seq LIMIT ?""",
        (seq, _FUNCTIONS_PER_STEP),
    ):
        seq = rows[-1][0]
        missing = [bytes(digest) for _, digest, known in rows if known is None]
        # A write for each row: an engine sorts the writes of a group by their order, and so two processes cannot lock
        # the same rows in different orders.
        await asyncio.gather(*(_add_one(database, digest, now_ms) for digest in missing))
        added += len(missing)
    return added


async def _add_one(database: Database, digest: bytes, now_ms: int) -> None:
    await database.write(lambda tx: add(tx, digest, now_ms), order=digest)


async def take(database: Database, now_ms: int, lease_ms: int) -> Taken | None:
    """Take the row that is due first, for `lease_ms`; None when no row is due. Raises `Unavailable`."""
    rows = await database.fetch(_DUE.format("<="), (now_ms, _LOOKED_AT))
    if not rows:
        rows = await database.fetch(_DUE.format(">"), (now_ms + _DUE_MS_MAX, _LOOKED_AT))
    for row in rows:
        if await _take_one(database, row, now_ms + lease_ms):
            return Taken(bytes(row[0]), cid_of(row[3]), row[1] + 1, row[2])
    return None


async def _take_one(database: Database, row: Row, until_ms: int) -> bool:
    """Whether this process has taken the row, and no other."""
    digest, turn = row[0], row[1]
    sql = """UPDATE pins SET taken = 1, turn = turn + 1, due_at_ms = ?
             WHERE digest = ? AND turn = ? AND pinned_at_ms IS NULL"""
    return await database.write(lambda tx: tx.execute(sql, (until_ms, digest, turn)), order=bytes(digest)) == 1


async def finish(database: Database, taken: Taken, now_ms: int) -> None:
    """Mark the bundle as pinned."""
    sql = """UPDATE pins SET taken = 0, failures = 0, error = NULL, pinned_at_ms = ?
             WHERE digest = ? AND turn = ? AND pinned_at_ms IS NULL"""
    await database.write(lambda tx: tx.execute(sql, (now_ms, taken.digest, taken.turn)), order=taken.digest)


async def give_back(database: Database, taken: Taken, due_at_ms: int, failures: int, error: str) -> None:
    """Record a failed attempt: when the bundle is due again, its failures so far, and the reason."""
    sql = """UPDATE pins SET taken = 0, due_at_ms = ?, failures = ?, error = ?
             WHERE digest = ? AND turn = ? AND pinned_at_ms IS NULL"""
    values = (due_at_ms, failures, error, taken.digest, taken.turn)
    await database.write(lambda tx: tx.execute(sql, values), order=taken.digest)


async def release(database: Database, taken: Taken, now_ms: int) -> None:
    """Release the bundle, which is due at once."""
    sql = "UPDATE pins SET taken = 0, due_at_ms = ? WHERE digest = ? AND turn = ? AND pinned_at_ms IS NULL"
    await database.write(lambda tx: tx.execute(sql, (now_ms, taken.digest, taken.turn)), order=taken.digest)


async def count_waiting(database: Database) -> int:
    """The number of bundles that are not pinned yet."""
    ((waiting,),) = await database.fetch_slow("SELECT count(*) FROM pins WHERE pinned_at_ms IS NULL")
    return waiting


async def read_backlog(database: Database) -> Backlog:
    """The rows that wait."""
    (row,) = await database.fetch_slow(
        """SELECT count(*), count(CASE WHEN failures >= ? THEN 1 END), min(waits_since_ms)
           FROM pins WHERE pinned_at_ms IS NULL""",
        (STUCK_FAILURES,),
    )
    return Backlog(*row)


async def listed(database: Database, *, is_pinned: bool, limit: int) -> list[Pin]:
    """At most `limit` rows: those that wait, the longest wait first, or those that are pinned, the last one first."""
    state = "NOT NULL ORDER BY p.pinned_at_ms DESC" if is_pinned else "NULL ORDER BY p.waits_since_ms"
    rows = await database.fetch_slow(
        f"""SELECT f.record, p.waits_since_ms, p.due_at_ms, p.taken, p.failures, p.error, p.pinned_at_ms
            FROM pins p JOIN functions f ON f.digest = p.digest WHERE p.pinned_at_ms IS {state}, p.digest LIMIT ?""",
        (limit,),
    )
    return [
        Pin(cid_of(record), since, due, bool(taken), failures, error, pinned)
        for record, since, due, taken, failures, error, pinned in rows
    ]


async def retry(tx: Transaction, now_ms: int, digests: Sequence[bytes] = ()) -> int:
    """Make rows that wait due at once, all of them or those of `digests`; their number.

    A row that a worker has taken is left to it, unless its time is over.
    """
    chosen = f" AND digest IN ({placeholders(len(digests))})" if digests else ""
    return await tx.execute(
        f"""UPDATE pins SET due_at_ms = ?, failures = 0 WHERE digest IN (
              SELECT digest FROM pins WHERE pinned_at_ms IS NULL AND (taken = 0 OR due_at_ms <= ?){chosen}
              ORDER BY digest {tx.for_update})""",
        (now_ms, now_ms, *digests),
    )


async def recheck(tx: Transaction, now_ms: int) -> int:
    """Let the workers ask the node again about every bundle that is pinned; their number."""
    return await tx.execute(
        f"""UPDATE pins SET pinned_at_ms = NULL, waits_since_ms = ?, due_at_ms = ? WHERE digest IN (
              SELECT digest FROM pins WHERE pinned_at_ms IS NOT NULL ORDER BY digest {tx.for_update})""",
        (now_ms, now_ms),
    )
