"""Reads of contracts at a pinned block, as two nodes answer them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import UNSET

from muniment.chains.rpc import Call, Failed
from muniment.outgoing import SMALL_ANSWER_BYTES_MAX, Unreachable
from muniment.protocol.evm.hex import HexString, data_of, quantity_of
from muniment.protocol.runs.types import RunCall
from muniment.relayer.runner.pinning import Pin, agreed_answer

if TYPE_CHECKING:
    from msgspec import UnsetType

    from muniment.chains.nodes import Node, Nodes
    from muniment.protocol.evm.address import Address

# The limits of a call on a node; that of its time is in `pinning`.
CALL_GAS_MAX: Final = 30_000_000
ANSWER_BYTES_MAX: Final = 64 * 1024
TOO_LONG: Final = f"the contract answered more than {ANSWER_BYTES_MAX} bytes"
FAILED: Final = "the contract failed"
# EIP-1474: a call beyond the rate limit of a node.
_LIMIT_EXCEEDED: Final = -32005
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
    found = await agreed_answer(nodes, lambda node: _returned_by(nodes, node, pin, calls), "what a contract answers")
    assert found is not None  # noqa: S101 - `_returned_by` never gives None
    return found


async def _returned_by(nodes: Nodes, node: Node, pin: Pin, calls: Sequence[Wanted]) -> tuple[Returned, ...]:
    """The answers of one node. Raises `Unreachable`.

    The balance of the zero address is asked for as well: if that fails, the node lacks the state of the block, and no
    contract is to blame.
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
        raise
    if quantity_of(first) is None:
        raise Unreachable("refused", "the node lacks the state of the block")
    return tuple(_returned(answer) for answer in answers)


def _call(wanted: Wanted, block: dict[str, str]) -> Call:
    transaction = {"data": "0x" + wanted.data.hex(), "gas": hex(CALL_GAS_MAX)}
    return Call("eth_call", (transaction if wanted.to is None else {"to": wanted.to, **transaction}, block))


def _returned(answer: Any) -> Returned:
    if isinstance(answer, Failed):
        if answer.code == _LIMIT_EXCEEDED:
            raise Unreachable("limited", "the node limits the rate of calls")
        # What comes after "revert" is the contract's own text.
        told = answer.message.lower().partition("revert")[0]
        if "timeout" in told or "timed out" in told:
            raise Unreachable("timeout", "the node gave up a call")
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
