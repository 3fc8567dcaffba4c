"""The shapes of intents: what both forms share, each form, and what either may be.

Intents of generation 1 have one operation; those of the second have a list of operations and one payer of fees.
Settlement contracts since 30 April 2026 take generation 2, those before generation 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.evm.words import SAFE_INTEGER_MAX
from muniment.protocol.intents.texts import ConfigSig, LogId, LogText, ShortText, TriggerSig
from muniment.protocol.wire import TIMESTAMP_MS_MAX, Amount, DateTime, Record

# The most that one intent holds; docs/use/relaying.md promises these numbers.
PROPOSALS_MAX: Final = 1_000
LOGS_MAX: Final = 10_000
OPERATIONS_MAX: Final = 32
# A listing shows this many of the newest proposals and of the newest logs.
NEWEST_SHOWN: Final = 50
# More than an intent on chain could pay the gas for.
LIST_MAX: Final = 256


class Generation(IntEnum):
    """A generation of intents, which has a form of its own, by its number on the wire."""

    FIRST = 1
    SECOND = 2


FIRST: Final = Generation.FIRST
SECOND: Final = Generation.SECOND

# Samples for the OpenAPI document.
_HASH: Final = "0x" + "ab" * 32
_ADDRESS: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_COMPUTED: Final[dict[str, Any]] = {"hash": _HASH, "createdAt": "2026-11-20T19:48:00.123Z", "executionHash": "0x"}
_EMPTY: Final[dict[str, Any]] = {"proposals": [], "logs": []}
_HASHED: Final[dict[str, Any]] = {
    "op": 1, "user": _ADDRESS, "settler": "0x609d831C0068844e11eF85a273c7F356212Fd6D1", "nonce": "0x" + "01" * 32,
    "deadline": "1795290480", "data": "0x", "maxFees": [{"token": _ADDRESS, "amount": "1000000"}],
    "events": [{"topic": "0x" + "02" * 32, "data": "0xdeadbeef"}], "configSig": "0x" + "1" * 128 + "1b",
    "minValidations": 1,
}  # fmt: skip
_OPERATION: Final[dict[str, Any]] = {"opType": 1, "user": _ADDRESS, "data": "0x", "events": _HASHED["events"]}
_HASHED_OPERATIONS: Final[dict[str, Any]] = {
    "feePayer": _ADDRESS, "settler": "0x8be430d29a2c5692f9345a28506b849C6a99eDaA", "nonce": _HASHED["nonce"],
    "deadline": _HASHED["deadline"], "maxFees": _HASHED["maxFees"], "triggerSig": _HASHED["configSig"],
    "minValidations": 1, "operations": [_OPERATION],
}  # fmt: skip
_PROPOSED: Final[dict[str, Any]] = {"solver": _ADDRESS, "data": "0x", "deadline": "1795290480", "fees": ["1000"]}
_PROPOSED_OPERATIONS: Final[dict[str, Any]] = {
    "solver": _ADDRESS, "datas": ["0x"], "deadline": "1795290480", "fees": ["1000"],
}  # fmt: skip
_OFFERED: Final[dict[str, Any]] = {
    "feeUsd": "0", "description": "", "signatures": [], "verified": None, "signers": [], "status": "received",
}  # fmt: skip
_LOG: Final[dict[str, Any]] = {
    "level": "info", "data": "solver answered in 120 ms", "createdAt": "2026-11-20T19:48:00.123Z",
}  # fmt: skip

# The moves between these are in `lifecycle`.
IntentStatus = Annotated[
    Literal["created", "enqueued", "discarded", "submitted", "succeeded", "failed", "expired"],
    Meta(
        description="The status of the intent. One that is `expired`, `discarded` or `failed` was not carried out: the "
        "pages and commands count these together, with a reason",
        examples=["created"],
    ),
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
Op = Annotated[int, Meta(ge=0, le=3, description="0 Swap, 1 Transfer, 2 EvmCall, 3 SvmCall", examples=[1])]
OpType = Annotated[
    int, Meta(ge=0, le=4, description="0 Swap, 1 Transfer, 2 Call, 3 CrossChainSwap, 4 DynamicCall", examples=[1])
]
Datas = Annotated[
    list[HexString], Meta(min_length=1, max_length=OPERATIONS_MAX, description="One for each operation of the intent")
]
_Deadline = Annotated[Amount, Meta(description="Unix seconds in decimal")]
_CreatedAt = Annotated[DateTime, Meta(description="When it arrived in this registry")]


class MaxFee(Record, frozen=True):
    """The most that may be taken in one token."""

    token: Address
    amount: Amount

    example: ClassVar[dict[str, Any]] = _HASHED["maxFees"][0]


class IntentEvent(Record, frozen=True):
    """An event that the settlement contract emits when the intent is executed."""

    topic: Bytes32
    data: HexString

    example: ClassVar[dict[str, Any]] = _HASHED["events"][0]


class NewLog(Record, frozen=True):
    """A log line to append."""

    level: LogLevel
    data: LogText
    created_at: DateTime | None = None
    id: LogId | None = None

    example: ClassVar[dict[str, Any]] = _LOG


class Log(Record, frozen=True):
    """A log line."""

    level: LogLevel
    data: LogText
    created_at: DateTime
    id: LogId | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = _LOG


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


class NewProposal(Record, frozen=True):
    """A solver's offer; its hash, which is computed here, is its identity."""

    solver: Address
    data: HexString
    deadline: _Deadline
    fees: Annotated[list[Amount], Meta(max_length=LIST_MAX)]
    fee_usd: Amount = field(default_factory=lambda: Amount("0"))
    status: ProposalStatus = "received"
    description: ShortText = field(default_factory=lambda: ShortText(""))
    signatures: Annotated[list[Signature], Meta(max_length=LIST_MAX)] = field(default_factory=list[Signature])
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None

    example: ClassVar[dict[str, Any]] = _PROPOSED


