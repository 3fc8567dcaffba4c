"""The second form of an intent: several operations, and one payer of fees. Settlers since 30 April 2026 take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType, field

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.words import SAFE_INTEGER_MAX
from muniment.protocol.intents.types.parts import (
    LIST_MAX,
    LOGS_MAX,
    PROPOSALS_MAX,
    IntentEvent,
    IntentStatus,
    Log,
    MaxFee,
    NewLog,
)
from muniment.protocol.intents.types.proposals import (
    NEW_PROPOSALS,
    OPERATIONS_MAX,
    NewOperationsProposal,
    OperationsProposal,
)
from muniment.protocol.intents.types.samples import (
    HASHED_OPERATIONS,
    OPERATION,
    OPERATIONS_INTENT,
)
from muniment.protocol.intents.types.texts import TriggerSig
from muniment.protocol.wire import Amount, DateTime, Record

OpType = Annotated[
    int,
    Meta(
        ge=0, le=4, description="0 Swap, 1 Transfer, 2 Call, 3 CrossChainSwap, 4 DynamicCall", examples=[1],
    ),
]  # fmt: skip


class Operation(Record, frozen=True):
    """One operation of an intent."""

    op_type: OpType
    user: Address
    data: HexString
    events: Annotated[list[IntentEvent], Meta(max_length=LIST_MAX)]

    example: ClassVar[dict[str, Any]] = OPERATION


class HashedOperations(Record, frozen=True):
    """The fields of an intent of the second form that its hash is made of."""

    fee_payer: Address
    settler: Address
    nonce: Bytes32
    deadline: Annotated[Amount, Meta(description="Unix seconds in decimal")]
    max_fees: Annotated[list[MaxFee], Meta(max_length=LIST_MAX)]
    trigger_sig: TriggerSig
    min_validations: Annotated[int, Meta(ge=0, le=SAFE_INTEGER_MAX)]
    operations: Annotated[list[Operation], Meta(min_length=1, max_length=OPERATIONS_MAX)]

    example: ClassVar[dict[str, Any]] = HASHED_OPERATIONS


class NewOperationsIntent(HashedOperations, frozen=True):
    """An intent of the second form as an operator has it. Also as GET answers it: computed members are ignored."""

    hash: Bytes32 | None = None
    execution_hash: HexString = field(default_factory=lambda: HexString("0x"))
    status: IntentStatus | None = None
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None
    proposals: Annotated[list[NewOperationsProposal], Meta(max_length=PROPOSALS_MAX)] = field(
        default_factory=list[NewOperationsProposal]
    )
    logs: Annotated[list[NewLog], Meta(max_length=LOGS_MAX)] = field(default_factory=list[NewLog])

    example: ClassVar[dict[str, Any]] = HASHED_OPERATIONS
    forms_inside: ClassVar[Mapping[str, tuple[type[Record], ...]]] = {"proposals": NEW_PROPOSALS}


class OperationsIntent(HashedOperations, frozen=True, kw_only=True):
    """An intent of the second form with its proposals and logs; in a listing with the newest 50 of each."""

    hash: Bytes32
    execution_hash: HexString
    created_at: Annotated[DateTime, Meta(description="When it arrived in this registry")]
    status: IntentStatus
    transaction_hash: Bytes32 | UnsetType = UNSET
    dest_transaction_hash: Bytes32 | UnsetType = UNSET
    generation: Annotated[Literal[2], Meta(description="The form: this one has a list of operations")]
    proposals: Annotated[list[OperationsProposal], Meta(max_length=PROPOSALS_MAX)]
    logs: list[Log]

    example: ClassVar[dict[str, Any]] = OPERATIONS_INTENT
