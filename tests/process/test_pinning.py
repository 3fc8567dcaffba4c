"""The block at which a run reads a chain: the highest one until its time, which two nodes agree about."""

from __future__ import annotations

import pytest

from chain import CHAIN_TESTS
from muniment.relayer.runner.pinning import QUIET_SECONDS, Incomplete, Pin
from pinned_world import CHAIN_ID, Json, Nodal, chain, nodal

__all__ = ["chain", "nodal"]
pytestmark = CHAIN_TESTS


def pin_of(block: dict[str, str], *, is_quiet: bool = False) -> Pin:
    number, time_s = int(block["number"], 16), int(block["timestamp"], 16)
    return Pin(CHAIN_ID, number, bytes.fromhex(block["hash"][2:]), time_s, is_quiet)


async def code_of(nodal: Nodal, *urls: str, second: int, confirmations: int = 1) -> str:
    with pytest.raises(Incomplete) as caught:
        await nodal.pins(*urls, confirmations=confirmations).pin(CHAIN_ID, second)
    return caught.value.code


async def test_a_run_reads_the_highest_block_that_is_not_after_its_time(nodal: Nodal) -> None:
    base = nodal.newest_s
    blocks = nodal.mine(base + 10, base + 20, base + 20, base + 30)
    for second, block in ((10, 0), (19, 0), (20, 2), (29, 2)):
        assert await nodal.pins().pin(CHAIN_ID, base + second) == pin_of(blocks[block])


async def test_a_block_far_below_the_head_is_found_in_few_requests(nodal: Nodal) -> None:
    base = nodal.newest_s
    (wanted,) = nodal.mine(base + 10)
    nodal.chain.ask("anvil_mine", hex(300), hex(12))
    url = nodal.node()
    assert await nodal.pins(url).pin(CHAIN_ID, base + 10) == pin_of(wanted)
    assert len(nodal.proxies[0].requests) <= 8


async def test_the_block_is_not_known_before_a_later_one_is_seen(nodal: Nodal) -> None:
    base = nodal.newest_s
    nodal.mine(base + 10)
    assert await code_of(nodal, second=base + 10) == "no-block"
    nodal.mine(base + 11)
    assert await code_of(nodal, second=base + 10, confirmations=2) == "no-block"
    assert await code_of(nodal, second=1) == "no-block"  # before the chain began
    nodal.mine(base + 12)
    assert (await nodal.pins(confirmations=2).pin(CHAIN_ID, base + 10)).time_s == base + 10


async def test_two_nodes_must_know_the_block_and_a_third_may_lag(nodal: Nodal) -> None:
    base = nodal.newest_s
    blocks = nodal.mine(base + 10, base + 20)
    lagging = nodal.lagging(nodal.newest - 1)
    assert await code_of(nodal, nodal.chain.url, lagging, second=base + 15) == "no-block"
    pins = nodal.pins(nodal.chain.url, lagging, nodal.node())
    assert await pins.pin(CHAIN_ID, base + 15) == pin_of(blocks[0])


async def test_a_node_that_lies_about_a_block_is_not_believed(nodal: Nodal) -> None:
    base = nodal.newest_s
    blocks = nodal.mine(base + 10, base + 20)

    def other_hash(_call: dict[str, object], answer: dict[str, object]) -> dict[str, object]:
        result = answer.get("result")
        return {**answer, "result": {**result, "hash": "0x" + "66" * 32}} if isinstance(result, dict) else answer

    liar = nodal.node(other_hash)
    assert await code_of(nodal, liar, nodal.chain.url, second=base + 15) == "nodes-differ"
    assert await nodal.pins(liar, nodal.chain.url, nodal.node()).pin(CHAIN_ID, base + 15) == pin_of(blocks[0])


async def test_without_a_second_node_nothing_is_read(nodal: Nodal) -> None:
    base = nodal.newest_s
    nodal.mine(base + 10, base + 20)
    assert await code_of(nodal, nodal.chain.url, "http://127.0.0.1:1", second=base + 15) == "no-answer"


