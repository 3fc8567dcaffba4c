"""The generations of the settlement contracts that a relayer knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from muniment.chains.rpc import Failed, check_given, eth_call
from muniment.chains.settlers import GENERATION_CALLS, KNOWN
from muniment.protocol.evm.hex import data_of
from muniment.relayer.runner.pinning import agreed_answer

if TYPE_CHECKING:
    from muniment.chains.nodes import Node, Nodes
    from muniment.protocol.evm.address import Address
    from muniment.protocol.intents.types import Generation

_WORD_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Generations:
    """Finds generations: published contracts are known, those of the chains with `nodes` are asked."""

    nodes: Mapping[int, Nodes]
    known: dict[Address, Generation] = field(default_factory=lambda: {**KNOWN})

    async def of(self, settlers: Iterable[Address]) -> dict[Address, Generation]:
        """The generations of `settlers`, without those that no chain lists or that answer like neither generation.

        Raises `Incomplete` when too few nodes answer, or they differ.
        """
        named = list(settlers)
        for settler in named:
            listing = [each for each in self.nodes.values() if settler in each.chain.settlers]
            if settler not in self.known and listing and (generation := await _asked(listing[0], settler)) is not None:
                self.known[settler] = generation
        return {settler: self.known[settler] for settler in named if settler in self.known}


async def _asked(nodes: Nodes, settler: Address) -> Generation | None:
    """The generation as the contract tells it; None: it answers like neither. Raises `Incomplete`."""

    async def ask(node: Node) -> tuple[bool, ...]:
        answers = await nodes.ask(node, [eth_call(data, to=settler) for _, data in GENERATION_CALLS])
        for answer in answers:
            if isinstance(answer, Failed) and answer.fault == "node":
                check_given(answer)
        return tuple(len(data_of(answer) or b"") == _WORD_BYTES for answer in answers)

    answered = await agreed_answer(nodes, ask, f"settler {settler}")
    fitting = [generation for fits, (generation, _) in zip(answered or (), GENERATION_CALLS, strict=False) if fits]
    return fitting[0] if len(fitting) == 1 else None
