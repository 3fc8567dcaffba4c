"""The first form of an intent: it has one operation. Settlement contracts before 30 April 2026 take it."""

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
from muniment.protocol.intents.types.proposals import NEW_PROPOSALS, NewProposal, Proposal
from muniment.protocol.intents.types.samples import HASHED, INTENT
from muniment.protocol.intents.types.texts import ConfigSig
from muniment.protocol.wire import Amount, DateTime, Record

Op = Annotated[int, Meta(ge=0, le=3, description="0 Swap, 1 Transfer, 2 EvmCall, 3 SvmCall", examples=[1])]


class Hashed(Record, frozen=True):
    """The fields of an intent of the first form that its hash is made of."""

    op: Op
    user: Address
    settler: Address
    nonce: Bytes32
    deadline: Annotated[Amount, Meta(description="Unix seconds in decimal")]
    data: HexString
    max_fees: Annotated[list[MaxFee], Meta(max_length=LIST_MAX)]
    events: Annotated[list[IntentEvent], Meta(max_length=LIST_MAX)]
    config_sig: ConfigSig
    min_validations: Annotated[int, Meta(ge=0, le=SAFE_INTEGER_MAX)]

    example: ClassVar[dict[str, Any]] = HASHED


class NewIntent(Hashed, frozen=True):
    """An intent as an operator has it. Also as GET answers it: members that are computed here are ignored."""

    hash: Bytes32 | None = None
    execution_hash: HexString = field(default_factory=lambda: HexString("0x"))
    status: IntentStatus | None = None
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None
    proposals: Annotated[list[NewProposal], Meta(max_length=PROPOSALS_MAX)] = field(default_factory=list[NewProposal])
    logs: Annotated[list[NewLog], Meta(max_length=LOGS_MAX)] = field(default_factory=list[NewLog])

    example: ClassVar[dict[str, Any]] = HASHED
    forms_inside: ClassVar[Mapping[str, tuple[type[Record], ...]]] = {"proposals": NEW_PROPOSALS}


class Intent(Hashed, frozen=True, kw_only=True):
    """An intent with its proposals and logs; in a listing with the newest 50 of each."""

    hash: Bytes32
    execution_hash: HexString
    created_at: Annotated[DateTime, Meta(description="When it arrived in this registry")]
    status: IntentStatus
    transaction_hash: Bytes32 | UnsetType = UNSET
    dest_transaction_hash: Bytes32 | UnsetType = UNSET
    generation: Annotated[Literal[1], Meta(description="The form: this one has one operation")]
    proposals: Annotated[list[Proposal], Meta(max_length=PROPOSALS_MAX)]
    logs: list[Log]

    example: ClassVar[dict[str, Any]] = INTENT
