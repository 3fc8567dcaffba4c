"""Nodes of which one invents, omits, lags, refuses or rests: no single one makes, hides or stops an event."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from chain import SECONDS_MAX
from made_up_chain import (
    BEGAN_S,
    CONTRACT,
    PING,
    Change,
    Json,
    MadeUpChain,
    MadeUpNode,
    Read,
    ReadingWorld,
    hash_of,
    invents,
    omits,
    world,
)
from muniment.chains import agreeing, disputes, log_reader
from muniment.chains.agreeing import agreed
from muniment.chains.disputes import DISPUTES_MAX
from muniment.chains.nodes import Node
from muniment.chains.range_views import LOGS_MAX
from muniment.outgoing import Unreachable

__all__ = ["world"]

MINUTE_S = 60


def refuses(message: str = "no") -> Change:
    def change(method: str, _params: list[Any], result: Any) -> Any:
        return {"error": {"code": -32000, "message": message}} if method == "eth_getLogs" else result

    return change


def fails(method: str, _params: list[Any], result: Any) -> Any:
    return {} if method == "eth_blockNumber" else result


def behind(node: MadeUpNode) -> MadeUpNode:
    node.lag = lambda: 50
    return node


async def over_time(world: ReadingWorld, read: Read, seconds: int = 4, steps: int = 10) -> list[int]:
    """Read to the head every few seconds, as a relayer does, which waits where nodes rest."""
    for _ in range(steps):
        with suppress(Unreachable):
            await read.to_head()
        world.now_s += seconds
    return [log.block_number for log in read.logs]


ATTACKS: list[Any] = [
    pytest.param(invents(), id="invents"), pytest.param(invents(1_000), id="invents a thousand"),
    pytest.param(invents(has_receipts=True), id="invents with receipts"),
    pytest.param(invents(300, has_receipts=True), id="invents hundreds with receipts"),
    pytest.param(omits(), id="omits"), pytest.param(omits(in_receipts=True), id="omits in receipts"),
    pytest.param(refuses(), id="refuses"), pytest.param(fails, id="fails"),
]  # fmt: skip


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "second", "third"])
@pytest.mark.parametrize("attack", ATTACKS)
async def test_of_three_nodes_one_stops_makes_and_hides_nothing(
    world: ReadingWorld, attack: Change, place: int
) -> None:
    nodes = [world.node(attack if each == place else None) for each in range(3)]
    read = world.reader(*nodes)
    for _ in range(3):
        log = world.chain.add()
        await over_time(world, read, steps=3)
        assert read.logs[-1].transaction_hash == log["transactionHash"]
    assert ([each.block_number for each in read.logs], read.given_up) == ([101, 102, 103], [])
    assert read.disputes.count == 0


def fills_ranges(chain: MadeUpChain) -> Change:
    """In each range there are more logs than are read in one step."""

    def change(method: str, params: list[Any], result: Any) -> Any:
        if method != "eth_getLogs":
            return result
        last = int(params[0]["toBlock"], 16)
        log = {
            "address": CONTRACT.lower(), "topics": [PING], "data": "0x", "blockNumber": hex(last),
            "blockHash": chain.hash(last), "removed": False,
        }  # fmt: skip
        made = ({"transactionHash": hash_of(f"made {last} {n}"), "logIndex": hex(n)} for n in range(LOGS_MAX + 1))
        return [*result, *({**log, **each} for each in made)]

    return change


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "second", "third"])
async def test_of_three_nodes_one_that_fills_each_range_slows_down_no_other(world: ReadingWorld, place: int) -> None:
    nodes = [world.node(fills_ranges(world.chain) if each == place else None) for each in range(3)]
    read = world.reader(*nodes)
    for _ in range(5):
        world.chain.head += 1_000
        world.chain.add()
    while not (step := await read.step()).at_head:
        assert step.excess == ()
    assert len(read.logs) == 5
    assert max(node.asked("eth_getLogs") for node in nodes) < 15


async def test_of_two_nodes_one_that_fills_each_range_makes_no_contract_busy(world: ReadingWorld) -> None:
    read = world.reader(world.node(), world.node(fills_ranges(world.chain)))
    world.chain.head += 20
    world.chain.add()
    (log,) = (await read.step()).excess
    assert (log.block_number, log.block_time_s) == (121, BEGAN_S + 121)


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "second", "third"])
async def test_of_three_nodes_one_may_lag(world: ReadingWorld, place: int) -> None:
    nodes = [world.node() for _ in range(3)]
    behind(nodes[place])
    read = world.reader(*nodes)
    world.chain.add()
    assert await read.to_head() == [101]
    assert read.failing == []


async def test_a_third_node_that_does_not_answer_is_not_waited_for(
    world: ReadingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "GRACE_S", 0.0)
    released = threading.Event()

    def hangs(_method: str, _params: list[Any], result: Any) -> Any:
        released.wait(SECONDS_MAX)
        return result

    read = world.reader(world.node(hangs), world.node(), world.node())
    world.chain.add()
    try:
        assert await read.to_head() == [101]
    finally:
        released.set()


@pytest.mark.parametrize("slow", ["eth_getLogs", "eth_getBlockByHash"])
async def test_a_node_that_is_slow_with_logs_is_not_waited_for_where_two_others_agree(
    world: ReadingWorld, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    monkeypatch.setattr(agreeing, "SLOW_S", 0.0)
    released = threading.Event()

    def hangs(method: str, _params: list[Any], result: Any) -> Any:
        if method == slow:
            released.wait(SECONDS_MAX)
        return result

    read = world.reader(world.node(hangs), world.node(), world.node())
    world.chain.add()
    try:
        async with asyncio.timeout(SECONDS_MAX / 2):
            assert await read.to_head() == [101]
    finally:
        released.set()
    assert read.failing == []


async def test_a_look_has_its_own_time(world: ReadingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "LOOK_S", 0.0)
    read = world.reader(world.node(), world.node())
    with pytest.raises(Unreachable):
        await read.step()
    assert (read.failing, read.reader._disputes.failures["timeout"]) == ([1, 2], 2)


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_nodes_agree_without_the_one_that_is_slow(
    world: ReadingWorld, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr(agreeing, "SLOW_S", 0.0)
    nodes, ends = world.reader(*(world.node() for _ in range(3))).reader.nodes, asyncio.Event()

    async def ask(node: Node) -> int:
        if node.number == place + 1:
            await ends.wait()
        return 7

    assert await agreed(nodes, ask) == 7
    monkeypatch.setattr(agreeing, "AGREED_S", 0.0)
    with pytest.raises(Unreachable, match="no answer of 2 nodes"):
        await agreed(nodes, lambda _node: ends.wait())


@pytest.mark.parametrize("rests_s", [(0.05,), (0.05, 0), (0.05, 0.1), (0, 0.05, 3_600), (3_600, 0.1, 0.05)])
async def test_a_short_rest_of_too_many_nodes_is_waited_for(world: ReadingWorld, rests_s: Sequence[float]) -> None:
    nodes = world.reader(*(world.node() for _ in rests_s)).reader.nodes
    nodes.now_s = time.monotonic
    for node, rest_s in zip(nodes.nodes, rests_s, strict=True):
        node.rests_until_s = time.monotonic() + rest_s

    async def ask(_node: Node) -> int:
        return 7

    assert await agreed(nodes, ask) == 7


@pytest.mark.parametrize("rests_s", [(3_600,), (0.05, 3_600), (3_600, 0.05, 3_600)])
async def test_a_long_rest_of_too_many_nodes_is_not_waited_for(
    world: ReadingWorld, monkeypatch: pytest.MonkeyPatch, rests_s: Sequence[float]
) -> None:
    nodes = world.reader(*(world.node() for _ in rests_s)).reader.nodes
    for node, rest_s in zip(nodes.nodes, rests_s, strict=True):
        node.rests_until_s = nodes.now_s() + rest_s

    async def sleep(_seconds: float) -> None:
        pytest.fail("waited")

    async def ask(_node: Node) -> int:
        pytest.fail("asked")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(Unreachable, match="too few nodes"):
        await agreed(nodes, ask)


@pytest.mark.parametrize("place", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("count", [1, 1_000])
async def test_of_two_nodes_one_that_invents_fails_and_the_true_log_counts(
    world: ReadingWorld, place: int, count: int
) -> None:
    nodes = [world.node(invents(count) if each == place else None) for each in range(2)]
    read = world.reader(*nodes)
    world.chain.add()
    assert await read.to_head() == [101]
    assert (read.failing, read.disputes.count, read.given_up) == ([place + 1], 0, [])
    # Its first receipt tells: nothing more is asked.
    assert [node.asked("eth_getTransactionReceipt") for node in nodes] == [1, 1]


@pytest.mark.parametrize("place", [0, 1], ids=["first", "second"])
async def test_of_two_nodes_one_that_leaves_logs_out_fails_and_they_count(world: ReadingWorld, place: int) -> None:
    read = world.reader(*(world.node(omits() if each == place else None) for each in range(2)))
    for _ in range(20):
        world.chain.add()
    assert await read.to_head() == list(range(101, 121))
    assert (read.failing, read.disputes.count) == ([place + 1], 0)


async def test_many_logs_that_a_node_leaves_out_of_one_range_are_one_failure(world: ReadingWorld) -> None:
    read = world.reader(world.node(omits()), world.node())
    for _ in range(20):
        world.chain.add()
    assert await read.to_head() == list(range(101, 121))
    node, failures = read.reader.nodes.nodes[0], read.disputes.failures["omits"]
    assert (node.failures <= 1, failures) == (True, 20)
    assert node.rests_until_s - read.reader.nodes.now_s() <= 1


async def test_while_one_of_two_nodes_rests_reading_waits(world: ReadingWorld) -> None:
    read = world.reader(world.node(), world.node())
    second = read.reader.nodes.nodes[1]
    world.chain.add()
    read.reader.nodes.failed(second, "timeout")
    with pytest.raises(Unreachable):
        await read.step()
    world.now_s = second.rests_until_s
    assert await read.to_head() == [101]


async def test_of_two_nodes_the_one_that_lags_is_waited_for(world: ReadingWorld) -> None:
    late = world.node()
    read = world.reader(world.node(), late)
    late.lag = lambda: 1
    world.chain.add()
    assert await read.to_head() == []
    late.lag = lambda: 0
    assert await read.to_head() == [101]


async def test_a_log_that_stays_disputed_makes_no_event_and_stops_none(world: ReadingWorld) -> None:
    read = world.reader(world.node(), world.node(invents(has_receipts=True)))
    world.chain.add()
    assert await read.to_head() == [101]
    assert (read.disputes.count, read.disputes.oldest_block, read.failing) == (1, 101, [])
    world.chain.add()
    assert await over_time(world, read, seconds=MINUTE_S, steps=20) == [101, 102]
    assert read.disputes.count == 2


async def test_a_disputed_log_is_asked_for_less_and_less_often_and_then_given_up(world: ReadingWorld) -> None:
    nodes = world.node(), world.node(invents(has_receipts=True))
    read = world.reader(*nodes)
    world.chain.add()
    await over_time(world, read, seconds=MINUTE_S, steps=59)
    assert 10 < nodes[0].asked("eth_getTransactionReceipt") < 25
    assert read.given_up == []
    await over_time(world, read, seconds=MINUTE_S, steps=3)
    assert [log.block_number for log in read.given_up] == [101]
    assert (read.disputes.count, read.disputes.given_up) == (0, 1)


async def test_a_dispute_that_is_settled_later_gives_its_log(world: ReadingWorld) -> None:
    late = world.node(omits(in_receipts=True))
    read = world.reader(world.node(), late)
    log = world.chain.add()
    assert await read.to_head() == []
    late.change = lambda _method, _params, result: result
    assert await over_time(world, read) == [101]
    assert read.logs[0].transaction_hash == log["transactionHash"]
    assert read.disputes.count == 0


async def test_a_settled_log_that_could_not_be_planned_is_given_again(world: ReadingWorld) -> None:
    late = world.node(omits(in_receipts=True))
    read = world.reader(world.node(), late)
    world.chain.add()
    await read.to_head()
    late.change = lambda _method, _params, result: result
    assert await over_time(world, read) == [101]
    read.reader.go_back_to(read.reader.next_block or 0)
    assert await over_time(world, read) == [101]
    read.logs.clear()
    read.reader.go_back_to(102)
    await read.to_head()
    assert read.logs == []


async def test_a_dispute_that_is_given_up_is_told_again_when_it_could_not_be_told(world: ReadingWorld) -> None:
    read = world.reader(world.node(), world.node(invents(has_receipts=True)))
    world.chain.add()
    await read.to_head()
    world.chain.head += 3_601
    assert (await read.step()).disputed_out == tuple(read.given_up)
    read.reader.go_back_to(read.reader.next_block or 0)
    await read.step()
    assert [log.block_number for log in read.given_up] == [101, 101]
    await read.step()
    assert len(read.given_up) == 2


async def test_no_more_logs_of_one_node_are_disputed_than_a_bound_and_others_have_room(world: ReadingWorld) -> None:
    inventing = invents(400, has_receipts=True)
    nodes = world.node(), world.node(inventing)
    read = world.reader(*nodes)
    for number in range(1, 4):
        world.chain.add()
        assert await read.to_head() == list(range(101, 101 + number))
    assert (read.disputes.count, len(read.given_up)) == (DISPUTES_MAX // 2, 3 * 400 - DISPUTES_MAX // 2)
    nodes[1].change = omits(in_receipts=True)
    world.chain.add()
    await read.to_head()
    assert read.disputes.count == DISPUTES_MAX // 2 + 1
    nodes[1].change = inventing
    assert await over_time(world, read, steps=4) == [101, 102, 103, 104]


async def test_of_three_nodes_one_with_too_many_disputed_logs_rests(world: ReadingWorld) -> None:
    """The third node lags, so it cannot settle."""
    nodes = world.node(), world.node(invents(600, has_receipts=True)), behind(world.node())
    read = world.reader(*nodes)
    world.chain.add()
    assert await read.to_head() == [101]
    assert (read.failing, read.disputes.count) == ([2], DISPUTES_MAX // 2)


async def test_a_receipt_that_takes_long_holds_up_no_step_and_counts_when_it_comes(
    world: ReadingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disputes, "SETTLE_S", 0.0001)
    released = threading.Event()
    leaves_out = omits()

    def hangs(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getTransactionReceipt":
            released.wait(SECONDS_MAX)
        return leaves_out(method, params, result)

    read = world.reader(world.node(), world.node(hangs))
    for _ in range(3):
        world.chain.add()
        assert await read.to_head() == []
    assert read.disputes.count == 3
    released.set()
    async with asyncio.timeout(SECONDS_MAX):
        while len(await over_time(world, read, steps=1)) < 3:
            await asyncio.sleep(0.01)
    assert (sorted(log.block_number for log in read.logs), read.disputes.count) == ([101, 102, 103], 0)


async def test_a_dispute_of_a_block_that_a_fork_took_away_ends(world: ReadingWorld) -> None:
    read = world.reader(world.node(), world.node(invents(has_receipts=True)))
    world.chain.add()
    await read.to_head()
    world.chain.fork_at, world.chain.fork = 101, "other"
    assert await over_time(world, read) == [101]
    assert (read.disputes.count, read.failing, read.forks) == (0, [], [101])


async def test_nodes_on_two_forks_are_waited_for(world: ReadingWorld) -> None:
    other = MadeUpChain(fork_at=101, fork="other")
    away = world.node(chain=other)
    read = world.reader(world.node(), away)
    world.chain.add()
    other.add()
    assert await read.to_head() == []
    assert read.failing == []
    world.now_s += 10
    with pytest.raises(Unreachable):
        await read.step()
    away.chain = world.chain
    assert await read.to_head() == [101]


async def test_a_fork_that_both_nodes_have_is_taken_back(world: ReadingWorld) -> None:
    other = MadeUpChain(fork_at=101, fork="other")
    nodes = world.node(), world.node()
    read = world.reader(*nodes)
    world.chain.add()
    await read.to_head()
    other.add(data="0x01")
    nodes[0].chain = other
    await read.to_head()
    assert (read.forks, [log.data for log in read.logs]) == ([], ["0x"])
    nodes[1].chain = other
    await read.to_head()
    assert (read.forks, [log.data for log in read.logs]) == ([101], ["0x", "0x01"])


async def test_a_time_in_which_nodes_differ_is_disputed(world: ReadingWorld) -> None:
    def earlier(method: str, _params: list[Any], result: Any) -> Any:
        if method.startswith("eth_getBlockBy") and result:
            return {**result, "timestamp": hex(BEGAN_S)}
        return result

    read = world.reader(world.node(), world.node(earlier))
    world.chain.add()
    assert await read.to_head() == []
    assert read.disputes.count == 1
    three = world.reader(world.node(), world.node(earlier), world.node(), start=101)
    assert await three.to_head() == [101]
    assert (three.logs[0].block_time_s, three.logs[0].ordinal, three.disputes.count) == (BEGAN_S + 101, 0, 0)


async def test_a_node_without_the_end_of_a_range_has_no_vote_in_it(world: ReadingWorld) -> None:
    def lacks(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getLogs":
            return []
        return None if method == "eth_getBlockByNumber" and int(params[0], 16) > 100 else result

    read = world.reader(world.node(), world.node(lacks))
    world.chain.add()
    assert await read.to_head() == []
    assert (read.failing, read.disputes.count, read.reader.next_block) == ([], 0, 101)


async def test_equal_logs_of_a_transaction_keep_their_numbers_while_one_is_disputed(world: ReadingWorld) -> None:
    first: list[Json] = []

    def hides_first(method: str, _params: list[Any], result: Any) -> Any:
        if method == "eth_getLogs":
            return [each for each in result if each not in first]
        if method == "eth_getTransactionReceipt":
            return {**result, "logs": [each for each in result["logs"] if each not in first]}
        return result

    late = world.node(hides_first)
    read = world.reader(world.node(), late)
    first.append(world.chain.add(transaction=hash_of("one")))
    world.chain.add(block=world.chain.head, transaction=hash_of("one"))
    await read.to_head()
    read.reader.go_back_to(101)
    await read.to_head()
    assert [(log.index, log.ordinal) for log in read.logs] == [(1, 1), (1, 1)]
    first.clear()
    await over_time(world, read)
    assert [(log.index, log.ordinal) for log in read.logs] == [(1, 1), (1, 1), (0, 0)]
