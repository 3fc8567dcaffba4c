"""The moves of an intent, with the times that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple, cast

from msgspec import UNSET, Meta, UnsetType

from muniment.auth import operators
from muniment.context import Context
from muniment.errors import IntentNotFound
from muniment.evm.hex import Bytes32
from muniment.http.operation import operation
from muniment.http.request import Request
from muniment.intents.generations import GENERATIONS
from muniment.intents.lifecycle import AT_DEADLINE, INTENT, Moment, status_as_read
from muniment.intents.types import IntentStatus
from muniment.limits.costs import Cost, Shed
from muniment.wire import TIMESTAMP_MS_MAX, Record

if TYPE_CHECKING:
    from collections.abc import Sequence


_BY_HASH: Final = " UNION ALL ".join(
    f"SELECT created_at_ms, COALESCE(chain_status, status), deadline FROM {each.intents} WHERE hash = ?"  # noqa: S608 - text of ours
    for each in GENERATIONS
)
# The entries of the audit log about an intent are read in a thread.
_COST: Final = Cost(8)


class Lifetime(NamedTuple):
    """What the row of an intent says about its life: `recorded` is the status without the time, which may end it."""

    created_at_ms: int
    recorded: str
    # Unix seconds.
    deadline: int


class Move(Record, frozen=True):
    """A status that an intent has had, and when it got it."""

    status: IntentStatus
    at: (
        Annotated[int, Meta(ge=0, le=TIMESTAMP_MS_MAX, description="Milliseconds since 1970; absent if not known")]
        | UnsetType
    ) = UNSET

    example: ClassVar[dict[str, Any]] = {"status": "enqueued", "at": 1_795_204_080_123}


@operation("GET", "/intents/{hash}/moves", cost=_COST, sheds=Shed.READ, refuses=(IntentNotFound,))
async def list_moves(context: Context, request: Request, hash: Bytes32) -> list[Move]:  # noqa: A002 - the name is the path parameter's
    """Read when an intent got each of its statuses.

    In order; the last is its present status. A time is absent where none was written down: of a status that a whole
    intent was recorded with, and of one that the chain decided. Statuses that were passed over are absent too.
    """
    moment = Moment(context.now_ms(), context.settings.settlement_grace_s)
    reader = context.reader_for(request)
    row = await reader.fetch_one(_BY_HASH, (hash.raw,) * len(GENERATIONS))
    if row is None:
        raise IntentNotFound("no intent is recorded under this hash")
    created_at_ms, recorded, deadline = row
    intent = Lifetime(created_at_ms, recorded, int.from_bytes(deadline))
    return moves(intent, await operators.moves_of(reader, hash.raw, context.client(request)), moment)


def moves(intent: Lifetime, moved: Sequence[tuple[int, str]], moment: Moment) -> list[Move]:
    """The moves of an intent up to `moment`; `moved` has the times and statuses of its audit log, in order."""
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
