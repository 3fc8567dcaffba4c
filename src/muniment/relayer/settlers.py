"""Which generation a settlement contract is of: it decides the form of the intents for it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import structlog

from muniment.chains.agreeing import DisagreementError, agreed
from muniment.chains.catalogue import FIRST_SETTLER, SECOND_SETTLER
from muniment.chains.rpc import eth_call
from muniment.outgoing import Unreachable
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import data_of
from muniment.protocol.intents.types import FIRST, SECOND, Generation

if TYPE_CHECKING:
    from muniment.chains.nodes import Node, Nodes
    from muniment.protocol.evm.address import Address

# The published deployments, whose generation needs no question.
KNOWN: Final[Mapping[Address, Generation]] = MappingProxyType({FIRST_SETTLER: FIRST, SECOND_SETTLER: SECOND})
# Each generation has one of these functions: packages/evm/contracts/Settler.sol of mimic-protocol/contracts.
_FUNCTIONS: Final = (("getNonceBlock(address,bytes32)", 2, FIRST), ("getIntentBlock(bytes32)", 1, SECOND))
_WORD: Final = 32

_log = structlog.get_logger(__name__)


async def generations(nodes: Mapping[int, Nodes]) -> dict[Address, Generation]:
    """The generations of the settlers of all chains with nodes: published ones are known, others are asked.

    A settler that answers like neither generation, or that too few nodes answer for, is left out.
    """
    found = dict(KNOWN)
    for each in nodes.values():
        for settler in each.chain.settlers:
            if settler not in found and (generation := await _asked(each, settler)) is not None:
                found[settler] = generation
    return found


async def _asked(nodes: Nodes, settler: Address) -> Generation | None:
    async def ask(node: Node) -> tuple[bool, ...]:
        calls = [
            eth_call(keccak256(name.encode())[:4] + bytes(words * _WORD), to=settler) for name, words, _ in _FUNCTIONS
        ]
        return tuple(len(data_of(answer) or b"") == _WORD for answer in await nodes.ask(node, calls))

    try:
        answered = await agreed(nodes, ask)
    except (DisagreementError, Unreachable) as error:
        _log.warning(
            "the generation of a settler is not known", chain=nodes.chain.id, settler=settler, reason=str(error)
        )
        return None
    fitting = [generation for has_it, (_, _, generation) in zip(answered or (), _FUNCTIONS, strict=False) if has_it]
    return fitting[0] if len(fitting) == 1 else None
