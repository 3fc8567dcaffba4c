"""The data of an operation, in the Solidity ABI, from the JSON that a function sends. Pure.

The structs are those of packages/evm/contracts/Intents.sol and dynamic-calls/DynamicCallTypes.sol of
mimic-protocol/contracts at 9fc31ff; the first three are the same at 79af160.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, cast

from eth_abi.abi import decode, encode
from msgspec import Meta, Struct, ValidationError, convert

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import HexString
from muniment.protocol.evm.words import SAFE_INTEGER_MAX
from muniment.protocol.forms import prepare
from muniment.protocol.wire import Amount, decode_text, refusal_of

if TYPE_CHECKING:
    from muniment.protocol.runs.reasons import StopReason

SWAP: Final = 0
TRANSFER: Final = 1
CALL: Final = 2
CROSS_CHAIN_SWAP: Final = 3
DYNAMIC_CALL: Final = 4
# The data of these operations. That of a call is encoded likewise, and that of dynamic calls has a list of calls.
SWAP_FORM: Final = "(uint256,uint256,(address,uint256)[],(address,uint256,address)[])"
TRANSFER_FORM: Final = "(uint256,(address,uint256,address)[])"
CALL_FORM: Final = "(uint256,(address,bytes,uint256)[])"
_SELECTOR_BYTES: Final = 4
_WORD_BYTES: Final = 32

T = TypeVar("T")
_ChainId = Annotated[int, Meta(ge=1, le=SAFE_INTEGER_MAX)]


class Refused(Exception):
    """An intent that no settlement contract takes: its run is stopped for `reason`, and the text says more."""

    def __init__(self, reason: StopReason, text: str) -> None:
        super().__init__(reason, text)
        self.reason: StopReason = reason
        self.text = text


class _TokenIn(Struct, frozen=True):
    token: Address
    amount: Amount


class _TokenOut(Struct, frozen=True, rename="camel"):
    token: Address
    min_amount: Amount
    recipient: Address


class _Swap(Struct, frozen=True, rename="camel"):
    source_chain: _ChainId
    destination_chain: _ChainId
    tokens_in: Annotated[list[_TokenIn], Meta(min_length=1)]
    tokens_out: Annotated[list[_TokenOut], Meta(min_length=1)]


class _TransferData(Struct, frozen=True):
    token: Address
    amount: Amount
    recipient: Address


class _Transfer(Struct, frozen=True, rename="camel"):
    chain_id: _ChainId
    transfers: Annotated[list[_TransferData], Meta(min_length=1)]


class _CallData(Struct, frozen=True):
    target: Address
    data: HexString
    value: Amount


class _Call(Struct, frozen=True, rename="camel"):
    chain_id: _ChainId
    calls: Annotated[list[_CallData], Meta(min_length=1)]


class _Argument(Struct, frozen=True, rename="camel"):
    kind: Annotated[int, Meta(ge=0, le=1)]
    data: HexString
    is_dynamic: bool


class _DynamicCallData(Struct, frozen=True):
    target: Address
    value: Amount
    selector: HexString
    arguments: list[_Argument]


class _DynamicCall(Struct, frozen=True, rename="camel"):
    chain_id: _ChainId
    calls: Annotated[list[_DynamicCallData], Meta(min_length=1)]


def operation_data(op_type: int, body: Mapping[str, Any]) -> HexString:
    """The `data` of an operation. Raises `Refused`."""
    if op_type not in _ENCODERS:
        raise Refused("refused-call", f"there is no operation {op_type} on chains of the EVM")
    return HexString.from_raw(_ENCODERS[op_type](body))


def is_cross_chain(body: Mapping[str, Any]) -> bool:
    """Whether a swap gives and takes on different chains. Raises `Refused`."""
    swap = shape(body, _Swap)
    return swap.source_chain != swap.destination_chain


def decoded(form: str, data: HexString) -> Sequence[Any]:
    """The members of an operation's data, which was encoded here."""
    (values,) = cast("Sequence[Any]", decode([form], data.raw))
    return values


def chain_of(data: HexString) -> int:
    """The chain of an operation, for a swap across chains that of its source: the first member of each form."""
    return int.from_bytes(data.raw[_WORD_BYTES : 2 * _WORD_BYTES])


def inputs_of(op_type: int, data: HexString) -> Iterator[tuple[Address, int]]:
    """The tokens and amounts that a transfer or a swap takes from its user; nothing for other operations."""
    if op_type in (SWAP, CROSS_CHAIN_SWAP):
        for token, amount in decoded(SWAP_FORM, data)[2]:
            yield Address.parse(token), amount
    elif op_type == TRANSFER:
        for token, amount, _ in decoded(TRANSFER_FORM, data)[1]:
            yield Address.parse(token), amount


def shape(body: Mapping[str, Any], kind: type[T]) -> T:
    """The JSON of a function as a struct: letters of addresses in any case, and amounts also as numbers.

    Members that the struct does not have are ignored. Raises `Refused`.
    """
    prepare(kind)
    try:
        return convert(body, kind, dec_hook=_decode)
    except ValidationError as error:
        refusal = refusal_of(error)
        where = " ".join(fault.pointer or "" for fault in refusal.faults)
        raise Refused("bad-argument", f"{refusal.detail} {where}".strip()) from None


def _decode(expected: type, value: object) -> Any:
    if expected is Address and isinstance(value, str):
        value = value.lower()
    elif expected is Amount and type(value) is int:
        value = str(value)
    return decode_text(expected, value)


def _swap(body: Mapping[str, Any]) -> bytes:
    swap = shape(body, _Swap)
    given = [(each.token, int(each.amount)) for each in swap.tokens_in]
    wanted = [(each.token, int(each.min_amount), each.recipient) for each in swap.tokens_out]
    return encode([SWAP_FORM], [(swap.source_chain, swap.destination_chain, given, wanted)])


def _transfer(body: Mapping[str, Any]) -> bytes:
    transfer = shape(body, _Transfer)
    transfers = [(each.token, int(each.amount), each.recipient) for each in transfer.transfers]
    return encode([TRANSFER_FORM], [(transfer.chain_id, transfers)])


def _call(body: Mapping[str, Any]) -> bytes:
    call = shape(body, _Call)
    calls = [(each.target, each.data.raw, int(each.value)) for each in call.calls]
    return encode([CALL_FORM], [(call.chain_id, calls)])


def _dynamic_call(body: Mapping[str, Any]) -> bytes:
    """Each call is encoded alone: `DynamicCall(address,uint256,bytes4,DynamicArg(uint8,bytes,bool)[])`."""
    call = shape(body, _DynamicCall)
    if any(len(each.selector.raw) != _SELECTOR_BYTES for each in call.calls):
        raise Refused("bad-argument", f"a selector has {_SELECTOR_BYTES} bytes")
    calls = [
        encode(
            ["(address,uint256,bytes4,(uint8,bytes,bool)[])"],
            [
                (
                    each.target,
                    int(each.value),
                    each.selector.raw,
                    [(part.kind, part.data.raw, part.is_dynamic) for part in each.arguments],
                )
            ],
        )
        for each in call.calls
    ]
    return encode(["(uint256,bytes[])"], [(call.chain_id, calls)])


_ENCODERS: Final[Mapping[int, Callable[[Mapping[str, Any]], bytes]]] = {
    SWAP: _swap, TRANSFER: _transfer, CALL: _call, CROSS_CHAIN_SWAP: _swap, DYNAMIC_CALL: _dynamic_call,
}  # fmt: skip
