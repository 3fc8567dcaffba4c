"""Answers to the questions of a run: from contracts at its block, as two nodes give them, and kept for its record."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from chain import CHAIN_TESTS, encoded, selector
from muniment.chains.catalogue import NATIVE
from muniment.chains.gas import measure_gas
from muniment.chains.nodes import NodeLimits
from muniment.chains.prices import StaticPrices
from muniment.chains.rpc import Endpoint
from muniment.guest.types import Answer, Question
from muniment.protocol.evm.address import Address
from muniment.relayer.runner.answers import Answers
from muniment.relayer.runner.calls import FAILED, TOO_LONG
from muniment.relayer.runner.pinning import Incomplete, Pins
from pinned_world import CHAIN_ID, Json, Nodal, chain, nodal
from rpc_proxy import Reply

__all__ = ["chain", "nodal"]
pytestmark = CHAIN_TESTS

OWNER = Address.parse("0x" + "ab" * 20)
DOLLAR = 10**18


def call_of(to: Address, data: bytes, **members: str) -> Question:
    return Question("evmCall", {"to": to, "chainId": str(CHAIN_ID), "data": "0x" + data.hex(), **members})


def price_of(token: Address, **members: str) -> Question:
    return Question("tokenPrice", {"address": token.lower(), "chainId": str(CHAIN_ID), **members})


def balances_of(*tokens: Address, **members: Any) -> Question:
    listed = [{"address": token.lower(), "chainId": str(CHAIN_ID)} for token in tokens]
    given: dict[str, Any] = {
        "owner": OWNER,
        "chainIds": [str(CHAIN_ID)],
        "tokens": listed,
        "tokenFilter": "0",
        "usdMinAmount": "0",
    }
    return Question("relevantTokens", {**given, **members})


def balance_call(token: Address) -> Question:
    return call_of(token, selector("balanceOf(address)") + encoded((OWNER,)))


def run(nodal: Nodal, pins: Pins | None = None, **members: Any) -> Answers:
    """The answers of a run at the newest block, which a later one confirms."""
    second = nodal.newest_s
    nodal.mine(second + 10)
    return nodal.answers(nodal.pins() if pins is None else pins, second, **members)


async def test_a_call_reads_the_block_of_the_run_and_not_a_later_one(nodal: Nodal) -> None:
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    nodal.chain.mint(token, OWNER, 5)
    answers = run(nodal)
    nodal.chain.mint(token, OWNER, 7)
    assert await answers(balance_call(token)) == Answer(success=True, data=f"0x{5:064x}")
    (kept,) = answers.inputs
    (block,) = answers.blocks
    assert (kept.query, kept.params["to"], kept.block) == ("evmCall", token, block)
    assert kept.answer.data == f"0x{5:064x}"
    assert nodal.chain.ask("eth_getBlockByNumber", hex(block.number), False)["hash"] == block.hash


async def test_a_call_that_fails_or_answers_too_much_is_answered_so(nodal: Nodal) -> None:
    reverting = nodal.chain.deploy("RevertingToken")
    burning = nodal.chain.deploy("GasBurnerToken")
    answers = run(nodal, nodal.pins(nodal.chain.url, nodal.node()))
    for token in (reverting, burning):
        assert await answers(balance_call(token)) == Answer(success=False, error=FAILED)
        assert answers.inputs[-1].block == answers.blocks[0]
    bomb = Address.parse("0x" + "b0" * 20)
    nodal.chain.ask("anvil_setCode", bomb, "0x62010001" + "6000f3")  # returns 65,537 bytes
    answers = run(nodal)
    assert await answers(call_of(bomb, b"")) == Answer(success=False, error=TOO_LONG)
    assert [each.answer.success for each in answers.inputs] == [False]


async def test_nodes_that_answer_differently_make_the_run_incomplete(nodal: Nodal) -> None:
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    nodal.chain.mint(token, OWNER, 5)

    def more(call: Json, answer: Json) -> Json:
        return {**answer, "result": f"0x{6:064x}"} if call["method"] == "eth_call" else answer

    answers = run(nodal, nodal.pins(nodal.node(more), nodal.chain.url))
    with pytest.raises(Incomplete) as caught:
        await answers(balance_call(token))
    assert caught.value.code == "nodes-differ"
    assert answers.inputs == []
    answers = run(nodal, nodal.pins(nodal.node(more), nodal.chain.url, nodal.node()))
    assert (await answers(balance_call(token))).data == f"0x{5:064x}"


async def test_a_node_without_the_state_of_the_block_makes_the_run_incomplete(nodal: Nodal) -> None:
    def pruned(call: Json, answer: Json) -> Json:
        if call["method"] in {"eth_call", "eth_getBalance"}:
            return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32000, "message": "missing trie node"}}
        return answer

    pins = nodal.pins(nodal.node(pruned))
    with pytest.raises(Incomplete) as caught:
        await run(nodal, pins)(balance_call(OWNER))
    assert (caught.value.code, "missing trie node" in caught.value.text) == ("no-answer", True)
    assert pins.nodes[CHAIN_ID].nodes[0].rests_until_s == 0, "it may have the logs that others wait for"


def failing(code: int, message: str, method: str = "eth_call") -> Callable[[Json, Json], Json]:
    """What changes the answers of a method to an error."""

    def change(call: Json, answer: Json) -> Json:
        refused = {"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}}
        return refused if call["method"] == method else answer

    return change


async def test_a_call_that_a_node_cannot_make_is_no_failure_of_the_contract(nodal: Nodal) -> None:
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    failed = nodal.node(failing(-32603, "internal error"))
    pins = nodal.pins(failed)
    with pytest.raises(Incomplete) as caught:
        await run(nodal, pins)(balance_call(token))
    assert caught.value.text == f"too few nodes of chain {CHAIN_ID} answer (refused-call: internal error)"
    (node,) = pins.nodes[CHAIN_ID].nodes
    assert node.rests_until_s == 0, "one function's call makes no node rest"
    answers = run(nodal, nodal.pins(failed, nodal.chain.url, nodal.node()))
    assert (await answers(balance_call(token))).data == f"0x{0:064x}"


@pytest.mark.parametrize(
    "reply",
    [(504, {}, b"<html>504 Gateway Time-out</html>"), (524, {}, b"error code: 524"), (503, {}, b"upstream timeout"),
     (200, {}, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32002,"message":"request timed out"}}')],
    ids=["504", "524", "503", "one error for all"],
)  # fmt: skip
async def test_a_call_that_takes_too_long_for_a_gateway_makes_no_node_rest(nodal: Nodal, reply: Reply) -> None:
    urls = [nodal.node(), nodal.node()]
    pins = nodal.pins(*urls)
    answers = run(nodal, pins)
    await answers(balance_call(OWNER))
    for proxy in nodal.proxies:
        proxy.reply = reply
    with pytest.raises(Incomplete) as caught:
        await answers(balance_call(OWNER))
    assert (caught.value.code, "refused-call" in caught.value.text) == ("no-answer", True)
    assert [node.rests_until_s for node in pins.nodes[CHAIN_ID].nodes] == [0, 0]


async def test_a_node_that_does_not_answer_for_a_block_rests(nodal: Nodal) -> None:
    may_answer = threading.Event()

    def held(_call: Json, answer: Json) -> Json:
        may_answer.wait(60)
        return answer

    pins = nodal.pins(nodal.node(held), nodal.chain.url, nodal.node())
    nodes = pins.nodes[CHAIN_ID]
    nodes.limits = NodeLimits(answer_seconds_max=1)
    try:
        await pins.pin_number(CHAIN_ID, nodal.newest)
    finally:
        may_answer.set()
    assert [node.rests_until_s > nodal.now_s for node in nodes.nodes] == [True, False, False]


async def test_a_node_whose_quota_is_used_up_rests_and_the_others_answer(nodal: Nodal) -> None:
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    limited = nodal.node(failing(-32016, "over rate limit"))
    pins = nodal.pins(limited, nodal.chain.url, nodal.node())
    answers = run(nodal, pins)
    for _ in range(3):
        assert (await answers(balance_call(token))).success
    asked = [call["method"] for calls in nodal.proxies[0].requests for call in calls]
    assert asked.count("eth_call") == 1
    assert pins.nodes[CHAIN_ID].nodes[0].endpoint.rests_until_s > nodal.now_s
    pins = nodal.pins(limited)
    for _ in range(2):  # the second time the node rests
        with pytest.raises(Incomplete) as caught:
            await run(nodal, pins)(balance_call(token))
        assert "limited: over rate limit" in caught.value.text


async def test_a_node_that_takes_no_hash_of_a_block_is_said_to_take_none(nodal: Nodal) -> None:
    refusal = failing(-32602, "invalid argument 1: cannot unmarshal object into string", "eth_getBalance")
    pins = nodal.pins(nodal.node(refusal))
    with pytest.raises(Incomplete) as caught:
        await run(nodal, pins)(balance_call(OWNER))
    assert "EIP-1898" in caught.value.text
    assert pins.nodes[CHAIN_ID].nodes[0].rests_until_s == 0, "it answers all else"


async def test_a_node_that_gives_a_call_less_gas_is_named_and_its_lack_of_gas_is_no_answer(nodal: Nodal) -> None:
    burning = Address.parse("0x" + "b1" * 20)
    nodal.chain.ask("anvil_setCode", burning, "0x5b600056")  # JUMPDEST PUSH1 0 JUMP

    def capped(call: Json, answer: Json) -> Json:
        if call["method"] != "eth_call" or int(call["params"][0].get("gas", "0x0"), 16) <= 20_000_000:
            return answer
        asked = {**call, "params": [{**call["params"][0], "gas": hex(20_000_000)}, *call["params"][1:]]}
        return httpx2.post(nodal.chain.url, json=asked, timeout=60, trust_env=False).json()

    pins = nodal.pins(nodal.chain.url, nodal.node(capped))
    nodes = pins.nodes[CHAIN_ID]
    with capture_logs() as lines:
        assert await measure_gas(nodes) == [nodes.nodes[1]]
    assert [(line["event"], line["url"]) for line in lines] == [("a node gives a call less gas", 2)]
    with pytest.raises(Incomplete) as caught:
        await run(nodal, pins)(balance_call(burning))
    assert "less than 25000000 gas" in caught.value.text
    nodes.nodes[1].endpoint = Endpoint(nodal.node())
    assert await measure_gas(nodes) == []
    assert await run(nodal, pins)(balance_call(burning)) == Answer(success=False, error=FAILED)


async def test_balances_come_by_one_call_and_leave_out_zeros(nodal: Nodal) -> None:
    held, empty = (nodal.chain.deploy("MockERC20", "Test", "T", 6) for _ in range(2))
    nodal.chain.mint(held, OWNER, 5)
    nodal.chain.set_balance(OWNER, 9)
    url = nodal.node()
    answers = run(nodal, nodal.pins(url))
    answer = await answers(balances_of(held, empty, NATIVE))
    assert answer.data == [
        {
            "timestamp": answers.timestamp_ms,
            "balances": [
                {"token": {"address": held.lower(), "chainId": CHAIN_ID}, "balance": "5"},
                {"token": {"address": NATIVE.lower(), "chainId": CHAIN_ID}, "balance": "9"},
            ],
        }
    ]
    (kept,) = answers.inputs
    assert isinstance(kept.calls, list)
    (call,) = kept.calls
    asked = {"data": call.data, "gas": hex(25_000_000)}
    assert nodal.chain.ask("eth_call", asked, {"blockHash": call.block.hash}) == call.answer
    assert kept.params["tokens"] == [f"{CHAIN_ID}:{each.lower()}" for each in (held, empty, NATIVE)]
    assert sum(each["method"] == "eth_call" for calls in nodal.proxies[0].requests for each in calls) == 1


async def test_tokens_that_burn_gas_do_not_hide_others_and_an_unreadable_one_fails_the_question(nodal: Nodal) -> None:
    held = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    nodal.chain.mint(held, OWNER, 5)
    burning = nodal.chain.deploy("GasBurnerToken")
    answers = run(nodal)
    answer = await answers(balances_of(held, burning))
    assert answer == Answer(success=False, error=f"token {burning.lower()} on chain {CHAIN_ID} gives no balance")


async def test_a_price_is_that_of_the_feed_at_the_block(nodal: Nodal) -> None:
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    feed = nodal.feed(345_012_345_678, nodal.newest_s)
    pins = nodal.pins(feeds={token: (feed, 3_600)})
    answers = run(nodal, pins)
    nodal.update(feed, 1, nodal.newest_s)
    assert (await answers(price_of(token))).data == [str(345_012_345_678 * 10**10)]
    (kept,) = answers.inputs
    assert isinstance(kept.calls, list)
    assert [(each.to, each.data) for each in kept.calls] == [(feed, "0xfeaf968c"), (feed, "0x313ce567")]
    assert kept.block == answers.blocks[0]


async def test_a_stale_feed_gives_no_price(nodal: Nodal) -> None:
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    feed = nodal.feed(100, nodal.newest_s - 3_600 - 301)
    answers = run(nodal, nodal.pins(feeds={token: (feed, 3_600)}))
    answer = await answers(price_of(token))
    assert answer.error == f"the price feed of token {token.lower()} on chain {CHAIN_ID} is not up to date"


async def test_a_price_of_an_api_has_no_block(nodal: Nodal) -> None:
    token = Address.parse("0x" + "cd" * 20)
    api = StaticPrices({(CHAIN_ID, token): 1.5})
    answers = run(nodal, api=api)
    assert (await answers(price_of(token))).data == [str(15 * DOLLAR // 10)]
    (kept,) = answers.inputs
    assert not kept.block
    assert not kept.calls
    assert answers.blocks == []


async def test_a_minimum_in_dollars_leaves_out_what_is_worth_less(nodal: Nodal) -> None:
    dear, cheap = (nodal.chain.deploy("MockERC20", "Test", "T", 6) for _ in range(2))
    feeds = {token: (nodal.feed(price, nodal.newest_s), 3_600) for token, price in ((dear, 2 * 10**8), (cheap, 10**8))}
    for token in (dear, cheap):
        nodal.chain.mint(token, OWNER, 3_000_000)
    answers = run(nodal, nodal.pins(feeds=feeds))
    answer = await answers(balances_of(dear, cheap, usdMinAmount=str(6 * DOLLAR)))
    assert [each["token"]["address"] for each in answer.data[0]["balances"]] == [dear.lower()]
    answer = await answers(balances_of(dear, cheap, usdMinAmount=str(6 * DOLLAR + 1)))
    assert answer.data[0]["balances"] == []


async def test_what_is_never_answered_is_refused_and_kept(nodal: Nodal) -> None:
    token, second = Address.parse("0x" + "cd" * 20), nodal.newest_s
    answers = run(nodal)
    deny = Question("relevantTokens", {**balances_of(token).params, "tokenFilter": "1"})
    other_time = price_of(token, timestamp=str(1_000 * second + 1))
    elsewhere = Question("evmCall", {"to": token, "chainId": "5", "data": "0x"})
    refused = [
        Question("subgraph", {"subgraphId": "Qm", "query": "{}"}),
        Question("svmAccountsInfo", {"publicKeys": ["a\0"]}),
        Question("api", {"url": "https://example.org/" + "a" * 10_000}),
        deny, other_time, elsewhere, price_of(token),
        Question("evmCall", {"to": "nothing", "chainId": str(CHAIN_ID), "data": "0x"}),
    ]  # fmt: skip
    for question in refused:
        answer = await answers(question)
        assert not answer.success
        assert answer.error
    assert [each.query for each in answers.inputs] == [each.query for each in refused]
    assert await answers(price_of(token, timestamp=str(1_000 * second))) == await answers(price_of(token))
    assert len(answers.inputs[2].params["url"]) == 500
    assert answers.inputs[1].params["publicKeys"] == ["a\ufffd"]
    assert answers.blocks == [] or answers.blocks[0].chain_id == CHAIN_ID


async def test_questions_beyond_what_a_record_can_hold_are_refused(nodal: Nodal) -> None:
    answers = run(nodal)
    fits, beyond = call_of(OWNER, b"a" * 12_000), call_of(OWNER, b"b" * 12_000)
    assert (await answers(fits)).success
    assert "characters together" in (await answers(beyond)).error
    assert len(answers.inputs[1].params["data"]) == 500
