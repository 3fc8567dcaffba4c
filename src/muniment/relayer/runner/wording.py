"""An intent in plain words, for the person who tries a function. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.protocol.evm.address import Address
from muniment.protocol.intents.types import NewIntent
from muniment.protocol.wire import moment
from muniment.relayer.runner.operations import (
    CALL,
    CALL_FORM,
    CROSS_CHAIN_SWAP,
    SWAP,
    SWAP_FORM,
    TRANSFER,
    TRANSFER_FORM,
    decoded,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muniment.protocol.evm.hex import HexString
    from muniment.protocol.intents.types import AnyNewIntent

_SELECTOR_BYTES: Final = 4


def said(intent: AnyNewIntent) -> list[str]:
    """What a relayer made of a function's intent: each operation, the fees and the deadline, a line each."""
    if isinstance(intent, NewIntent):
        operations = [(intent.op, intent.data)]
    else:
        operations = [(each.op_type, each.data) for each in intent.operations]
    fees = " and ".join(f"{each.amount} of {each.token}" for each in intent.max_fees)
    return [
        *(line for op_type, data in operations for line in _operation(op_type, data)),
        f"for a fee of at most {fees}" if fees else "without a fee",
        f"until {moment(1_000 * int(intent.deadline))}, at the settlement contract {intent.settler}",
    ]


def _operation(op_type: int, data: HexString) -> Iterator[str]:
    if op_type in (SWAP, CROSS_CHAIN_SWAP):
        source, destination, given, wanted = decoded(SWAP_FORM, data)
        gives = " and ".join(f"{amount} of {_address(token)}" for token, amount in given)
        takes = " and ".join(
            f"at least {amount} of {_address(token)} for {_address(recipient)}" for token, amount, recipient in wanted
        )
        yield f"swap {gives} on chain {source} for {takes} on chain {destination}"
    elif op_type == TRANSFER:
        chain_id, transfers = decoded(TRANSFER_FORM, data)
        for token, amount, recipient in transfers:
            yield f"transfer {amount} of {_address(token)} to {_address(recipient)} on chain {chain_id}"
    elif op_type == CALL:
        chain_id, calls = decoded(CALL_FORM, data)
        for target, sent, value in calls:
            start = f"0x{sent[:_SELECTOR_BYTES].hex()}"
            yield f"call {_address(target)} with {len(sent)} bytes ({start}) and {value} wei on chain {chain_id}"
    else:
        yield f"operation of type {op_type} with {len(data.raw)} bytes"


def _address(text: str) -> Address:
    """An address as people compare it, with the checksum of EIP-55."""
    return Address.parse(text)
