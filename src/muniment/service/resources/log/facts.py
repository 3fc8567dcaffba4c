"""Facts that are not in the log yet: read from their tables, and their entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import HexString
from muniment.protocol.log.entries import DeactivationFact, FunctionFact, TriggerFact, description_hash
from muniment.protocol.log.fields import time_ms_of
from muniment.protocol.triggers.typed_data import registry_domain
from muniment.protocol.wire import iso_time
from muniment.service.resources.functions import store as functions
from muniment.service.resources.log.store import DEACTIVATION, FUNCTION, TRIGGER
from muniment.service.resources.triggers import store as triggers
from muniment.service.resources.triggers.store import split_sigs
from muniment.service.storage.ordered import OrderedRows

if TYPE_CHECKING:
    from muniment.service.storage.database import Reader


# Rows of a read: a record usually has a kilobyte, and at most the size of the largest request body.
_ROWS_PER_READ: Final = 64


class Waiting(NamedTuple):
    """A fact that is not in the log: its kind, its number in its table, its time, and the bytes of its entry.

    `since_ms` is when it was stored. A wallet that joins a function much later than its first creator does has the time
    of the function in its entry.
    """

    kind: int
    seq: int
    created_at_ms: int
    data: bytes
    since_ms: int


class _FunctionRecord(msgspec.Struct):
    """The members of a function's record that its entry has."""

    cid: str = msgspec.field(name="CID")
    creator: str
    created_at: str = msgspec.field(name="createdAt")


class _TriggerRecord(msgspec.Struct, rename="camel"):
    """The members of a trigger's record that its entry has."""

    function_cid: str
    description: str
    created_at: str


_FUNCTION_RECORD: Final = msgspec.json.Decoder(_FunctionRecord)
_TRIGGER_RECORD: Final = msgspec.json.Decoder(_TriggerRecord)


async def read_waiting(
    database: Reader, after: Mapping[int, int], before: Mapping[int, int], until_ms: int, room: int
) -> list[Waiting]:
    """At most `room` facts: functions, then triggers, then deactivations, each in the order of commits.

    Of each kind those with numbers between `after` and `before`, neither included, and up to the first one whose time
    is later than `until_ms`. Raises `ValueError` for a fact that an entry cannot express.
    """
    found = list[Waiting]()
    for kind, source in SOURCES.items():
        at = after[kind]
        while len(found) < room:
            limit = min(_ROWS_PER_READ, room - len(found))
            rows = await source.rows.read(database, at, before[kind], limit)
            due = takewhile(lambda fact: fact.created_at_ms <= until_ms, map(source.entry, rows))
            found += (kept := list(due))
            if len(kept) < limit:
                break
            at = kept[-1].seq
    return found


def function_entry(row: functions.Joined) -> Waiting:
    """The entry of a creator who joined a function. Raises `ValueError` for a record that an entry cannot express."""
    record = _FUNCTION_RECORD.decode(row.record)
    fact = FunctionFact(record.cid, Address.from_raw(row.creator), record.creator, record.created_at)
    created_at_ms = time_ms_of(record.created_at, "createdAt")
    return Waiting(FUNCTION, row.seq, created_at_ms, fact.data, row.joined_at_ms)


def trigger_entry(row: triggers.Registered) -> Waiting:
    """The entry of a trigger. Raises `ValueError`."""
    record = _TRIGGER_RECORD.decode(row.record)
    fact = TriggerFact(
        HexString.from_raw(row.sig), Address.from_raw(row.signer), HexString.from_raw(row.digest), record.function_cid,
        record.created_at, description_hash(record.description), registry_domain(row.protocol).name,
    )  # fmt: skip
    created_at_ms = time_ms_of(record.created_at, "createdAt")
    return Waiting(TRIGGER, row.seq, created_at_ms, fact.data, created_at_ms)


def deactivation_entry(row: triggers.Ended) -> Waiting:
    """The entry of a deactivation. Raises `ValueError`."""
    fact = DeactivationFact(
        HexString.from_raw(row.signature), Address.from_raw(row.signer), iso_time(row.created_at_ms),
        registry_domain(row.protocol).name, tuple(map(HexString.from_raw, split_sigs(row.trigger_sigs))),
    )  # fmt: skip
    return Waiting(DEACTIVATION, row.seq, row.created_at_ms, fact.data, row.created_at_ms)


class Source(NamedTuple):
    """The rows that become facts of a kind, the entry of each, and the name of the kind."""

    name: str
    rows: OrderedRows[Any]
    entry: Callable[[Any], Waiting]


SOURCES: Final[Mapping[int, Source]] = {
    FUNCTION: Source("functions", functions.JOINED, function_entry),
    TRIGGER: Source("triggers", triggers.REGISTERED, trigger_entry),
    DEACTIVATION: Source("deactivations", triggers.DEACTIVATED, deactivation_entry),
}