class NewOperationsProposal(Record, frozen=True):
    """A solver's offer for all operations; its hash, which is computed here, is its identity."""

    solver: Address
    datas: Datas
    deadline: _Deadline
    fees: Annotated[list[Amount], Meta(max_length=LIST_MAX)]
    fee_usd: Amount = field(default_factory=lambda: Amount("0"))
    status: ProposalStatus = "received"
    description: ShortText = field(default_factory=lambda: ShortText(""))
    signatures: Annotated[list[Signature], Meta(max_length=LIST_MAX)] = field(default_factory=list[Signature])
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None

    example: ClassVar[dict[str, Any]] = _PROPOSED_OPERATIONS


class Offer(Record, frozen=True):
    """The members of a proposal that never change, in the order of the answer."""

    hash: Bytes32
    solver: Address
    data: HexString
    deadline: Amount
    fees: list[Amount]
    fee_usd: Amount
    description: ShortText
    signatures: list[Signature]
    verified: Verified
    signers: Signers


class OperationsOffer(Record, frozen=True):
    """The members of a proposal to an intent of generation 2 that never change, in the order of the answer."""

    hash: Bytes32
    solver: Address
    datas: Datas
    deadline: Amount
    fees: list[Amount]
    fee_usd: Amount
    description: ShortText
    signatures: list[Signature]
    verified: Verified
    signers: Signers


class Proposal(Offer, frozen=True):
    """A solver's offer."""

    status: ProposalStatus
    transaction_hash: Bytes32 | UnsetType = UNSET
    dest_transaction_hash: Bytes32 | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = {"hash": _HASH, **_PROPOSED, **_OFFERED}


class OperationsProposal(OperationsOffer, frozen=True):
    """A solver's offer for all operations of an intent."""

    status: ProposalStatus
    transaction_hash: Bytes32 | UnsetType = UNSET
    dest_transaction_hash: Bytes32 | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = {"hash": _HASH, **_PROPOSED_OPERATIONS, **_OFFERED}


# Shapes of new proposals by generation of the intent.
_NEW_PROPOSALS: Final = (NewProposal, NewOperationsProposal)


class Hashed(Record, frozen=True):
    """The fields of an intent of generation 1 that its hash is made of."""

    op: Op
    user: Address
    settler: Address
    nonce: Bytes32
    deadline: _Deadline
    data: HexString
    max_fees: Annotated[list[MaxFee], Meta(max_length=LIST_MAX)]
    events: Annotated[list[IntentEvent], Meta(max_length=LIST_MAX)]
    config_sig: ConfigSig
    min_validations: Annotated[int, Meta(ge=0, le=SAFE_INTEGER_MAX)]

    example: ClassVar[dict[str, Any]] = _HASHED


class Operation(Record, frozen=True):
    """One operation of an intent."""

    op_type: OpType
    user: Address
    data: HexString
    events: Annotated[list[IntentEvent], Meta(max_length=LIST_MAX)]

    example: ClassVar[dict[str, Any]] = _OPERATION


