"""A settlement contract tells its generation by the functions that it has."""

from __future__ import annotations

from chain import CHAIN_TESTS
from muniment.protocol.intents.types import FIRST, SECOND
from muniment.relayer.settlers import KNOWN, generations
from pinned_world import CHAIN_ID, Json, Nodal, chain, nodal

__all__ = ["chain", "nodal"]
pytestmark = CHAIN_TESTS


async def test_settlers_of_both_generations_are_told_apart_and_others_left_out(nodal: Nodal) -> None:
    first, second = nodal.chain.deploy("MiniSettlerLegacy"), nodal.chain.deploy("MiniSettlerOps")
    other = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    pins = nodal.pins(nodal.chain.url, nodal.node(), settlers=(second, other, first))
    assert await generations(pins.nodes) == {**KNOWN, first: FIRST, second: SECOND}


async def test_a_node_that_lies_about_a_settler_is_not_believed(nodal: Nodal) -> None:
    second = nodal.chain.deploy("MiniSettlerOps")

    def lies(call: Json, answer: Json) -> Json:
        if call["method"] != "eth_call":
            return answer
        return {**answer, "result": "0x" if answer.get("result", "0x") != "0x" else "0x" + "00" * 32}

    pins = nodal.pins(nodal.node(lies), nodal.chain.url, settlers=(second,))
    assert await generations(pins.nodes) == KNOWN
    assert CHAIN_ID in pins.nodes
