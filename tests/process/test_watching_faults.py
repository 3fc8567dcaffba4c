"""Nodes that refuse, lie, hang, or lag: the end is always the state of the canonical chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chain import CHAIN_TESTS, LocalChain
from muniment.operate.watch.limits import WatchLimits
from muniment.protocol.evm.address import Address
from rpc_proxy import RpcProxy
from watching_world import (
    CHAIN_ID,
    Registry,
    canonical,
    chain,
    chains_file,
    execute,
    fail,
    intent_body,
    registry,
    settler,
)

__all__ = ["chain", "settler"]  # the fixtures
pytestmark = CHAIN_TESTS

SECOND_CHAIN = 137
Json = dict[str, Any]
Change = Callable[[Json, Json], Json]
# No test waits long for a node to rest, however many of its answers were late.
LIMITS = WatchLimits(rest_seconds_first=0.02, rest_seconds_max=0.1)


async def follow(
    tmp_path: Path, settler: Address, urls: list[str], body: Json, limits: WatchLimits = LIMITS
) -> tuple[bool, str, list[Any]]:
    """Whether the head was reached, the status of a submitted intent, and the stored events."""
    async with registry(tmp_path, chains_file(tmp_path, {CHAIN_ID: (settler, urls)}), limits=limits) as watched:
        intent = await watched.record(body)
        reached = await watched.follow()
        return reached, await watched.status(intent), await watched.executions()


def logs_range(call: Json) -> int:
    """How many blocks are asked for; 0 when the call asks for no logs."""
    if call["method"] != "eth_getLogs":
        return 0
    asked = call["params"][0]
    return int(asked["toBlock"], 16) - int(asked["fromBlock"], 16) + 1


def refuses_more_than(blocks: int, answer: Json) -> Change:
    def change(call: Json, given: Json) -> Json:
        return {"jsonrpc": "2.0", "id": call["id"], **answer} if logs_range(call) > blocks else given

    return change


@pytest.mark.parametrize(
    "answer",
    [{"error": {"code": -32005, "message": "query exceeds max block range"}}, {"result": " " * (9 * 2**20)}],
    ids=["refused", "too large"],
)
async def test_ranges_shrink_until_the_node_takes_them(
    tmp_path: Path, chain: LocalChain, settler: Address, answer: Json
) -> None:
    body = intent_body(settler, 1)
    execute(chain, body)
    chain.ask("anvil_mine", hex(60))
    with RpcProxy(chain.url, change=refuses_more_than(20, answer)) as proxy:
        reached, status, stored = await follow(tmp_path, settler, [proxy.url], body)
        sizes = [logs_range(call) for calls in proxy.requests for call in calls if call["method"] == "eth_getLogs"]
    assert (reached, status, stored) == (True, "succeeded", canonical(chain, settler))
    assert sizes[0] > 20
    assert max(sizes[8:], default=0) <= 40


@pytest.mark.parametrize(
    "reply",
    [(500, {}, b"{}"), (200, {}, b"garbage"), (200, {}, b"[]"), (429, {}, b""), (302, {"location": "/"}, b"")],
    ids=["500", "garbage", "empty batch", "429", "redirect"],
)
async def test_a_node_that_fails_is_left_for_the_next(
    tmp_path: Path, chain: LocalChain, settler: Address, reply: Any
) -> None:
    body = intent_body(settler, 1)
    execute(chain, body)
    with RpcProxy(reply=reply) as proxy:
        reached, status, stored = await follow(tmp_path, settler, [proxy.url, chain.url], body)
    assert (reached, status, stored) == (True, "succeeded", canonical(chain, settler))


async def test_without_a_node_that_answers_nothing_is_followed(tmp_path: Path, settler: Address) -> None:
    with RpcProxy(reply=(500, {}, b"")) as proxy:
        reached, status, stored = await follow(tmp_path, settler, [proxy.url], intent_body(settler, 1))
        assert len(proxy.requests) == 3
    assert (reached, status, stored) == (False, "submitted", [])


async def test_a_node_of_another_chain_is_not_used(tmp_path: Path, chain: LocalChain, settler: Address) -> None:
    body = intent_body(settler, 1)
    execute(chain, body)
    async with registry(tmp_path, chains_file(tmp_path, {SECOND_CHAIN: (settler, [chain.url])})) as watched:
        intent = await watched.record(body)
        assert not await watched.follow()
        assert await watched.status(intent) == "submitted"
        assert await watched.executions(SECOND_CHAIN) == []


@pytest.mark.parametrize(
    "members",
    [
        {"address": "0x" + "77" * 20}, {"blockHash": "0x" + "77" * 32}, {"blockHash": "0x77"},
        {"blockNumber": "0xffffff"}, {"blockNumber": None}, {"blockNumber": 7}, {"transactionHash": "0x77"},
        {"logIndex": None}, {"removed": True}, {"topics": ["0x" + "77" * 32] * 5},
    ],
    ids=[
        "address", "block hash", "short hash", "number", "pending", "number as a number", "short transaction",
        "no index", "removed", "five topics",
    ],
)  # fmt: skip
async def test_an_odd_log_is_passed_over_and_the_others_are_stored(
    tmp_path: Path, chain: LocalChain, settler: Address, members: Json
) -> None:
    body = intent_body(settler, 1)
    execute(chain, body)

    def change(call: Json, given: Json) -> Json:
        if call["method"] != "eth_getLogs":
            return given
        return {**given, "result": [each for log in given["result"] for each in ({**log, **members}, log)]}

    with RpcProxy(chain.url, change=change) as proxy:
        reached, status, stored = await follow(tmp_path, settler, [proxy.url], body)
    assert (reached, status, stored) == (True, "succeeded", canonical(chain, settler))


async def test_zero_with_another_zero_is_a_number(tmp_path: Path, chain: LocalChain, settler: Address) -> None:
    body = intent_body(settler, 1)
    execute(chain, body)

    def padded(call: Json, given: Json) -> Json:
        if call["method"] != "eth_getLogs":
            return given
        return {**given, "result": [{**log, "logIndex": "0x0" + log["logIndex"][2:]} for log in given["result"]]}

    with RpcProxy(chain.url, change=padded) as proxy:
        reached, status, stored = await follow(tmp_path, settler, [proxy.url], body)
    assert (reached, status, stored) == (True, "succeeded", canonical(chain, settler))


@pytest.mark.parametrize(
    "change",
    [
        lambda call, given: {**given, "result": {}} if call["method"] == "eth_getLogs" else given,
        lambda call, given: {**given, "result": [None]} if call["method"] == "eth_getLogs" else given,
        lambda call, given: {**given, "result": None} if call["method"] == "eth_blockNumber" else given,
        lambda call, given: {**given, "result": {}} if call["method"] == "eth_getBlockByNumber" else given,
        lambda call, given: {**given, "result": "0x"} if call["method"] == "eth_chainId" else given,
    ],
    ids=["no list", "no log", "no number", "no block", "no chain id"],
)  # fmt: skip
async def test_an_answer_that_does_not_fit_is_refused_whole(
    tmp_path: Path, chain: LocalChain, settler: Address, change: Change
) -> None:
    body = intent_body(settler, 1)
    execute(chain, body)
    with RpcProxy(chain.url, change=change) as proxy:
        reached, status, stored = await follow(tmp_path, settler, [proxy.url], body)
    assert (reached, status, stored) == (False, "submitted", [])


@pytest.mark.parametrize(
    "members",
    [{"blockHash": "0x" + "77" * 32}, {"transactionHash": "0x" + "77" * 32}, {"blockNumber": None}],
    ids=["block hash", "transaction hash", "pending"],
)
async def test_a_receipt_that_does_not_fit_is_refused(
    tmp_path: Path, chain: LocalChain, settler: Address, members: Json
) -> None:
    body = intent_body(settler, 1, transactionHash=fail(chain, settler))

    def change(call: Json, given: Json) -> Json:
        if call["method"] != "eth_getTransactionReceipt":
            return given
        return {**given, "result": {**given["result"], **members}}

    with RpcProxy(chain.url, change=change) as proxy:
        reached, status, _ = await follow(tmp_path, settler, [proxy.url], body)
    assert (reached, status) == (False, "submitted")


async def test_the_same_log_twice_is_stored_once(tmp_path: Path, chain: LocalChain, settler: Address) -> None:
    body = intent_body(settler, 1, events=2)
    execute(chain, body)

    def twice(call: Json, given: Json) -> Json:
        return {**given, "result": given["result"] * 2} if call["method"] == "eth_getLogs" else given

    with RpcProxy(chain.url, change=twice) as proxy:
        reached, status, stored = await follow(tmp_path, settler, [proxy.url], body)
    assert (reached, status, stored) == (True, "succeeded", canonical(chain, settler))


async def test_many_facts_of_one_range_are_stored_in_pieces(
    tmp_path: Path, chain: LocalChain, settler: Address
) -> None:
    bodies = [intent_body(settler, number) for number in range(4)]
    for body in bodies:
        execute(chain, body)
    reached, status, stored = await follow(tmp_path, settler, [chain.url], bodies[3], WatchLimits(facts_per_write=2))
    assert (reached, status, stored) == (True, "succeeded", canonical(chain, settler))


async def test_a_chain_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    with LocalChain(CHAIN_ID) as chain:
        settler = chain.deploy("MiniSettlerLegacy")
        snapshots = [chain.ask("evm_snapshot")]
        body = intent_body(settler, 1)
        execute(chain, body)

        def reorganised(call: Json, given: Json) -> Json:
            if call["method"] == "eth_getLogs" and snapshots:  # its logs are read, then they are gone
                chain.ask("evm_revert", snapshots.pop())
                chain.ask("anvil_mine", "0x3", "0x7")
            return given

        with RpcProxy(chain.url, change=reorganised) as proxy:
            async with registry(tmp_path, chains_file(tmp_path, {CHAIN_ID: (settler, [proxy.url])})) as watched:
                intent = await watched.record(body)
                assert await watched.follow()
                assert await watched.status(intent) == "submitted"
                assert await watched.executions() == []
                # Nothing had to be taken back: of the first reading nothing was stored.
                assert [step.facts for step in watched.steps] == [0]
        assert snapshots == []


async def test_a_fault_of_one_chain_does_not_stop_another(tmp_path: Path, chain: LocalChain, settler: Address) -> None:
    body = intent_body(settler, 1)
    execute(chain, body)
    settlers = {SECOND_CHAIN: (settler, ["http://127.0.0.1:1"]), CHAIN_ID: (settler, [chain.url])}
    async with registry(tmp_path, chains_file(tmp_path, settlers), limits=LIMITS) as watched:
        intent = await watched.record(body)
        assert not await watched.follow()
        assert await watched.status(intent) == "succeeded"


async def until(watched: Registry, intent: str, status: str) -> None:
    async with asyncio.timeout(60):
        while await watched.status(intent) != status:
            await asyncio.sleep(0.05)


async def asked_again(proxy: RpcProxy) -> None:
    """Wait until the watcher has asked twice from now on: it asks one thing after the other."""
    before = len(proxy.requests)
    async with asyncio.timeout(60):
        while len(proxy.requests) < before + 2:
            await asyncio.sleep(0.01)


async def test_a_node_that_hangs_or_fails_for_a_while_is_asked_again(
    tmp_path: Path, chain: LocalChain, settler: Address
) -> None:
    limits = replace(LIMITS, answer_seconds_max=0.5)
    bodies = [intent_body(settler, number) for number in range(3)]
    with RpcProxy(chain.url) as proxy:
        file = chains_file(tmp_path, {CHAIN_ID: (settler, [proxy.url])})
        async with registry(tmp_path, file, limits=limits) as watched:
            intents = [await watched.record(body) for body in bodies]
            watching = asyncio.create_task(watched.watcher().watch())
            await asyncio.to_thread(execute, chain, bodies[0])
            await until(watched, intents[0], "succeeded")
            chain.pause()
            await asyncio.sleep(1)
            chain.resume()
            await asyncio.to_thread(execute, chain, bodies[1])
            await until(watched, intents[1], "succeeded")
            proxy.reply = (500, {}, b"")
            await asked_again(proxy)  # so no answer of before is on its way any more
            await asyncio.to_thread(execute, chain, bodies[2])
            await asked_again(proxy)
            assert await watched.status(intents[2]) == "submitted"
            proxy.reply = None
            await until(watched, intents[2], "succeeded")
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            assert await watched.executions() == canonical(chain, settler)


async def test_a_node_that_was_down_and_is_back_is_followed_on(tmp_path: Path) -> None:
    with LocalChain(CHAIN_ID, state=tmp_path / "chain.json") as chain:
        settler = chain.deploy("MiniSettlerLegacy")
        bodies = [intent_body(settler, number) for number in range(2)]
        async with registry(
            tmp_path, chains_file(tmp_path, {CHAIN_ID: (settler, [chain.url])}), limits=LIMITS
        ) as watched:
            intents = [await watched.record(body) for body in bodies]
            execute(chain, bodies[0])
            assert await watched.follow()
            chain.interrupt()
            assert not await watched.follow()
            assert await watched.status(intents[0]) == "succeeded"
            chain.start()
            execute(chain, bodies[1])
            assert await watched.follow()
            assert [await watched.status(intent) for intent in intents] == ["succeeded"] * 2
            assert [step.rolled_back for step in watched.steps if step.rolled_back is not None] == []
            assert await watched.executions() == canonical(chain, settler)
