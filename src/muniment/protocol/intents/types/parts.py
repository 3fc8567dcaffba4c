"""The parts that both forms of an intent have: limits, statuses, fees, events and logs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.intents.types.samples import HASHED, LOG
from muniment.protocol.intents.types.texts import LogId, LogText
from muniment.protocol.wire import TIMESTAMP_MS_MAX, Amount, DateTime, Record

# The most that one intent holds; docs/use/relaying.md promises these numbers.
PROPOSALS_MAX: Final = 1_000
LOGS_MAX: Final = 10_000
# A listing shows this many of the newest proposals and of the newest logs.
NEWEST_SHOWN: Final = 50
# More than an intent on chain could pay the gas for.
LIST_MAX: Final = 256
# The moves between these are in `lifecycle`.
IntentStatus = Annotated[
    Literal["created", "enqueued", "discarded", "submitted", "succeeded", "failed", "expired"],
    Meta(description="The status of the intent", examples=["created"]),
]
ProposalStatus = Annotated[
    Literal["received", "accepted", "rejected", "submitted", "succeeded", "failed", "expired"],
    Meta(description="The status of the proposal", examples=["received"]),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"], Meta(description="Severity", examples=["info"])
]
Verified = Annotated[
    bool | None,
    Meta(
        description="Whether every signature is by `solver` or by one of the chain's `proposal_signers`, under the "
        "settlement domain of a configured chain; null: there is no signature, or no configured chain has this settler"
    ),
]
Signers = Annotated[
    list[Address],
    Meta(
        description="The addresses recovered from the signatures under the settlement domain of the chain where most "
        "of them count, each once; empty where `verified` is null",
        max_length=LIST_MAX,
    ),
]


class MaxFee(Record, frozen=True):
    """The most that may be taken in one token."""

    token: Address
    amount: Amount

    example: ClassVar[dict[str, Any]] = HASHED["maxFees"][0]


class IntentEvent(Record, frozen=True):
    """An event that the settlement contract emits when the intent is executed."""

    topic: Bytes32
    data: HexString

    example: ClassVar[dict[str, Any]] = HASHED["events"][0]


class NewLog(Record, frozen=True):
    """A log line to append."""

    level: LogLevel
    data: LogText
    created_at: DateTime | None = None
    id: LogId | None = None

    example: ClassVar[dict[str, Any]] = LOG


class StatusChange(Record, frozen=True):
    """A move: of the intent, or of the proposal that is named."""

    status: Annotated[str, Meta(description="An intent's status, or with `proposal` a proposal's", max_length=20)]
    proposal: Bytes32 | None = None
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None

    example: ClassVar[dict[str, Any]] = {"status": "enqueued"}


class Move(Record, frozen=True):
    """A status that an intent has had, and when it got it."""

    status: IntentStatus
    at: (
        Annotated[int, Meta(ge=0, le=TIMESTAMP_MS_MAX, description="Milliseconds since 1970; absent if not known")]
        | UnsetType
    ) = UNSET

    example: ClassVar[dict[str, Any]] = {"status": "enqueued", "at": 1_795_204_080_123}


class Log(Record, frozen=True):
    """A log line."""

    level: LogLevel
    data: LogText
    created_at: DateTime
    id: LogId | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = LOG
