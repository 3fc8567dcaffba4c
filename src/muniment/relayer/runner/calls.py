"""Reads of contracts at a pinned block, as two nodes answer them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import UNSET

from muniment.chains.agreeing import REFUSED_CALL
from muniment.chains.gas import CALL_GAS_MAX
from muniment.chains.rpc import Call, Failed
from muniment.chains.verdicts import takes_no_hash
from muniment.outgoing import SMALL_ANSWER_BYTES_MAX, Unreachable
from muniment.protocol.evm.hex import HexString, data_of, quantity_of
from muniment.protocol.runs.types import RunCall
from muniment.relayer.runner.pinning import Pin, agreed_answer

if TYPE_CHECKING:
    from msgspec import UnsetType

    from muniment.chains.nodes import Node, Nodes
    from muniment.protocol.evm.address import Address

# The limits of a call on a node are this, that of its gas in `chains.gas`, and that of its time in `pinning`.
ANSWER_BYTES_MAX: Final = 64 * 1024
TOO_LONG: Final = f"the contract answered more than {ANSWER_BYTES_MAX} bytes"
FAILED: Final = "the contract failed"
_NOBODY: Final = "0x" + "00" * 20


class Wanted(NamedTuple):
    """A call: of a contract, or of creation code, which has no `to`."""

    to: Address | None
    data: bytes


class Returned(NamedTuple):
    """What a call returned; `failure` says why there is no `data`."""

    data: bytes = b""
    failure: str = ""


async def call_all(nodes: Nodes, pin: Pin, calls: Sequence[Wanted]) -> tuple[Returned, ...]:
    """What `calls` returned at the pinned block. Raises `Incomplete`."""
    answer = await agreed_answer(nodes, lambda node: _returned_by(nodes, node, pin, calls), "what a contract answers")
    assert answer is not None  # noqa: S101 - `_returned_by` never gives None
    return answer


async def _returned_by(nodes: Nodes, node: Node, pin: Pin, calls: Sequence[Wanted]) -> tuple[Returned, ...]:
    """The answers of one node. Raises `Unreachable`.

    The balance of the zero address is asked for as well: if that fails, the node may lack the state of the block, or
    not take the block's hash, and no contract is to blame.
    """
    block = {"blockHash": "0x" + pin.hash.hex()}
    probe = Call("eth_getBalance", (_NOBODY, block))
    try:
        first, *answers = await nodes.ask(
            node, [probe, *(_call(each, block) for each in calls)], bytes_max=SMALL_ANSWER_BYTES_MAX
        )
    except Unreachable as error:
        if error.reason == "too-large":
            return (Returned(failure=TOO_LONG),) * len(calls)
        if error.reason == "timeout" or error.reason.startswith("http-5"):
            # A contract that takes long may be the cause, also of what a gateway says. A node that fails for other
            # questions rests for those.
            raise Unreachable(REFUSED_CALL, error.told) from None
        raise
    if isinstance(first, Failed):
        # The node may lack the state of the block, or not take its hash. It may answer all else, such as for logs.
        takes = not takes_no_hash(first.code, first.message)
        words = "" if takes else "the node does not take the hash of a block (EIP-1898): "
        raise Unreachable(REFUSED_CALL, words + first.message)
    if quantity_of(first) is None:
        raise Unreachable("garbage", "no balance")
    return tuple(_returned(node, answer) for answer in answers)


def _call(wanted: Wanted, block: dict[str, str]) -> Call:
    transaction = {"data": "0x" + wanted.data.hex(), "gas": hex(CALL_GAS_MAX)}
    return Call("eth_call", (transaction if wanted.to is None else {"to": wanted.to, **transaction}, block))


def _returned(node: Node, answer: Any) -> Returned:
    """What a call returned. Raises `Unreachable` where the node failed; it answered the probe, so it need not rest."""
    if isinstance(answer, Failed):
        if answer.fault == "gas" and node.is_short_of_gas:
            raise Unreachable(REFUSED_CALL, f"the node gives a call less than {CALL_GAS_MAX} gas: {answer.message}")
        if answer.fault == "node":
            raise Unreachable(REFUSED_CALL, answer.message)
        return Returned(failure=FAILED)
    data = data_of(answer)
    if data is None:
        raise Unreachable("garbage", "no data")
    return Returned(data) if len(data) <= ANSWER_BYTES_MAX else Returned(failure=TOO_LONG)


def recorded(pin: Pin, wanted: Wanted, returned: Returned) -> RunCall:
    """A call as a record of a run lists it."""
    to: Address | UnsetType = UNSET if wanted.to is None else wanted.to
    return RunCall(
        to=to, data=HexString.from_raw(wanted.data), block=pin.block(), answer=HexString.from_raw(returned.data)
    )
