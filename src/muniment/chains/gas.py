"""The gas of a call at nodes: some give a call less than was asked, without a word."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from muniment.chains.rpc import Call, Failed, eth_call
from muniment.outgoing import Unreachable
from muniment.protocol.evm.hex import data_of

if TYPE_CHECKING:
    from muniment.chains.nodes import Node, Nodes

# geth's default cap is 50 million. Providers have lower ones, but none that documents it is below this.
CALL_GAS_MAX: Final = 25_000_000
# What the burning call leaves: the gas of the transaction itself (21,000, and 32,000 to create) and of its bytes.
_LEFT_OUT: Final = 100_000
# Creation code that burns gas until less than the rest is left, and gives back a word:
# GAS; JUMPDEST; DUP1 GAS SWAP1 SUB; PUSH4 amount; GT; PUSH1 1 JUMPI; PUSH1 0 MSTORE; PUSH1 32 PUSH1 0 RETURN.
_BURNER: Final = bytes.fromhex(f"5a5b805a900363{CALL_GAS_MAX - _LEFT_OUT:08x}1160015760005260206000f3")

_log = structlog.get_logger(__name__)


def burning_call(block: str = "latest") -> Call:
    """A call that spends the gas that calls of runs are given."""
    return eth_call(_BURNER, block=block, gas=CALL_GAS_MAX)


def is_short_of_gas(answer: object) -> bool | None:
    """Whether a node's answer to `burning_call` says that the node gives a call less gas; None: it does not tell."""
    if isinstance(answer, Failed):
        return True if answer.fault in ("contract", "gas") or "gas" in answer.message.lower() else None
    return None if data_of(answer) is None else False


async def measure_gas(nodes: Nodes) -> list[Node]:
    """Spend the gas of a call at each node that does not rest; the nodes that give less, which the log names.

    From then on, a call that runs out of gas at one of these is a failure of the node, not of the contract.
    """
    asked = [node for node in nodes.nodes if node.rests_until_s <= nodes.now_s()]
    answers = await asyncio.gather(*(_burnt(nodes, node) for node in asked))
    for node, answer in zip(asked, answers, strict=True):
        if (is_short := is_short_of_gas(answer)) is not None:
            node.is_short_of_gas = is_short
    short = [node for node in nodes.nodes if node.is_short_of_gas]
    for node in short:
        _log.warning("a node gives a call less gas", chain=nodes.chain.id, url=node.number, needed=CALL_GAS_MAX)
    return short


async def _burnt(nodes: Nodes, node: Node) -> object:
    try:
        (answer,) = await nodes.ask(node, [burning_call()])
    except Unreachable:
        return None
    return answer
