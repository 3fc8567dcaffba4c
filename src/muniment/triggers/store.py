"""Triggers in the database: beside the columns that filters need, each row holds its record as it is answered.

The order of a listing is `seq`, the order of commits. `created_at_ms` never decreases with it (the writer sees to
that), so a bound on the time is a bound on `seq`, found by one look into an index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from msgspec import Meta

from muniment.errors import Fault, SignatureTaken, TriggerDeactivated, TriggerNotFound
from muniment.evm.address import Address
from muniment.evm.signature import Signature
from muniment.http.paging import OFFSET_MAX, OFFSET_QUICK_MAX, Page, PageQuery, Sort
from muniment.ipfs.cid import BundleCid
from muniment.storage.sql import SWEPT_AT_ONCE, Where, placeholders
from muniment.triggers.types import TRIGGER_SIGS_MAX, TimestampMs

if TYPE_CHECKING:
    from muniment.storage.database import Database, Reads, Transaction


class TriggerQuery(PageQuery, frozen=True):
    """Which triggers to list."""

    sigs: (
        Annotated[list[Signature], Meta(min_length=1, max_length=TRIGGER_SIGS_MAX, description="Only these")] | None
    ) = None
    function_cid: BundleCid | None = None
    signer: Address | None = None
    active: Annotated[bool, Meta(description="true: not deactivated and not past its end; false: the rest")] | None = (
        None
    )
    created_after: Annotated[TimestampMs, Meta(description="Exclusive")] | None = None
    created_before: Annotated[TimestampMs, Meta(description="Inclusive")] | None = None
    sort: Sort = -1


# Those that have ended since the last sweep: few, and found by an index of their own.
_ENDED: Final = "live = 1 AND end_date_ms > 0 AND end_date_ms <= ?"
_ACTIVE: Final = "live = 1 AND (end_date_ms = 0 OR end_date_ms > ?)"
# A planner keeps conditions from outside out of a subquery that has a limit, and with them other indexes, which it
# would walk from end to end (https://sqlite.org/optoverview.html, "the push-down optimization"). 2^63 - 1 is no limit.
_FENCE: Final = "LIMIT 9223372036854775807"
# Texts of statements kept: all mixes of filters but for the lengths of `sigs`.
_STATEMENTS_KEPT: Final = 512


@dataclass(frozen=True, slots=True)
class NewRow:
    """A trigger to be stored; `record` makes its JSON once the time of its creation is known."""

    sig: Signature
    signer: Address
    digest: bytes
    function_digest: bytes
    protocol: str
    end_date_ms: int
    created_at_ms: int
    record: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Stored:
    """A trigger as it is stored."""

    sig: bytes
    signer: bytes
    deactivated: bool
    record: str


async def find(database: Reads, sig: Signature) -> tuple[str, bool] | None:
    """The record of a trigger and whether it is deactivated."""
    row = await database.fetch_one("SELECT record, deactivated FROM triggers WHERE sig = ?", (sig.raw,))
    return (row[0], bool(row[1])) if row else None


async def find_consent(database: Database | Transaction, signer: Address, digest: bytes) -> str | None:
    """The record of a consent, under whichever signature it came first. Raises `TriggerDeactivated`."""
    row = await database.fetch_one(
        "SELECT record, deactivated FROM triggers WHERE signer = ? AND digest = ?", (signer.raw, digest)
    )
    if row is None:
        return None
    if row[1]:
        raise TriggerDeactivated(
            "this consent was deactivated, which is permanent; sign a new one that differs in something"
        )
    return row[0]


async def insert(transaction: Transaction, new: NewRow) -> str:
    """Store a trigger unless its consent is stored; the record that counts.

    Raises `TriggerDeactivated`, `SignatureTaken`.
    """
    last = await transaction.fetch_one("SELECT created_at_ms FROM triggers ORDER BY seq DESC LIMIT 1")
    created_at_ms = max(new.created_at_ms, last[0] if last else 0)
    record = new.record(created_at_ms)
    added = await transaction.execute(
        """INSERT INTO triggers
             (sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
        (
            new.sig.raw, new.signer.raw, new.digest, new.function_digest, new.protocol,
            new.end_date_ms, created_at_ms, record,
        ),
    )  # fmt: skip
    if added:
        return record
    if (known := await find_consent(transaction, new.signer, new.digest)) is not None:
        return known
    # Any 65 bytes recover some address for any digest, but an identity names one record.
    raise SignatureTaken("this signature is registered already, for another signer and other typed data")