async def test_a_chain_without_new_blocks_is_read_at_its_head_if_two_nodes_agree(nodal: Nodal) -> None:
    base = nodal.newest_s
    (head,) = nodal.mine(base + 10)
    both = (nodal.chain.url, nodal.node())
    nodal.now_ms = 1_000 * (base + 10 + QUIET_SECONDS) - 1
    assert await code_of(nodal, *both, second=base + 60) == "no-block"
    nodal.now_ms += 1
    assert await nodal.pins(*both).pin(CHAIN_ID, base + 60) == pin_of(head, is_quiet=True)
    assert await code_of(nodal, second=base + 60) == "no-block"
    assert await code_of(nodal, nodal.chain.url, nodal.lagging(nodal.newest - 1), second=base + 60) == "nodes-differ"


async def test_the_block_of_an_event_is_read_as_long_as_it_is_canonical(nodal: Nodal) -> None:
    base = nodal.newest_s
    snapshot = nodal.chain.ask("evm_snapshot")
    (block,) = nodal.mine(base + 10)
    pins, pin = nodal.pins(), pin_of(block)
    assert await pins.pin_event(CHAIN_ID, pin.hash) == pin
    assert await pins.is_canonical(CHAIN_ID, pin.hash, base + 10)
    nodal.chain.ask("evm_revert", snapshot)
    nodal.mine(base + 11)
    with pytest.raises(Incomplete) as caught:
        await pins.pin_event(CHAIN_ID, pin.hash)
    assert caught.value.code == "no-block"
    assert not await pins.is_canonical(CHAIN_ID, pin.hash, base + 10)


async def test_a_node_that_lags_does_not_say_that_a_block_is_gone(nodal: Nodal) -> None:
    base = nodal.newest_s
    (block,) = nodal.mine(base + 10)
    pins = nodal.pins(nodal.lagging(nodal.newest - 1))
    with pytest.raises(Incomplete) as caught:
        await pins.is_canonical(CHAIN_ID, pin_of(block).hash, base + 10)
    assert caught.value.code == "no-block"


async def test_a_node_that_lags_within_a_question_does_not_say_that_a_block_is_gone(nodal: Nodal) -> None:
    base = nodal.newest_s
    (block,) = nodal.mine(base + 10)

    def change(call: Json, answer: Json) -> Json:
        """Behind the URL is another node that lacks the block, which gets the second request."""
        is_second = call["method"] == "eth_getBlockByNumber" and call["params"][0] != "latest"
        return {**answer, "result": None} if is_second else answer

    pins = nodal.pins(nodal.node(change))
    with pytest.raises(Incomplete) as caught:
        await pins.is_canonical(CHAIN_ID, pin_of(block).hash, base + 10)
    assert caught.value.code == "no-block"


async def test_a_block_is_found_by_its_number_or_by_the_time_before_it(nodal: Nodal) -> None:
    base = nodal.newest_s
    blocks = [pin_of(block) for block in nodal.mine(base + 10, base + 20)]
    pins = nodal.pins(nodal.chain.url, nodal.node())
    assert await pins.pin_number(CHAIN_ID, blocks[0].number) == blocks[0]
    assert await pins.block_after(CHAIN_ID, base + 10) == blocks[1].number
    assert await pins.block_after(CHAIN_ID, base + 20) == blocks[1].number + 1
    assert await pins.block_after(CHAIN_ID, 1) == 0
    with pytest.raises(Incomplete) as caught:
        await pins.pin_number(CHAIN_ID, blocks[1].number + 1)
    assert caught.value.code == "no-block"


async def test_runs_of_one_second_share_a_search(nodal: Nodal) -> None:
    base = nodal.newest_s
    nodal.mine(base + 10, base + 20)
    pins = nodal.pins(nodal.node())
    first = await pins.pin(CHAIN_ID, base + 15)
    asked = len(nodal.proxies[0].requests)
    assert await pins.pin(CHAIN_ID, base + 15) == first
    assert len(nodal.proxies[0].requests) == asked
    pins.forget(first)
    assert await pins.pin(CHAIN_ID, base + 15) == first
    assert len(nodal.proxies[0].requests) > asked