class HashedOperations(Record, frozen=True):
    """The fields of an intent of generation 2 that its hash is made of."""

    fee_payer: Address
    settler: Address
    nonce: Bytes32
    deadline: _Deadline
    max_fees: Annotated[list[MaxFee], Meta(max_length=LIST_MAX)]
    trigger_sig: TriggerSig
    min_validations: Annotated[int, Meta(ge=0, le=SAFE_INTEGER_MAX)]
    operations: Annotated[list[Operation], Meta(min_length=1, max_length=OPERATIONS_MAX)]

    example: ClassVar[dict[str, Any]] = _HASHED_OPERATIONS


class NewIntent(Hashed, frozen=True):
    """An intent as an operator has it. Also as GET answers it: members that are computed here are ignored."""

    hash: Bytes32 | None = None
    execution_hash: HexString = field(default_factory=lambda: HexString("0x"))
    status: IntentStatus | None = None
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None
    proposals: Annotated[list[NewProposal], Meta(max_length=PROPOSALS_MAX)] = field(default_factory=list[NewProposal])
    logs: Annotated[list[NewLog], Meta(max_length=LOGS_MAX)] = field(default_factory=list[NewLog])

    example: ClassVar[dict[str, Any]] = _HASHED
    forms_inside: ClassVar[Mapping[str, tuple[type[Record], ...]]] = {"proposals": _NEW_PROPOSALS}


class NewOperationsIntent(HashedOperations, frozen=True):
    """An intent of generation 2 as an operator has it. Also as GET answers it: computed members are ignored."""

    hash: Bytes32 | None = None
    execution_hash: HexString = field(default_factory=lambda: HexString("0x"))
    status: IntentStatus | None = None
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None
    proposals: Annotated[list[NewOperationsProposal], Meta(max_length=PROPOSALS_MAX)] = field(
        default_factory=list[NewOperationsProposal]
    )
    logs: Annotated[list[NewLog], Meta(max_length=LOGS_MAX)] = field(default_factory=list[NewLog])

    example: ClassVar[dict[str, Any]] = _HASHED_OPERATIONS
    forms_inside: ClassVar[Mapping[str, tuple[type[Record], ...]]] = {"proposals": _NEW_PROPOSALS}


class RecordedIntent(Hashed, frozen=True):
    """The members of an intent that never change, in the order of the answer."""

    hash: Bytes32
    created_at: _CreatedAt


class RecordedOperationsIntent(HashedOperations, frozen=True):
    """The members of an intent of generation 2 that never change, in the order of the answer."""

    hash: Bytes32
    created_at: _CreatedAt


class Intent(RecordedIntent, frozen=True, kw_only=True):
    """An intent with its proposals and logs; in a listing with the newest 50 of each."""

    execution_hash: HexString
    status: IntentStatus
    transaction_hash: Bytes32 | UnsetType = UNSET
    dest_transaction_hash: Bytes32 | UnsetType = UNSET
    generation: Annotated[Literal[1], Meta(description="1: an intent with one operation")]
    proposals: Annotated[list[Proposal], Meta(max_length=PROPOSALS_MAX)]
    logs: list[Log]

    example: ClassVar[dict[str, Any]] = {**_HASHED, **_COMPUTED, "status": "created", "generation": 1, **_EMPTY}


class OperationsIntent(RecordedOperationsIntent, frozen=True, kw_only=True):
    """An intent of generation 2 with its proposals and logs; in a listing with the newest 50 of each."""

    execution_hash: HexString
    status: IntentStatus
    transaction_hash: Bytes32 | UnsetType = UNSET
    dest_transaction_hash: Bytes32 | UnsetType = UNSET
    generation: Annotated[Literal[2], Meta(description="2: an intent with a list of operations")]
    proposals: Annotated[list[OperationsProposal], Meta(max_length=PROPOSALS_MAX)]
    logs: list[Log]

    example: ClassVar[dict[str, Any]] = {
        **_HASHED_OPERATIONS, **_COMPUTED, "status": "created", "generation": 2, **_EMPTY,
    }  # fmt: skip


# Shapes that exist in both forms: either one or the other.
AnyHashed: TypeAlias = Hashed | HashedOperations
AnyNewIntent: TypeAlias = NewIntent | NewOperationsIntent
AnyNewProposal: TypeAlias = NewProposal | NewOperationsProposal
AnyIntent: TypeAlias = Intent | OperationsIntent
AnyProposal: TypeAlias = Proposal | OperationsProposal
AnyRecorded: TypeAlias = RecordedIntent | RecordedOperationsIntent
# All that a proposal's hash is made of, new or recorded.
AnyOffer: TypeAlias = AnyNewProposal | Offer | OperationsOffer