async def fetch_listed(transaction: Transaction, sigs: list[Signature]) -> list[Stored]:
    """The triggers with these signatures. Raises `TriggerNotFound`, naming the first that is not there."""
    rows = await transaction.fetch(
        f"SELECT sig, signer, deactivated, record FROM triggers WHERE sig IN ({placeholders(len(sigs))}) "  # noqa: S608 - ? only
        f"ORDER BY sig{transaction.for_update}",
        [sig.raw for sig in sigs],
    )
    found = {row[0]: Stored(row[0], row[1], bool(row[2]), row[3]) for row in rows}
    for index, sig in enumerate(sigs):
        if sig.raw not in found:
            detail = f"no trigger is registered under {sig}"
            raise TriggerNotFound(detail, faults=[Fault(detail, pointer=f"/triggerSigs/{index}")])
    return [found[sig.raw] for sig in sigs]


async def deactivate(transaction: Transaction, sig: bytes, record: str) -> None:
    """Mark a trigger as deactivated; `record` is what it reads as from now on."""
    await transaction.execute(
        "UPDATE triggers SET deactivated = 1, live = 0, record = ? WHERE sig = ? AND deactivated = 0", (record, sig)
    )


async def keep_deactivation(
    transaction: Transaction, signature: Signature, signer: bytes, protocol: str, sigs: list[Signature], now_ms: int
) -> None:
    """Keep the consent to deactivate with the list it covers, so that it can be checked again."""
    await transaction.execute(
        """INSERT INTO deactivations (signature, signer, protocol, trigger_sigs, created_at_ms)
           VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
        (signature.raw, signer, protocol, b"".join(sig.raw for sig in sigs), now_ms),
    )


async def settle_ended(transaction: Transaction, now_ms: int) -> int:
    """Mark some of the triggers that have ended as no longer live; how many."""
    # In the order of the index that holds these and no others. A planner that takes them for many would walk the table.
    ended = f"SELECT seq FROM triggers WHERE {_ENDED} ORDER BY end_date_ms LIMIT ?"  # noqa: S608 - text of ours
    return await transaction.execute(
        f"UPDATE triggers SET live = 0 WHERE seq IN ({ended})",  # noqa: S608 - likewise
        (now_ms, SWEPT_AT_ONCE),
    )


async def search(database: Reads, query: TriggerQuery, now_ms: int) -> Page:
    """A page of records in the order of commits."""
    where = await _conditions(database, query)
    arms = _arms(query, now_ms)
    reach = min(query.offset + query.limit + 1, OFFSET_MAX)
    is_ordered = all(arm.source == "triggers" for arm in arms) and (database.merges_unions or len(arms) == 1)
    is_first = is_ordered and not query.offset
    sql = _page_sql(tuple((arm.source, arm.clause) for arm in arms), str(where), query.sort, is_first=is_first)
    parameters: list[object] = []
    for arm in arms:
        parameters += [*arm.given, *where.parameters, *arm.values]
        if not is_first:
            parameters.append(reach)
    fetch = database.fetch if query.offset <= OFFSET_QUICK_MAX else database.fetch_slow
    rows = await fetch(sql, [*parameters, query.limit + 1, query.offset])
    return Page.of(rows, query.limit)


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _page_sql(arms: tuple[tuple[str, str], ...], conditions: str, sort: Sort, *, is_first: bool) -> str:
    """The statement for a page of what the arms give, each a source and a clause on top of the conditions.

    The first page of arms that an index has in order is merged from them as far as it goes. Else the rows are found
    by their numbers alone, so that no record is read, and sorted, that is not shown.
    """
    direction = "ASC" if sort == 1 else "DESC"
    chosen = [
        source + conditions + (f"{' AND ' if conditions else ' WHERE '}{clause}" if clause else "")
        for source, clause in arms
    ]
    if is_first:
        merged = " UNION ALL ".join(f"SELECT seq, record FROM {each}" for each in chosen)  # noqa: S608 - text of ours
        return f"{merged} ORDER BY 1 {direction} LIMIT ? OFFSET ?"
    selects = [f"SELECT * FROM (SELECT seq FROM {each} ORDER BY seq {direction} LIMIT ?) arm" for each in chosen]  # noqa: S608 - text of ours
    return (
        f"SELECT t.seq, t.record FROM ({' UNION ALL '.join(selects)} ORDER BY 1 {direction} LIMIT ? OFFSET ?) page "  # noqa: S608 - text of ours
        f"JOIN triggers t ON t.seq = page.seq ORDER BY t.seq {direction}"
    )


async def _conditions(database: Reads, query: TriggerQuery) -> Where:
    """What is asked of a row. Bounds by time and by cursor are one on either side: an index is walked from one."""
    where = Where()
    where.add_if("signer = ?", query.signer and query.signer.raw)
    where.add_if("function_digest = ?", query.function_cid and query.function_cid.digest)
    above, below = await _times(where, database, query)
    if query.cursor is not None:
        seq = query.cursor.seq
        above, below = (max(above, seq), below) if query.sort == 1 else (above, min(below, seq))
    if above:
        where.add("seq > ?", above)
    if below < OFFSET_MAX:
        where.add("seq < ?", below)
    if query.sort == 1 and database.settled_before:
        where.add(f"seq < {database.settled_before}")
    return where


async def _times(where: Where, database: Reads, query: TriggerQuery) -> tuple[int, int]:
    """Bounds on the time as bounds on `seq`; where neighbours' times may differ, wide ones, and `where` has the exact.

    `+ 0` keeps the index on the time out of it: rows are walked in the order of `seq`.
    """
    slack_ms, above, below = database.times_differ_ms, 0, OFFSET_MAX
    if query.created_after is not None:
        rows = await database.fetch(
            "SELECT seq FROM triggers WHERE created_at_ms <= ? ORDER BY created_at_ms DESC, seq DESC LIMIT 1",
            (query.created_after - slack_ms,),
        )
        above = rows[0][0] if rows else 0
        if slack_ms:
            where.add("created_at_ms + 0 > ?", query.created_after)
    if query.created_before is not None:
        rows = await database.fetch(
            "SELECT seq FROM triggers WHERE created_at_ms > ? ORDER BY created_at_ms, seq LIMIT 1",
            (query.created_before + slack_ms,),
        )
        below = rows[0][0] if rows else OFFSET_MAX
        if slack_ms:
            where.add("created_at_ms + 0 <= ?", query.created_before)
    return above, below


class _Arm(NamedTuple):
    """A part of the rows that one index gives, in order or few: where it is read from, and what is asked of a row."""

    source: str = "triggers"
    given: tuple[object, ...] = ()
    clause: str = ""
    values: tuple[object, ...] = ()


def _arms(query: TriggerQuery, now_ms: int) -> list[_Arm]:
    """The rows to choose from; apart from the state and the list of signatures, the conditions come on top."""
    if query.sigs is not None:
        listed = f"(SELECT * FROM triggers WHERE sig IN ({placeholders(len(query.sigs))}) {_FENCE}) listed"  # noqa: S608 - ? only
        state = "" if query.active is None else _ACTIVE if query.active else f"NOT ({_ACTIVE})"
        return [_Arm(listed, tuple(sig.raw for sig in query.sigs), state, (now_ms,) if state else ())]
    if query.active is True:
        return [_Arm(clause=_ACTIVE, values=(now_ms,))]
    if query.active is False:
        ended = f"(SELECT * FROM triggers WHERE {_ENDED} {_FENCE}) ended"  # noqa: S608 - text of ours
        return [_Arm(clause="live = 0"), _Arm(ended, (now_ms,))]
    if query.signer is not None or query.function_cid is not None:
        return [_Arm(clause="live = 0"), _Arm(clause="live = 1")]  # in their indexes `live` stands before `seq`
    return [_Arm()]
