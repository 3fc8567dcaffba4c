"""The moves of an intent, with the times that are known."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgspec
from msgspec import UNSET

from muniment.protocol.errors import DeadlineExceeded, IntentNotFound
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.intents.lifecycle import AT_DEADLINE, INTENT, Moment, Outcome, status_as_read
from muniment.protocol.intents.types import IntentStatus, Move
from muniment.service.auth import operators
from muniment.service.context import Context
from muniment.service.http.operation import operation
from muniment.service.http.request import Request
from muniment.service.resources.intents.logs import OF_CHAIN
from muniment.service.running.limits.costs import Cost, Shed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.storage.database import Reader

_BY_HASH: Final = (
    "SELECT created_at_ms, COALESCE(chain_status, status), deadline, chain_status, chain_transaction_hash, seq "
    "FROM intents WHERE hash = ?"
)
# The entries of the audit log about an intent, and its log lines, are read in a thread.
_COST: Final = Cost(8)


class Lifetime(NamedTuple):
    """Columns of an intent's row about its life; `recorded` is the status before expiry."""

    created_at_ms: int
    recorded: str
    # Unix seconds.
    deadline: int


@operation("GET", "/intents/{hash}/moves", cost=_COST, sheds=Shed.READ, refuses=(IntentNotFound, DeadlineExceeded))
async def list_moves(context: Context, request: Request, hash: Bytes32) -> list[Move]:
    """Read when an intent got each of its statuses.

    Each status comes once, in order; the last is the present one. The time of `created` is the arrival, that of
    `expired` the deadline (after `submitted` with the grace), others are the times of the reports to the registry. A
    status that arrived with a whole intent, by PUT or from a file, has no time, and is omitted once another status
    follows. Skipped statuses are omitted too.
    """
    moment = Moment(context.now_ms(), context.settings.settlement_grace_s)
    reader, client = context.reader_for(request), context.client(request)
    row = await reader.fetch_one(_BY_HASH, (hash.raw,))
    if row is None:
        raise IntentNotFound("no intent is recorded under this hash")
    created_at_ms, recorded, deadline, outcome, transaction, seq = row
    moved = await operators.moves_of(reader, hash.raw, client)
    if outcome is not None and transaction is not None:
        moved += await _decided(reader, seq, outcome, transaction, client)
    return moves(Lifetime(created_at_ms, recorded, int.from_bytes(deadline)), moved, moment)


async def _decided(
    reader: Reader, seq: int, outcome: Outcome, transaction: bytes, client: str
) -> list[tuple[int, str]]:
    """The time of the newest log line about the chain's outcome; empty if operators reported the outcome first."""
    rows = await reader.fetch_slow(
        "SELECT record FROM intent_logs WHERE intent_seq = ? AND record LIKE ? ORDER BY n DESC LIMIT 1",
        (seq, f"%: {OF_CHAIN[outcome]} 0x{transaction.hex()}%"),
        client=client,
    )
    times = [datetime.fromisoformat(msgspec.json.decode(record)["createdAt"]) for (record,) in rows]
    return [(round(each.timestamp() * 1_000), outcome) for each in times]


def moves(intent: Lifetime, moved: Sequence[tuple[int, str]], moment: Moment) -> list[Move]:
    """The moves of an intent up to `moment`; `moved` has times and statuses in order, the first time of each counts."""
    times: dict[str, int | None] = {"created": intent.created_at_ms}
    for at_ms, status in moved:
        if status in INTENT:
            times.setdefault(status, at_ms)
    times.setdefault(intent.recorded, None)
    last = status_as_read(intent.recorded, intent.deadline, moment)
    if last == "expired":
        grace_s = 0 if intent.recorded in AT_DEADLINE else moment.grace_s
        times[last] = (intent.deadline + grace_s) * 1_000
    times[last] = times.pop(last)
    return [
        Move(status=cast("IntentStatus", status), at=UNSET if at_ms is None else at_ms)
        for status, at_ms in times.items()
    ]
