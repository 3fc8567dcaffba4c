"""What a journal keeps of triggers and runs, and what names a run and an event in it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.relayer.schedule.due import Due, Seen

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.payloads import EventPayload
    from muniment.protocol.runs.types import TriggerType

# In place of the result of a published run whose event left the chain.
ORPHANED: Final = "orphaned"
# The longest rest of a trigger. A later end of one is that of a clock which went back.
REST_MS_MAX: Final = 3_600_000
# A note says once an hour that the runs of a trigger are skipped.
TOLD_MS: Final = 3_600_000


class State(IntEnum):
    """How far a run got."""

    PLANNED = 0
    RAN = 1
    PUBLISHED = 2


class Ownership(NamedTuple):
    """A trigger with its signer and the digest of its function, who take turns."""

    sig: Signature
    signer: Address
    function: bytes


class Known(NamedTuple):
    """What the journal has of a trigger. `failures` are those in sequence; `ended_ms` is set once its end was seen.

    `told_ms` is when it was last noted that its runs are skipped; 0: never.
    """

    seen: Seen
    failures: int
    rests_until_ms: int
    ended_ms: int | None
    told_ms: int = 0


class LoggedEnd(NamedTuple):
    """A trigger that a deactivation in the transparency log names, by the signer of the deactivation."""

    sig: Signature
    signer: Address
    deactivation: Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A run in the journal. `body` has the bytes to publish while the run is `RAN`; `event` names its event.

    `tries` were made that had no result, the last with this `answer`; it is not tried again before `next_ms`.
    """

    sig: Signature
    kind: TriggerType
    payload: bytes
    timestamp_ms: int
    until_ms: int
    state: State
    tries: int
    next_ms: int
    answer: str
    result: str
    body: bytes
    hash: bytes
    written_ms: int
    event: bytes

    @property
    def due(self) -> Due:
        """What the run is, or was, due for."""
        return Due(self.sig, self.kind, self.payload, self.timestamp_ms, self.until_ms)


def event_key(log: EventPayload, transaction: bytes, ordinal: int) -> bytes:
    """What names an event in any block, 32 bytes: `ordinal` is its place among the equal logs of its transaction.

    The transaction may have other logs before it in another block, so neither its index nor its place in the receipt
    names it.
    """
    topics = b"".join(each.raw for each in log.topics)
    head = log.chain_id.to_bytes(8) + transaction + ordinal.to_bytes(4) + log.contract.raw + bytes([len(log.topics)])
    return sha256(head + topics + log.data.raw).digest()
