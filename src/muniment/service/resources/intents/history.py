"""The past of intents: the times of the moves of one, and the counts of the last day by hour and status."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from msgspec import UNSET

from muniment.protocol.errors import DeadlineExceeded, IntentNotFound
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.intents.lifecycle import AT_DEADLINE, INTENT_MOVES, Moment, status_as_read
from muniment.protocol.intents.types import IntentStatus, Move
from muniment.protocol.runs.outcomes import why_undone
from muniment.service.context import Context
from muniment.service.http.operation import operation
from muniment.service.http.request import Request
from muniment.service.resources import operators
from muniment.service.resources.intents.counting import OUTCOME
from muniment.service.resources.intents.store import expiry
from muniment.service.running.limits.costs import Cost, Shed
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muniment.service.storage.database import Database

_BY_HASH: Final = (
    "SELECT created_at_ms, COALESCE(chain_status, status), deadline, chain_status, decided_at_ms "
    "FROM intents WHERE hash = ?"
)
# The entries of the audit log about an intent are read in a thread.
_COST: Final = Cost(8)


@operation("GET", "/intents/{hash}/moves", cost=_COST, sheds=Shed.READ, refuses=(IntentNotFound, DeadlineExceeded))
async def list_moves(context: Context, request: Request, hash: Bytes32) -> list[Move]:
    """Read when an intent got each of its statuses.

    Each status comes once, in order; the last is the present one. The time of `created` is the arrival, that of
    `expired` the deadline (after `submitted` with the grace), others are the times of the reports to the registry. A
    status that arrived with a whole intent, by PUT or from a file, has no time, and is omitted once another status
    follows. Skipped statuses are omitted too.
    """
    moment = Moment(context.clock.now_ms(), context.settings.settlement_grace_s)
    database, client = context.database, context.clients.address(request)
    row = await database.fetch_one(_BY_HASH, (hash.raw,))
    if row is None:
        raise IntentNotFound("no intent is recorded under this hash")
    created_at_ms, recorded, deadline, outcome, decided_at_ms = row
    moved = await operators.moves_of(database, hash.raw, client)
    if decided_at_ms is not None:
        moved.append((decided_at_ms, outcome))
    return _moves(created_at_ms, recorded, int.from_bytes(deadline), moved, moment)


def _moves(
    created_at_ms: int, recorded: str, deadline_s: int, moved: Iterable[tuple[int, str]], moment: Moment
) -> list[Move]:
    """The moves up to `moment` of an intent that was `recorded` with a status, before expiry.

    `moved` has times and statuses in order, the first time of each counts.
    """
    times: dict[str, int | None] = {"created": created_at_ms}
    for at_ms, status in moved:
        if status in INTENT_MOVES:
            times.setdefault(status, at_ms)
    times.setdefault(recorded, None)
    last = status_as_read(recorded, deadline_s, moment)
    if last == "expired":
        grace_s = 0 if recorded in AT_DEADLINE else moment.grace_s
        times[last] = (deadline_s + grace_s) * 1_000
    times[last] = times.pop(last)
    return [
        Move(status=cast("IntentStatus", status), at=UNSET if at_ms is None else at_ms)
        for status, at_ms in times.items()
    ]


HOUR_MS: Final = 3_600_000
HOURS: Final = 24


class Hour(NamedTuple):
    """The intents that arrived in one hour (UTC): its beginning in milliseconds since 1970, and counts by status.

    `reasons` counts those that were not carried out, by status and reason.
    """

    begin_ms: int
    counts: Counter[str]
    reasons: Counter[tuple[str, str]]


async def count_by_hour(database: Database, moment: Moment) -> list[Hour]:
    """The last 24 hours, oldest first, the last being the present one. Raises `DeadlineExceeded`.

    The statuses are those that clients see at `moment`.
    """
    begins = range((moment.now_ms // HOUR_MS - HOURS + 1) * HOUR_MS, moment.now_ms + 1, HOUR_MS)
    found = {begin_ms: Hour(begin_ms, Counter(), Counter()) for begin_ms in begins}
    rows = await database.fetch_slow(
        f"SELECT created_at_ms / {number_text(HOUR_MS)} AS hour, {OUTCOME}, count(*) "
        "FROM intents WHERE created_at_ms >= ? GROUP BY 1, 2, 3, 4",
        (*expiry(moment), min(found)),
    )
    for hour, status, has_offers, is_sent, count in rows:
        if (known := found.get(hour * HOUR_MS)) is not None:  # a row may be dated ahead of this process
            known.counts[status] += count
            if why := why_undone(status, has_offers=bool(has_offers), is_sent=bool(is_sent)):
                known.reasons[status, why] += count
    return [*found.values()]
