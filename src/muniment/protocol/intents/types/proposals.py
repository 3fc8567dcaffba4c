"""Proposals to intents of either form."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from msgspec import UNSET, Meta, UnsetType, field

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.intents.types.parts import LIST_MAX, ProposalStatus, Signers, Verified
from muniment.protocol.intents.types.samples import OPERATIONS_PROPOSAL, PROPOSAL, PROPOSED, PROPOSED_OPERATIONS
from muniment.protocol.intents.types.texts import ShortText
from muniment.protocol.wire import Amount, Record

OPERATIONS_MAX: Final = 32
Datas = Annotated[
    list[HexString], Meta(min_length=1, max_length=OPERATIONS_MAX, description="One for each operation of the intent")
]


class NewProposal(Record, frozen=True):
    """A solver's offer; its hash, which is computed here, is its identity."""

    solver: Address
    data: HexString
    deadline: Annotated[Amount, Meta(description="Unix seconds in decimal")]
    fees: Annotated[list[Amount], Meta(max_length=LIST_MAX)]
    fee_usd: Amount = field(default_factory=lambda: Amount("0"))
    status: ProposalStatus = "received"
    description: ShortText = field(default_factory=lambda: ShortText(""))
    signatures: Annotated[list[Signature], Meta(max_length=LIST_MAX)] = field(default_factory=list[Signature])
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None

    example: ClassVar[dict[str, Any]] = PROPOSED


class NewOperationsProposal(Record, frozen=True):
    """A solver's offer for all operations; its hash, which is computed here, is its identity."""

    solver: Address
    datas: Datas
    deadline: Annotated[Amount, Meta(description="Unix seconds in decimal")]
    fees: Annotated[list[Amount], Meta(max_length=LIST_MAX)]
    fee_usd: Amount = field(default_factory=lambda: Amount("0"))
    status: ProposalStatus = "received"
    description: ShortText = field(default_factory=lambda: ShortText(""))
    signatures: Annotated[list[Signature], Meta(max_length=LIST_MAX)] = field(default_factory=list[Signature])
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None

    example: ClassVar[dict[str, Any]] = PROPOSED_OPERATIONS


# Shapes of new proposals by generation of the intent.
NEW_PROPOSALS: Final = (NewProposal, NewOperationsProposal)


class Proposal(Record, frozen=True):
    """A solver's offer."""

    hash: Bytes32
    solver: Address
    data: HexString
    deadline: Amount
    fees: list[Amount]
    fee_usd: Amount
    status: ProposalStatus
    description: ShortText
    signatures: list[Signature]
    verified: Verified
    signers: Signers | UnsetType = UNSET
    transaction_hash: Bytes32 | UnsetType = UNSET
    dest_transaction_hash: Bytes32 | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = PROPOSAL


class OperationsProposal(Record, frozen=True):
    """A solver's offer for all operations of an intent."""

    hash: Bytes32
    solver: Address
    datas: Datas
    deadline: Amount
    fees: list[Amount]
    fee_usd: Amount
    status: ProposalStatus
    description: ShortText
    signatures: list[Signature]
    verified: Verified
    signers: Signers | UnsetType = UNSET
    transaction_hash: Bytes32 | UnsetType = UNSET
    dest_transaction_hash: Bytes32 | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = OPERATIONS_PROPOSAL
