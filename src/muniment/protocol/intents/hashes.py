"""The hashes of the settlement contract for both forms of an intent, and the signers of proposals. Pure.

The hashes differ from EIP-712 in three ways: the trigger's signature enters an intent's hash as dynamic bytes,
unhashed; an intent's hash has no domain; and the type of `Operation` is hashed without the type of its events. Type
strings: packages/evm/contracts of mimic-protocol/contracts, before and since 30 April 2026.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.signature import recover
from muniment.protocol.intents.types import (
    AnyHashed,
    AnyOffer,
    Hashed,
    HashedOperations,
    IntentEvent,
    MaxFee,
    NewProposal,
    Offer,
)

_FEE: Final = b"MaxFee(address token,uint256 amount)"
_EVENT: Final = b"IntentEvent(bytes32 topic,bytes data)"
_OPERATION: Final = b"Operation(uint8 opType,address user,bytes data,OperationEvent[] events)"
_OPERATION_EVENT: Final = b"OperationEvent(bytes32 topic,bytes data)"
_INTENT_TYPE: Final = keccak256(
    b"Intent(uint8 op,address user,address settler,bytes32 nonce,uint256 deadline,bytes data,MaxFee[] maxFees,"
    b"IntentEvent[] events,bytes configSig,uint256 minValidations)" + _EVENT + _FEE
)
_OPERATIONS_INTENT_TYPE: Final = keccak256(
    b"Intent(address feePayer,address settler,bytes32 nonce,uint256 deadline,MaxFee[] maxFees,bytes triggerSig,"
    b"uint256 minValidations,Operation[] operations)" + _FEE + _OPERATION + _OPERATION_EVENT
)
_FEE_TYPE: Final = keccak256(_FEE)
_EVENT_TYPE: Final = keccak256(_EVENT)
# EIP-712 would append `_OPERATION_EVENT`; the contract does not.
_OPERATION_TYPE: Final = keccak256(_OPERATION)
_OPERATION_EVENT_TYPE: Final = keccak256(_OPERATION_EVENT)
_PROPOSAL_TYPE: Final = keccak256(b"Proposal(bytes32 intent,address solver,uint256 deadline,bytes data,uint256[] fees)")
_OPERATIONS_PROPOSAL_TYPE: Final = keccak256(
    b"Proposal(bytes32 intent,address solver,uint256 deadline,bytes[] datas,uint256[] fees)"
)
_DOMAIN_TYPE: Final = keccak256(b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")
_VERSION: Final = keccak256(b"1")


def intent_hash(fields: AnyHashed) -> bytes:
    """The answer of the settlement contract's `getIntentHash` for `fields`, 32 bytes."""
    return keccak256(_encoded_operations(fields) if isinstance(fields, HashedOperations) else _encoded(fields))


def _encoded(fields: Hashed) -> bytes:
    words = (
        _INTENT_TYPE,
        _number(fields.op),
        _address(fields.user),
        _address(fields.settler),
        fields.nonce.raw,
        _number(int(fields.deadline)),
        keccak256(fields.data.raw),
        _fees(fields.max_fees),
        _events(_EVENT_TYPE, fields.events),
        None,
        _number(fields.min_validations),
    )
    return _with_bytes(words, fields.config_sig.raw)


def _encoded_operations(fields: HashedOperations) -> bytes:
    operations = (
        _OPERATION_TYPE
        + _number(each.op_type)
        + _address(each.user)
        + keccak256(each.data.raw)
        + _events(_OPERATION_EVENT_TYPE, each.events)
        for each in fields.operations
    )
    words = (
        _OPERATIONS_INTENT_TYPE,
        _address(fields.fee_payer),
        _address(fields.settler),
        fields.nonce.raw,
        _number(int(fields.deadline)),
        _fees(fields.max_fees),
        None,
        _number(fields.min_validations),
        _list(operations),
    )
    return _with_bytes(words, fields.trigger_sig.raw)


def _with_bytes(words: Sequence[bytes | None], dynamic: bytes) -> bytes:
    """Words in the Solidity ABI with one value of type `bytes`, whose word is None ("Use of Dynamic Types")."""
    starts_at = _number(32 * len(words))
    head = b"".join(starts_at if word is None else word for word in words)
    return head + _number(len(dynamic)) + dynamic + bytes(-len(dynamic) % 32)


def proposal_hash(intent_hash: bytes, proposal: AnyOffer) -> bytes:
    """The answer of the settlement contract's `getProposalHash` for a proposal to that intent, 32 bytes."""
    if isinstance(proposal, NewProposal | Offer):
        kind, data = _PROPOSAL_TYPE, keccak256(proposal.data.raw)
    else:
        kind = _OPERATIONS_PROPOSAL_TYPE
        data = keccak256(b"".join(keccak256(each.raw) for each in proposal.datas))
    return keccak256(
        b"".join(
            (
                kind,
                intent_hash,
                _address(proposal.solver),
                _number(int(proposal.deadline)),
                data,
                keccak256(b"".join(_number(int(fee)) for fee in proposal.fees)),
            )
        )
    )


def settlement_digest(proposal_hash: bytes, protocol: str, chain_id: int, settler: Address) -> bytes:
    """The digest that a solver signs for a proposal: EIP-712 under the domain of one settlement contract, 32 bytes."""
    name = keccak256(f"{protocol} Protocol Settler".encode())
    separator = keccak256(_DOMAIN_TYPE + name + _VERSION + _number(chain_id) + _address(settler))
    return keccak256(b"\x19\x01" + separator + proposal_hash)


class Signed(NamedTuple):
    """Whether every signature of a proposal counts (None: it has none, or no domain), and the signers, each once."""

    verified: bool | None
    signers: list[Address]


def signed_by(proposal: AnyOffer, domains: Sequence[tuple[bytes, Collection[Address]]]) -> Signed:
    """The signers of `proposal`. Each of `domains` is a chain's digest and its signers besides the solver.

    The signers are those under the domain where the most signatures count, from the first one on. Under a wrong domain
    they cannot be known: there each signature recovers to some other address.
    """
    signatures = list(dict.fromkeys(proposal.signatures))
    if not signatures or not domains:
        return Signed(None, [])

    def count(domain: tuple[bytes, Collection[Address]]) -> int:
        digest, allowed = domain
        counted = takewhile(lambda each: _counts(recover(digest, each), proposal.solver, allowed), signatures)
        return sum(1 for _ in counted)

    counts = [count(domain) for domain in domains]
    most = max(counts)
    digest, _ = domains[counts.index(most)]
    found = [recover(digest, each) for each in signatures]
    return Signed(most == len(signatures), list(dict.fromkeys(each for each in found if each is not None)))


def _counts(signer: Address | None, solver: Address, allowed: Collection[Address]) -> bool:
    return signer is not None and (signer == solver or signer in allowed)


def _number(value: int) -> bytes:
    return value.to_bytes(32)


def _address(address: Address) -> bytes:
    return bytes(12) + address.raw


def _fees(fees: Iterable[MaxFee]) -> bytes:
    return _list(_FEE_TYPE + _address(fee.token) + _number(int(fee.amount)) for fee in fees)


def _events(kind: bytes, events: Iterable[IntentEvent]) -> bytes:
    return _list(kind + event.topic.raw + keccak256(event.data.raw) for event in events)


def _list(structs: Iterable[bytes]) -> bytes:
    """An array of structs (EIP-712, encodeData): the hash of their joined hashes."""
    return keccak256(b"".join(keccak256(struct) for struct in structs))
