"""A settlement contract tells its generation by the functions that it has."""

from __future__ import annotations

import pytest

from chain import CHAIN_TESTS
from muniment.chains.settlers import KNOWN
from muniment.protocol.intents.types import FIRST, SECOND
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.runner.settlers import Generations
from pinned_world import Json, Nodal, chain, nodal

__all__ = ["chain", "nodal"]
pytestmark = CHAIN_TESTS


async def test_settlers_of_both_generations_are_told_apart_and_others_left_out(nodal: Nodal) -> None:
    first, second = nodal.chain.deploy("MiniSettlerLegacy"), nodal.chain.deploy("MiniSettlerOps")
    other = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    pins = nodal.pins(nodal.chain.url, nodal.node(), settlers=(second, other, first))
    generations, unlisted = Generations(pins.nodes), nodal.chain.deploy("MiniSettlerOps")
    found = await generations.of([first, second, other, unlisted, *KNOWN])
    assert found == {**KNOWN, first: FIRST, second: SECOND}
    asked = len(nodal.proxies[0].requests)
    assert await generations.of([first, second]) == {first: FIRST, second: SECOND}
    assert len(nodal.proxies[0].requests) == asked


async def test_a_node_that_lies_about_a_settler_is_not_believed(nodal: Nodal) -> None:
    second = nodal.chain.deploy("MiniSettlerOps")

    def lies(call: Json, answer: Json) -> Json:
        if call["method"] != "eth_call":
            return answer
        return {**answer, "result": "0x" if answer.get("result", "0x") != "0x" else "0x" + "00" * 32}

    pins = nodal.pins(nodal.node(lies), nodal.chain.url, settlers=(second,))
    with pytest.raises(Incomplete) as caught:
        await Generations(pins.nodes).of([second])
    assert caught.value.code == "nodes-differ"
    assert await Generations(pins.nodes).of(KNOWN) == KNOWN
