"""Triggers in the database: each row has the JSON record and the columns for filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

import msgspec

from muniment.protocol.errors import Fault, SignatureTaken, TriggerDeactivated, TriggerNotFound
from muniment.protocol.evm.signature import Signature
from muniment.protocol.triggers.types import DeactivationForm
from muniment.service.storage.database import InsertOnce, Made
from muniment.service.storage.dating import date_row, usual_time
from muniment.service.storage.ordered import OrderedRows
from muniment.service.storage.sql import SWEPT_PER_BATCH, begins_with, placeholders

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature
    from muniment.service.storage.database import Database, Reader, Row, Transaction


class Registered(NamedTuple):
    """A trigger in commit order."""

    seq: int
    sig: bytes
    signer: bytes
    digest: bytes
    protocol: str
    record: str


class Ended(NamedTuple):
    """A deactivation in commit order."""

    seq: int
    signature: bytes
    signer: bytes
    protocol: str
    trigger_sigs: bytes
    created_at_ms: int


REGISTERED: Final = OrderedRows(Registered, "triggers", "sig, signer, digest, protocol, record")
DEACTIVATED: Final = OrderedRows(Ended, "deactivations", "signature, signer, protocol, trigger_sigs, created_at_ms")

# Triggers that ended after the last sweep: few, with an index of their own.
ENDED: Final = "live = 1 AND end_date_ms > 0 AND end_date_ms <= ?"

# Triggers that a sweep marked before their end, because its clock was ahead: few, with an index of their own.
EARLY: Final = "live = 0 AND deactivated = 0 AND end_date_ms > ?"
_SIGNATURE_BYTES: Final = 65
_ADDRESS_BYTES: Final = 20
# The latest time of a trigger; and the record of this consent if it is stored, empty if it is deactivated.
BEFORE: Final = """
SELECT (SELECT created_at_ms FROM triggers ORDER BY created_at_ms DESC LIMIT 1),
       (SELECT CASE deactivated WHEN 0 THEN record ELSE '' END FROM triggers WHERE signer = ? AND digest = ?)
