"""Logs of settlement contracts, decoded into events about intents. Pure.

An `IntentExecuted` of the first generation holds the whole intent, whose hash is computed here; an `OperationExecuted`
of the second holds the hash. See packages/evm/contracts/Settler.sol of mimic-protocol/contracts, before and since
30 April 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, ValidationError, convert

from muniment.chains.nodes import Block
from muniment.protocol.evm.abi import ADDRESS, BYTES, BYTES32, UINT8, UINT256, ListOf, TupleOf, decode
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import Bytes32, HexString, quantity_of
from muniment.protocol.evm.words import SAFE_INTEGER_MAX
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.texts import ConfigSig
from muniment.protocol.intents.types import Hashed, IntentEvent, MaxFee
from muniment.protocol.wire import Amount, Record, decode_text

Kind: TypeAlias = Literal["proposal", "intent", "operation"]

_INTENT: Final = (
    "(uint8,address,address,bytes32,uint256,bytes,(address,uint256)[],(bytes32,bytes)[],bytes,uint256,bytes[])"
)
_OPERATION: Final = "(uint8,address,bytes,(bytes32,bytes)[])"


def _topic(signature: str) -> Bytes32:
    return Bytes32.from_raw(keccak256(signature.encode()))


INTENT_EXECUTED: Final = _topic(
    f"IntentExecuted(address,bytes32,uint8,{_INTENT},(uint256,bytes,uint256[]),bytes,bytes)"
)
PROPOSAL_EXECUTED: Final = _topic("ProposalExecuted(bytes32,uint256)")
OPERATION_EXECUTED: Final = _topic(
    f"OperationExecuted(address,bytes32,uint8,{_OPERATION},(uint256,bytes[],uint256[]),bytes32,uint256,bytes,bytes)"
)
# The same event in the generation with operations: it has no index.
PROPOSAL_EXECUTED_ALONE: Final = _topic("ProposalExecuted(bytes32)")
# The choices for the first topic in a request of `eth_getLogs`.
TOPICS: Final = (INTENT_EXECUTED, PROPOSAL_EXECUTED, OPERATION_EXECUTED, PROPOSAL_EXECUTED_ALONE)

_INTENT_TYPE: Final = TupleOf(
    (
        UINT8, ADDRESS, ADDRESS, BYTES32, UINT256, BYTES, ListOf(TupleOf((ADDRESS, UINT256))),
        ListOf(TupleOf((BYTES32, BYTES))), BYTES, UINT256, ListOf(BYTES),
    )
)  # fmt: skip
# The head of OperationExecuted's data is operation, proposal, intentHash, index, output, data: one word each.
_INTENT_HASH_AT: Final = slice(64, 96)
_OPERATION_HEAD_BYTES: Final = 6 * 32
# Below 2^53, which databases and JSON numbers hold exactly.
_NUMBER_MAX: Final = SAFE_INTEGER_MAX


class _Log(Record, frozen=True):
    """An element of the answer to `eth_getLogs` (execution-apis, schema Log); a pending log has no block."""

    address: Address
    topics: Annotated[list[Bytes32], Meta(max_length=4)]
    data: HexString
    block_number: str
    block_hash: Bytes32
    transaction_hash: Bytes32
    log_index: str
    removed: bool = False


@dataclass(frozen=True, slots=True)
class SettlerEvent:
    """A settlement contract carried out a proposal, an intent, or an operation of an intent.

    `subject` is the hash of the proposal or of the intent, 32 bytes; `settler` is the contract.
    """

    kind: Kind
    subject: bytes
    settler: Address
    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    log_index: int


def event_in(log: object) -> SettlerEvent | None:
    """The event in an element of the answer to `eth_getLogs`.

    None for another event, and for a log that is malformed, pending (its block is null) or `removed` (reorganised).
    """
    try:
        given = convert(log, _Log, dec_hook=decode_text)
        subject = None if given.removed else _subject(given)
    except (ValidationError, ValueError):
        return None
    block_number, log_index = _number(given.block_number), _number(given.log_index)
    if subject is None or block_number is None or log_index is None:
        return None
    return SettlerEvent(
        *subject, given.address, block_number, given.block_hash.raw, given.transaction_hash.raw, log_index
    )


def _subject(log: _Log) -> tuple[Kind, bytes] | None:
    """The kind and hash of the subject, None for another event. Raises `ValueError` for malformed data."""
    match log.topics:
        case [topic, proposal] if topic in (PROPOSAL_EXECUTED, PROPOSAL_EXECUTED_ALONE):
            return "proposal", proposal.raw
        case [topic, _, _, _] if topic == INTENT_EXECUTED:
            return _intent(log)
        case [topic, _, _, _] if topic == OPERATION_EXECUTED:
            data = log.data.raw
            return ("operation", data[_INTENT_HASH_AT]) if len(data) >= _OPERATION_HEAD_BYTES else None
        case _:
            return None


def _intent(log: _Log) -> tuple[Kind, bytes] | None:
    """The intent, which is the event's first value; None if it names another settlement contract as its settler."""
    ((op, user, settler, nonce, deadline, data, fees, events, config_sig, validations_min, _),) = decode(
        (_INTENT_TYPE,), log.data.raw
    )
    if settler != log.address:
        return None
    return "intent", intent_hash(
        Hashed(
            op=op, user=user, settler=settler, nonce=Bytes32.from_raw(nonce), deadline=Amount(deadline),
            data=HexString.from_raw(data), config_sig=ConfigSig("0x" + config_sig.hex()),
            max_fees=[MaxFee(token=token, amount=Amount(amount)) for token, amount in fees],
            events=[IntentEvent(topic=Bytes32.from_raw(topic), data=HexString.from_raw(raw)) for topic, raw in events],
            min_validations=validations_min,
        )
    )  # fmt: skip


def _number(quantity: str) -> int | None:
    number = quantity_of(quantity)
    return number if number is not None and number <= _NUMBER_MAX else None


def pieces(events: Sequence[SettlerEvent], last: Block, facts_max: int) -> Iterator[tuple[list[SettlerEvent], Block]]:
    """The events of a range in pieces of about `facts_max`, each with the last block that it completes.

    Each piece is stored in a transaction of its own. No block is split, so that progress can be stored with each piece.
    `last` is the last block of the range.
    """
    piece: list[SettlerEvent] = []
    for event in sorted(events, key=lambda event: (event.block_number, event.log_index)):
        if len(piece) >= facts_max and event.block_number > piece[-1].block_number:
            yield piece, Block(piece[-1].block_number, piece[-1].block_hash)
            piece = []
        piece.append(event)
    yield piece, last
