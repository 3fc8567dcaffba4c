"""Rows of `intent_logs`: log lines are added once each, in the order of arrival.

The caller has locked the row of the intent, so the count of its log lines is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import IntentFull
from muniment.protocol.intents.lifecycle import Outcome
from muniment.protocol.intents.rules import CheckedLog, timeless
from muniment.protocol.intents.types import LOGS_MAX
from muniment.protocol.wire import encode, iso_time
from muniment.service.resources.intents.store import in_parts, insert_rows
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.service.storage.database import Transaction

# How the line about a fact of a chain names it, before the hash of the transaction.
OF_CHAIN: Final[Mapping[Outcome, str]] = MappingProxyType(
    {"succeeded": "executed in transaction", "failed": "failed with transaction"}
)


async def append(tx: Transaction, intent_seq: int, n: int, log: CheckedLog) -> bool:
    """Add one line under the number `n`; False when the intent has a line of this identity."""
    added = await tx.execute(
        """INSERT INTO intent_logs (intent_seq, n, identity, record) VALUES (?, ?, ?, ?)
            ON CONFLICT (intent_seq, identity) DO NOTHING""",
        (intent_seq, n, log.identity, shown(log)),
    )
    return added == 1


async def insert(tx: Transaction, intent_seq: int, count: int, logs: Sequence[CheckedLog]) -> None:
    """Add lines to an intent that has `count`."""
    rows = [(intent_seq, n, each.identity, shown(each)) for n, each in enumerate(logs, count + 1)]
    await insert_rows(tx, "intent_logs (intent_seq, n, identity, record)", rows)


async def merge(tx: Transaction, intent_seq: int, count: int, logs: Sequence[CheckedLog]) -> int:
    """Add new lines to an intent that has `count`; the count after that. Raises `IntentFull`.

    A line that was sent without a time got one, and may come back with it.
    """
    known: dict[bytes, str] = {}
    for part in in_parts(logs):
        identities = {identity for each in part for identity in (each.identity, timeless(each))}
        rows = await tx.fetch(
            f"""SELECT identity, record FROM intent_logs
                WHERE intent_seq = ? AND identity IN ({placeholders(len(identities))})""",
            (intent_seq, *identities),
        )
        known.update(dict(rows))
    new = [each for each in logs if each.identity not in known and known.get(timeless(each)) != shown(each)]
    if new and count + len(new) > LOGS_MAX:
        raise full()
    await insert(tx, intent_seq, count, new)
    return count + len(new)


async def recorded(tx: Transaction, intent_seq: int, identity: bytes) -> str:
    """A line that is recorded, as JSON."""
    sql = "SELECT record FROM intent_logs WHERE intent_seq = ? AND identity = ?"
    ((record,),) = await tx.fetch(sql, (intent_seq, identity))
    return record


def full() -> IntentFull:
    """The refusal of a line beyond the last."""
    return IntentFull(f"an intent has at most {LOGS_MAX} logs")


def shown(log: CheckedLog) -> str:
    """A line as it is answered, as JSON."""
    return encode(
        {"level": log.level, "data": log.data, "createdAt": iso_time(log.created_at_ms)}
        | ({} if log.id is None else {"id": log.id})
    ).decode()
