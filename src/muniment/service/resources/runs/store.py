"""Runs in the database: how they are read.

A row of `runs` has the members that never change as JSON, written once. What changes is added here alone: the records
of operators, the status that follows from them, whether the intents are recorded, and other verdicts on the same cause.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.protocol.evm.address import Address
from muniment.protocol.runs.types import CONFLICTS_SHOWN, RunStatus
from muniment.protocol.wire import iso_time
from muniment.service.resources.intents.run_outputs import trigger_of
from muniment.service.resources.intents.store import triggers_of
from muniment.service.resources.operators import revoked_among
from muniment.service.storage.sql import begins_with, placeholders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from muniment.service.storage.database import Reader, Row, Transaction

_HASH_BYTES: Final = 32
_COLUMNS: Final = "seq, verdict, disputed, min_validations, outputs, record"
_CONFLICTS: Final = """
    SELECT r.seq, other.hash
    FROM runs r JOIN runs other ON other.trigger_seq = r.trigger_seq AND other.payload_hash = r.payload_hash
    WHERE r.verdict = 1 AND other.verdict = 1 AND other.seq <> r.seq"""


class Record(NamedTuple):
    """A row of `run_records`."""

    operator: str
    relayer: bytes
    evidence: bytes
    created_at_ms: int
    orphaned_at_ms: int | None


class Standing(NamedTuple):
    """What operators say about a run."""

    status: RunStatus
    validations: int


@dataclass(frozen=True, slots=True)
class _Changing:
    """What changes about some runs, by their numbers, and the triggers of the intents that are recorded, by hash."""

    records: Mapping[int, Sequence[Record]]
    revoked: frozenset[str]
    recorded: Mapping[bytes, bytes]
    conflicts: Mapping[int, Sequence[bytes]]


def standing_of(
    records: Iterable[Record], revoked: frozenset[str], *, is_verdict: bool, min_validations: int
) -> Standing:
    """The standing of a run; `revoked` are the names of operators whose records count no more.

    One operator cannot make the run of others invalid: it takes back its own record alone.
    """
    records = list(records)
    count = sum(1 for each in records if each.orphaned_at_ms is None and each.operator not in revoked)
    if not count and any(each.orphaned_at_ms is not None for each in records):
        return Standing("invalid", 0)
    if not is_verdict:
        return Standing("pending", 0)
    return Standing("valid" if count >= min_validations else "pending", count)


def outputs_of(joined: bytes) -> list[bytes]:
    """The hashes of the intents in the column `outputs`."""
    return [joined[at : at + _HASH_BYTES] for at in range(0, len(joined), _HASH_BYTES)]


async def find(database: Reader | Transaction, run_hash: bytes) -> str | None:
    """A run with all its members, as JSON."""
    row = await database.fetch_one(f"SELECT {_COLUMNS}, more_logs, detail FROM runs WHERE hash = ?", (run_hash,))
    if row is None:
        return None
    *shown, more_logs, detail = row
    changing = await _changing(database, [tuple(shown)])
    return _text(tuple(shown), changing, more_logs, f",{detail[1:-1]}")


async def listed(database: Reader | Transaction, seqs: Sequence[int]) -> list[tuple[int, str]]:
    """The runs with these numbers in this order, as a listing shows them, as JSON; some may be gone."""
    rows = await database.fetch(f"SELECT {_COLUMNS} FROM runs WHERE seq IN ({placeholders(len(seqs))})", seqs)
    changing = await _changing(database, rows)
    by_seq = {row[0]: row for row in rows}
    return [(seq, _text(by_seq[seq], changing)) for seq in seqs if seq in by_seq]


async def _changing(database: Reader | Transaction, rows: Sequence[Row]) -> _Changing:
    """What changes about the runs with these `_COLUMNS`."""
    seqs = [row[0] for row in rows]
    if not seqs:
        return _Changing({}, frozenset(), {}, {})
    marks = placeholders(len(seqs))
    records = defaultdict[int, list[Record]](list)
    for seq, *record in await database.fetch(
        f"""SELECT run_seq, operator, relayer, evidence, created_at_ms, orphaned_at_ms FROM run_records
            WHERE run_seq IN ({marks}) ORDER BY run_seq, n""",
        seqs,
    ):
        records[seq].append(Record(*record))
    conflicts = defaultdict[int, list[bytes]](list)
    if disputed := [row[0] for row in rows if row[2]]:
        sql = f"{_CONFLICTS} AND r.seq IN ({placeholders(len(disputed))}) ORDER BY r.seq, other.seq"
        for seq, other in await database.fetch(sql, disputed):
            conflicts[seq].append(other)
    names = {each.operator for listed_records in records.values() for each in listed_records}
    intents = {each for row in rows for each in outputs_of(row[4])}
    return _Changing(
        records, await revoked_among(database, sorted(names)), await triggers_of(database, sorted(intents)), conflicts
    )


def _text(row: Row, changing: _Changing, more_logs: str = "", rest: str = "") -> str:
    """A run as JSON; `rest` are further members, with a comma before them."""
    seq, verdict, _, min_validations, joined, record = row
    records = changing.records.get(seq, ())
    standing = standing_of(records, changing.revoked, is_verdict=bool(verdict), min_validations=min_validations)
    trigger_sig = trigger_of(record) if joined else b""
    outputs = ",".join(
        f'{{"hash":"0x{each.hex()}","recorded":{"true" if changing.recorded.get(each) == trigger_sig else "false"}}}'
        for each in outputs_of(joined)
    )
    conflicts = ",".join(f'"0x{each.hex()}"' for each in changing.conflicts.get(seq, ())[:CONFLICTS_SHOWN])
    kept = f"{record[:-2]},{more_logs}]" if more_logs else record[:-1]
    return (
        f'{kept},"outputs":[{outputs}],"status":"{standing.status}","validations":{standing.validations},'
        f'"records":[{",".join(map(_shown, records))}],"conflicts":[{conflicts}]{rest}}}'
    )


def _shown(record: Record) -> str:
    """A `RunRecord` as JSON."""
    orphaned = "" if record.orphaned_at_ms is None else ',"orphaned":true'
    return (
        f'{{"relayer":"{Address.from_raw(record.relayer)}","evidence":"0x{record.evidence.hex()}",'
        f'"createdAt":"{iso_time(record.created_at_ms)}"{orphaned}}}'
    )


async def find_by_prefix(reader: Reader, digits: str, most: int) -> list[bytes]:
    """The hashes of runs that begin with these hex digits, in their order, at most `most`."""
    begins = begins_with("hash", digits, _HASH_BYTES)
    sql = f"SELECT hash FROM runs WHERE {begins.sql} ORDER BY hash LIMIT ?"
    return [found for (found,) in await reader.fetch(sql, (*begins.values, most))]