"""
_COLUMNS: Final = (
    "sig", "signer", "digest", "function_digest", "protocol", "end_date_ms", "created_at_ms", "record"
)  # fmt: skip
_INSERT: Final = f"""
INSERT INTO triggers ({", ".join(_COLUMNS)}) VALUES ({placeholders(len(_COLUMNS))}) ON CONFLICT DO NOTHING
"""


class NewRow(msgspec.Struct, frozen=True):
    """A trigger to store; `record` makes its JSON from the time of its creation."""

    sig: bytes
    signer: bytes
    digest: bytes
    function_digest: bytes
    protocol: str
    end_date_ms: int
    created_at_ms: int
    record: Callable[[int], str]


class Kept(NamedTuple):
    """The record of a consent, and whether this write stored it."""

    record: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Stored:
    """A trigger as it is stored."""

    sig: bytes
    signer: bytes
    protocol: str
    deactivated: bool
    record: str


async def find(database: Reader, sig: Signature) -> tuple[str, bool] | None:
    """The record of a trigger and whether it is deactivated."""
    row = await database.fetch_one("SELECT record, deactivated FROM triggers WHERE sig = ?", (sig.raw,))
    return (row[0], bool(row[1])) if row else None


async def find_consent(database: Database | Transaction, signer: bytes, digest: bytes) -> str | None:
    """The record of a consent, with the signature that was registered first. Raises `TriggerDeactivated`."""
    row = await database.fetch_one(
        "SELECT record, deactivated FROM triggers WHERE signer = ? AND digest = ?", (signer, digest)
    )
    if row is None:
        return None
    if row[1]:
        raise _deactivated()
    return row[0]


def _deactivated() -> TriggerDeactivated:
    return TriggerDeactivated("this consent was deactivated, which is permanent; sign a new one with another version")


def insertion(new: NewRow) -> InsertOnce[Kept]:
    """The write that stores a trigger unless its consent is stored; its result is the record that was stored first.

    Raises `TriggerDeactivated`, `SignatureTaken`.
    """
    key = (new.signer, new.digest)
    return InsertOnce(BEFORE, key, "triggers", _COLUMNS, partial(_made, new), partial(insert, new=new))


def _made(new: NewRow, before: Row) -> Made[Kept] | None:
    newest_ms, known = before
    if known is not None:
        return Made(Kept(_active(known), is_new=False), ())
    created_at_ms = usual_time(new.created_at_ms, newest_ms or 0)
    return None if created_at_ms is None else _dated(new, created_at_ms)


def _active(known: str) -> str:
    """The record of a stored consent, as `BEFORE` finds it. Raises `TriggerDeactivated`."""
    if not known:
        raise _deactivated()
    return known


def _dated(new: NewRow, created_at_ms: int) -> Made[Kept]:
    """The record of a new trigger, and its row."""
    record = new.record(created_at_ms)
    row = (
        new.sig, new.signer, new.digest, new.function_digest, new.protocol,
        new.end_date_ms, created_at_ms, record,
    )  # fmt: skip
    return Made(Kept(record, is_new=True), row)


async def insert(transaction: Transaction, new: NewRow) -> Kept:
    """As `insertion`, by itself."""
    (before,) = await transaction.fetch(BEFORE, (new.signer, new.digest))
    if (made := _made(new, before)) is None:
        made = _dated(new, await date_row(transaction, new.created_at_ms, before[0]))
    if not made.values or await transaction.execute(_INSERT, made.values):
        return made.result
    if (known := await find_consent(transaction, new.signer, new.digest)) is not None:
        return Kept(known, is_new=False)
    # The same 65 bytes may be a valid signature over another digest by another address, but they name one record.
    raise SignatureTaken(
        "this signature is registered already, for another signer and other typed data, and it can name one trigger "
        "only; change any signed member, for example the version's build part (1.0.0 to 1.0.0+1), and sign again",
        pointer="/sig",
    )


async def fetch_listed(transaction: Transaction, sigs: list[Signature]) -> list[Stored]:
    """The triggers with these signatures. Raises `TriggerNotFound`, which names the first unknown signature."""
    rows = await transaction.fetch(
        f"SELECT sig, signer, protocol, deactivated, record FROM triggers WHERE sig IN ({placeholders(len(sigs))}) "
        f"ORDER BY sig{transaction.for_update}",
        [sig.raw for sig in sigs],
    )
    found = {row[0]: Stored(row[0], row[1], row[2], bool(row[3]), row[4]) for row in rows}
    for index, sig in enumerate(sigs):
        if sig.raw not in found:
            detail = f"no trigger is registered under {sig}"
            raise TriggerNotFound(detail, faults=[Fault(detail, pointer=f"/triggerSigs/{index}")])
    return [found[sig.raw] for sig in sigs]


async def fetch_protocols(database: Reader, sigs: list[Signature]) -> dict[bytes, str]:
    """The protocol names under which these triggers were signed, by raw signature; unregistered ones are left out."""
    rows = await database.fetch(
        f"SELECT sig, protocol FROM triggers WHERE sig IN ({placeholders(len(sigs))})", [sig.raw for sig in sigs]
    )
    return {row[0]: row[1] for row in rows}


# Functions of an owner that a page can offer, and those that are looked at: many may have no live trigger any more.
FUNCTIONS_OF_MAX: Final = 100
_FUNCTIONS_LOOKED_AT: Final = 1_000


async def fetch_functions_of(database: Reader, signer: Address) -> list[bytes]:
    """The digests of the CIDs of functions for which an address has live triggers, at most `FUNCTIONS_OF_MAX`.

    Two looks into an index for each, however many triggers it has. With EXISTS in place of the last look PostgreSQL
    joins them with all triggers of the address.
    """
    first = "SELECT function_digest FROM triggers WHERE signer = ?"
    rows = await database.fetch(
        f"WITH RECURSIVE signed (found, place) AS (SELECT ({first} ORDER BY function_digest LIMIT 1), 1 UNION ALL "
        f"SELECT ({first} AND function_digest > found ORDER BY function_digest LIMIT 1), place + 1 "
        "FROM signed WHERE found IS NOT NULL AND place < ?) SELECT found FROM signed WHERE found IS NOT NULL "
        "AND (SELECT live FROM triggers WHERE signer = ? AND function_digest = found AND live = 1 LIMIT 1) = 1 LIMIT ?",
        (signer.raw, signer.raw, _FUNCTIONS_LOOKED_AT, signer.raw, FUNCTIONS_OF_MAX),
    )
    return [row[0] for row in rows]


async def deactivate(transaction: Transaction, sig: bytes, record: str, now_ms: int) -> None:
    """Mark a trigger as deactivated; `record` is its new record."""
    await transaction.execute(
        "UPDATE triggers SET deactivated = 1, live = 0, record = ?, deactivated_at_ms = ? "
        "WHERE sig = ? AND deactivated = 0",
        (record, now_ms, sig),
    )


class NewDeactivation(msgspec.Struct, frozen=True):
    """A consent to deactivate, to store; `protocol` is the name under which the first trigger was signed."""

    signature: Signature
    signer: bytes
    form: DeactivationForm
    protocol: str
    sigs: list[Signature]
    created_at_ms: int


async def keep_deactivation(transaction: Transaction, new: NewDeactivation) -> None:
    """Store the consent with the list that it covers, so that it can be verified again."""
    await transaction.execute(
        """INSERT INTO deactivations (signature, signer, protocol, trigger_sigs, created_at_ms, form)
           VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
        (
            new.signature.raw, new.signer, new.protocol, b"".join(sig.raw for sig in new.sigs), new.created_at_ms,
            new.form,
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredDeactivation:
    """A consent to deactivate as it is stored."""

    signer: bytes
    protocol: str
    sigs: list[bytes]
    created_at_ms: int
    form: DeactivationForm


async def find_deactivation(database: Reader, signature: Signature) -> StoredDeactivation | None:
    """The deactivation with this signature."""
    row = await database.fetch_one(
        "SELECT signer, protocol, trigger_sigs, created_at_ms, form FROM deactivations WHERE signature = ?",
        (signature.raw,),
    )
    return StoredDeactivation(row[0], row[1], split_sigs(row[2]), row[3], row[4]) if row else None


def split_sigs(listed: bytes) -> list[bytes]:
    """The signatures in `deactivations.trigger_sigs`, 65 bytes each."""
    return [listed[at : at + _SIGNATURE_BYTES] for at in range(0, len(listed), _SIGNATURE_BYTES)]


async def mark_ended(transaction: Transaction, now_ms: int) -> int:
    """Mark ended triggers as not live, and unmark triggers that have not ended; returns the larger count.

    The outer conditions repeat the inner ones, because a trigger may be deactivated while the statement waits for its
    row.
    """
    # In the order of the partial index: without it, a planner that expects many rows would walk the table.
    ended = f"SELECT seq FROM triggers WHERE {ENDED} ORDER BY end_date_ms LIMIT ?"
    marked = await transaction.execute(
        f"UPDATE triggers SET live = 0 WHERE seq IN ({ended})", (now_ms, SWEPT_PER_BATCH)
    )
    early = f"SELECT seq FROM triggers WHERE {EARLY} ORDER BY end_date_ms LIMIT ?"
    # SQLite 3.53 would walk all marked triggers by the outer conditions; a unary `+` keeps a term from using an index.
    unmarked = await transaction.execute(
        f"UPDATE triggers SET live = 1 WHERE +live = 0 AND +deactivated = 0 AND seq IN ({early})",
        (now_ms, SWEPT_PER_BATCH),
    )
    return max(marked, unmarked)


async def find_by_prefix(reader: Reader, digits: str, most: int) -> list[bytes]:
    """The signatures of triggers that begin with these hex digits, in their order, at most `most`."""
    begins = begins_with("sig", digits, _SIGNATURE_BYTES)
    sql = f"SELECT sig FROM triggers WHERE {begins.sql} ORDER BY sig LIMIT ?"
    return [found for (found,) in await reader.fetch(sql, (*begins.values, most))]


async def signers_by_prefix(reader: Reader, digits: str, most: int) -> list[bytes]:
    """The signers of triggers whose addresses begin with these hex digits, in their order, at most `most`.

    Each is one look into an index: a signer may have a million triggers.
    """
    _, (low, high) = begins_with("signer", digits, _ADDRESS_BYTES)
    found: list[bytes] = []
    while len(found) < most:
        after: LiteralString = "signer > ?" if found else "signer >= ?"
        sql = f"SELECT signer FROM triggers WHERE {after} AND signer <= ? ORDER BY signer LIMIT 1"
        rows = await reader.fetch(sql, (found[-1] if found else low, high))
        if not rows:
            break
        found.append(rows[0][0])
    return found
