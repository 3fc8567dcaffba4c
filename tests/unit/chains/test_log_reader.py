"""Logs of one node: what is odd is passed over, what lags is waited for, and nothing is read twice or lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from chain import SECONDS_MAX
from made_up_chain import BEGAN_S, CONTRACT, PING, Change, Json, ReadingWorld, hash_of, world
from muniment.chains import agreeing
from muniment.chains.log_reader import SeenLog
from muniment.chains.logs import VALUES_MAX, LogFilter
from muniment.chains.range_views import EXCESS_MAX, LOGS_MAX
from muniment.chains.rpc import CALLS_MAX
from muniment.outgoing import Unreachable
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from rpc_proxy import Reply

__all__ = ["world"]

# In one request.
BLOCKS_AT_ONCE = (CALLS_MAX - 1) // 2


def odd(**members: object) -> Json:
    """The members in which a log that a node lists beside the good ones differs from them."""
    return {"transactionHash": hash_of("odd"), **members}


def lists_beside(members: Json) -> Change:
    def change(method: str, _params: object, result: object) -> object:
        if method != "eth_getLogs" or not isinstance(result, list) or not result:
            return result
        return [{**result[0], **members}, *result]

    return change


@pytest.mark.parametrize(
    "members",
    [
        odd(removed=True), odd(removed=True, blockHash=hash_of("elsewhere")), odd(blockHash=hash_of("elsewhere")),
        odd(blockHash=None), odd(blockNumber=None), odd(logIndex=None), odd(transactionHash=None), odd(topics=None),
        odd(data=None), odd(address=None), odd(topics=[PING] * 5), odd(topics=["0x01"]), odd(data="0x1"),
        odd(address="0xab"), odd(blockHash="0x77"), odd(transactionHash="0x77"), odd(blockNumber=7),
        odd(address="0x" + "77" * 20), odd(topics=[]), odd(topics=[hash_of("other")]), odd(blockNumber="0xffffff"),
        odd(logIndex="0x" + "f" * 20),
    ],
    ids=lambda members: ", ".join(f"{name} {str(value)[:12]}" for name, value in list(members.items())[-2:]),
)  # fmt: skip
async def test_an_odd_log_is_passed_over_and_the_range_goes_on(world: ReadingWorld, members: Json) -> None:
    read = world.reader(world.node(lists_beside(members)))
    log = world.chain.add()
    assert await read.to_head() == [101]
    assert read.logs[0].transaction_hash == log["transactionHash"]
    assert (sum(read.reader.odd_logs.values()), read.failing) == (1, [])


async def test_an_odd_log_alone_does_not_stop_the_range(world: ReadingWorld) -> None:
    read = world.reader(world.node())
    world.chain.add(removed=True)
    assert (await read.to_head(), read.failing, read.reader.next_block) == ([], [], 102)


@pytest.mark.parametrize("answer", [["0x1"], [None, 7], [{"logIndex": "0x0"}] * 10], ids=["texts", "none", "many"])
async def test_a_node_that_lists_no_logs_at_all_fails(world: ReadingWorld, answer: list[object]) -> None:
    node = world.node(lambda method, _params, result: answer if method == "eth_getLogs" else result)
    read = world.reader(node)
    world.chain.add()
    with pytest.raises(Unreachable):
        await read.step()
    assert (read.failing, read.reader.next_block) == ([1], 101)


async def test_a_node_that_lists_much_that_is_no_log_fails_whatever_else_it_lists(world: ReadingWorld) -> None:
    def filled(method: str, _params: object, result: object) -> object:
        return [*result, *[0] * 2_000] if method == "eth_getLogs" and isinstance(result, list) and result else result

    read = world.reader(world.node(filled))
    world.chain.add()
    with pytest.raises(Unreachable):
        await read.step()
    assert (read.failing, read.reader.next_block) == ([1], 101)


async def test_quantities_with_leading_zeros_are_numbers(world: ReadingWorld) -> None:
    def padded(method: str, _params: object, result: object) -> object:
        if method == "eth_getLogs" and isinstance(result, list):
            return [{**log, "logIndex": "0x00", "blockNumber": "0x0065"} for log in result]
        if method.startswith("eth_getBlock") and isinstance(result, dict):
            return {**result, "number": "0x0" + result["number"][2:], "timestamp": "0x00" + result["timestamp"][2:]}
        return result

    read = world.reader(world.node(padded))
    world.chain.add()
    assert await read.to_head() == [101]
    assert read.logs[0].index == 0


async def test_a_log_is_listed_once_and_equal_logs_of_a_transaction_are_two(world: ReadingWorld) -> None:
    node = world.node(
        lambda method, _params, result: [*result, *reversed(result)] if method == "eth_getLogs" else result
    )
    read = world.reader(node)
    world.chain.add(transaction=hash_of("one"))
    for data in ("0x", "0x01", "0x"):
        world.chain.add(block=world.chain.head, transaction=hash_of("one"), data=data)
    await read.to_head()
    assert [(log.index, log.data, log.ordinal) for log in read.logs] == [
        (0, "0x", 0), (1, "0x", 1), (2, "0x01", 0), (3, "0x", 2),
    ]  # fmt: skip


async def test_logs_that_are_counted_in_their_transaction_are_all_kept(world: ReadingWorld) -> None:
    read = world.reader(world.node())
    world.chain.add(logIndex="0x0")
    world.chain.add(block=world.chain.head, logIndex="0x0")
    world.chain.add(block=world.chain.head, logIndex="0x0", transaction=hash_of("last"), data="0x01")
    assert await read.to_head() == [101] * 3
    assert len(set(read.logs)) == 3


async def test_time_and_receipts_are_not_taken_from_what_lists_logs(world: ReadingWorld) -> None:
    node = world.node()
    read = world.reader(node)
    world.chain.add(blockTimestamp="0x1")
    await read.to_head()
    assert [log.block_time_s for log in read.logs] == [
        int(node.chain.answer("eth_getBlockByNumber", ["0x65"])["timestamp"], 16)
    ]
    assert node.asked("eth_getTransactionReceipt") == 0
    assert node.asked("eth_getBlockByHash") == 1


async def test_the_logs_of_a_range_come_between_two_questions_for_its_last_block(world: ReadingWorld) -> None:
    node = world.node()
    read = world.reader(node)
    world.chain.add()
    await read.to_head()
    (batch,) = [calls for calls in node.requests if any(call["method"] == "eth_getLogs" for call in calls)]
    assert [(call["method"], call["params"][0]) for call in (batch[0], batch[2])] == [
        ("eth_getBlockByNumber", "0x65")
    ] * 2
    assert batch[1]["method"] == "eth_getLogs"


async def test_nodes_behind_one_url_of_which_one_lags_lose_no_log(world: ReadingWorld) -> None:
    node, requests = world.node(), count()
    node.lag = lambda: 4 if next(requests) % 3 == 0 else 0
    read = world.reader(node)
    for _ in range(8):
        world.chain.add()
        await read.to_head()
        await read.to_head()
    world.chain.head += 4
    for _ in range(20):
        await read.to_head()
    assert [log.block_number for log in read.logs] == list(range(101, 109))
    assert read.failing == []


async def test_a_head_that_falls_back_and_comes_again_brings_nothing_twice(world: ReadingWorld) -> None:
    read = world.reader(world.node())
    for _ in range(5):
        world.chain.add()
    assert await read.to_head() == [101, 102, 103, 104, 105]
    world.chain.head -= 40
    for _ in range(5):
        await read.to_head()
        world.chain.head += 8
        world.now_s += 1
    world.chain.add()
    assert await read.to_head() == [101, 102, 103, 104, 105, 106]
    assert (read.forks, read.failing) == ([], [])


async def test_blocks_that_never_come_again_are_given_back_after_minutes(world: ReadingWorld) -> None:
    read = world.reader(world.node())
    world.chain.add()
    await read.to_head()
    world.chain.add()
    await read.to_head()
    world.chain.head, world.chain.logs = 101, world.chain.logs[:1]
    await read.to_head()
    world.now_s += 60
    with pytest.raises(Unreachable):
        await read.step()
    world.now_s += 180
    await read.step()
    assert read.forks == [102]


async def test_after_a_fork_all_its_blocks_are_read(world: ReadingWorld) -> None:
    """Only the last block of a range and those with logs are known: the fork begins between them."""
    read = world.reader(world.node())
    for _ in range(3):
        world.chain.add()
    world.chain.head += 20
    await read.to_head()
    world.chain.fork_at, world.chain.fork = 110, "other"
    world.chain.add(block=112)
    world.chain.head += 1
    await read.to_head()
    assert (read.forks, [log.block_number for log in read.logs]) == ([104], [101, 102, 103, 112])


async def test_a_fork_below_all_known_blocks_is_read_from_the_first_one(world: ReadingWorld) -> None:
    read = world.reader(world.node())
    world.chain.head += 20
    await read.to_head()
    world.chain.fork_at, world.chain.fork = 90, "other"
    world.chain.add(block=105)
    assert await read.to_head() == [105]
    assert read.forks == [101]


async def test_many_logs_are_read_in_parts(world: ReadingWorld) -> None:
    node = world.node()
    read = world.reader(node)
    for _ in range(LOGS_MAX // 50 + 1):
        world.chain.head += 1
        for _ in range(50):
            world.chain.add(block=world.chain.head)
    step = await read.step()
    assert (step.logs, len(step.excess), step.next_block) == ((), LOGS_MAX + 50, 101)
    assert node.asked("eth_getBlockByHash") == 1
    assert {each.block_time_s for each in step.excess} == {BEGAN_S + world.chain.head}
    assert len(await read.to_head()) == LOGS_MAX + 50


async def test_a_node_that_refuses_even_one_block_does_not_rest(world: ReadingWorld) -> None:
    error = {"error": {"code": -32000, "message": "query returned too many results"}}
    node = world.node(lambda method, _params, result: error if method == "eth_getLogs" else result)
    read = world.reader(node)
    world.chain.add()
    step = await read.step()
    assert (step.refused, step.at_head, step.next_block) == (read.filters, True, 101)
    assert read.failing == []


async def test_a_node_that_does_not_answer_for_a_few_blocks_fails(world: ReadingWorld) -> None:
    node = world.node()
    answered = node.passed_on

    def hanging(upstream: str, calls: list[Json], change: Change) -> Reply:
        is_for_logs = any(call["method"] == "eth_getLogs" for call in calls)
        return (504, {}, b"") if is_for_logs else answered(upstream, calls, change)

    node.passed_on = hanging  # type: ignore[method-assign]  # this node alone hangs
    read = world.reader(node)
    world.chain.head += 20
    assert (await read.step()).at_head is False
    with pytest.raises(Unreachable, match="http-504"):
        await read.step()
    assert (read.failing, read.reader.next_block) == ([1], 101)


async def test_a_block_with_more_than_an_answer_may_have_is_read(world: ReadingWorld) -> None:
    read = world.reader(world.node())
    world.chain.add()
    world.chain.head += 3
    for _ in range(9):
        world.chain.add(block=world.chain.head, data="0x" + "00" * 2**19)
    assert await read.to_head() == [101, *[104] * 9]


async def test_nodes_that_failed_for_long_and_come_back_take_nothing_back(world: ReadingWorld) -> None:
    first, second = world.node(), world.node()
    read = world.reader(first, second)
    world.chain.add()
    await read.to_head()
    for node in read.reader.nodes.nodes:
        read.reader.nodes.failed(node, "timeout")
    world.now_s += 3_600
    second.reply = (500, {}, b"")
    with pytest.raises(Unreachable):
        await read.step()
    assert read.reader.next_block == 102


async def test_a_filter_of_many_contracts_is_named_whole_when_it_is_refused(world: ReadingWorld) -> None:
    error = {"error": {"code": -32000, "message": "query returned too many results"}}
    read = world.reader(world.node(lambda method, _params, result: error if method == "eth_getLogs" else result))
    others = tuple(Address.from_raw(number.to_bytes(20)) for number in range(VALUES_MAX))
    read.filters = (LogFilter((CONTRACT, *others), ((read.filters[0].topics[0][0],),)),)
    world.chain.add()
    assert (await read.step()).refused == read.filters


async def test_a_second_reader_follows_after_blocks_and_seconds(world: ReadingWorld) -> None:
    read = world.reader(world.node(), lag_blocks=3, lag_seconds=120.0)
    world.chain.add()
    for _ in range(3):
        world.chain.head += 1
        assert await read.to_head() == []
    world.now_s += 119
    assert await read.to_head() == []
    world.now_s += 1
    world.chain.head += 50
    assert await read.to_head() == [101]
    assert read.reader.next_block == 103  # the first look was at 102


async def test_what_could_not_be_planned_is_read_again(world: ReadingWorld) -> None:
    read = world.reader(world.node())
    world.chain.add()
    await read.to_head()
    read.reader.go_back_to(101)
    assert await read.to_head() == [101, 101]


@pytest.mark.parametrize(
    ("block", "firsts"), [(100, [101, 100]), (101, [101, 101]), (104, [101, 104]), (110, [101, 110]), (111, [101])]
)
async def test_what_is_being_read_is_read_again_too(world: ReadingWorld, block: int, firsts: list[int]) -> None:
    asked = list[int]()

    def change(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getLogs":
            asked.append(int(params[0]["fromBlock"], 16))
            if len(asked) == 1:
                read.reader.go_back_to(block)
        return result

    read = world.reader(world.node(change))
    world.chain.head = 110
    await read.to_head()
    assert (asked, read.reader.next_block) == (firsts, 111)


async def test_where_nothing_is_wanted_a_block_to_go_back_to_is_kept(world: ReadingWorld) -> None:
    """A trigger appears while the head is asked for."""

    def change(method: str, _params: list[Any], result: Any) -> Any:
        if method == "eth_blockNumber":
            read.reader.go_back_to(104)
        return result

    read = world.reader(world.node(change))
    read.filters = ()
    world.chain.head = 110
    assert (await read.step()).next_block == 104


def test_a_filter_is_asked_in_parts_that_nodes_accept() -> None:
    contracts = tuple(Address.from_raw(number.to_bytes(20)) for number in range(VALUES_MAX + 1))
    values = tuple(Bytes32.from_raw(number.to_bytes(32)) for number in range(2 * VALUES_MAX + 1))
    parts = list(LogFilter(contracts, ((PING,), (), values)).parts())
    assert len(parts) == 6
    assert all(len(part.contracts) <= VALUES_MAX and len(part.topics[2]) <= VALUES_MAX for part in parts)
    assert {(part.contracts[0], part.topics[2][0]) for part in parts} == {
        (contract, value) for contract in contracts[::VALUES_MAX] for value in values[::VALUES_MAX]
    }
    assert [part.topics[:2] for part in parts] == [((PING,), ())] * 6
    assert list(LogFilter((CONTRACT,), ()).parts()) == [LogFilter((CONTRACT,), ())]


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        (lambda result: [{**result[0], "logIndex": hex(n)} for n in range(EXCESS_MAX + 1)], 16),
        (lambda result: [{**result[0], "logIndex": hex(n)} for n in range(EXCESS_MAX)], 40),
        (lambda _result: "no list", 16), (lambda _result: {"error": {"code": -32005, "message": "too many"}}, 16),
    ],
    ids=["too many", "as many as are shown", "no list", "refused"],
)  # fmt: skip
async def test_of_a_range_that_does_not_count_no_more_is_asked(
    world: ReadingWorld, change: Callable[[Any], Any], asked: int
) -> None:
    node = world.node(lambda method, _params, result: change(result) if method == "eth_getLogs" and result else result)
    read = world.reader(node)
    others = (LogFilter((Address.from_raw(number.to_bytes(20)),), ((),)) for number in range(1, 40))
    read.filters = (*read.filters, *others)
    world.chain.add()
    world.chain.head += 1
    with suppress(Unreachable):
        assert not (await read.step()).logs
    assert node.asked("eth_getLogs") == asked


async def test_the_logs_of_all_parts_are_joined(world: ReadingWorld) -> None:
    node = world.node()
    read = world.reader(node)
    others = tuple(Address.from_raw(number.to_bytes(20)) for number in range(VALUES_MAX))
    read.filters = (LogFilter((*others, CONTRACT)), LogFilter((CONTRACT,)))
    world.chain.add()
    world.chain.add(address=others[7].lower())
    assert await read.to_head() == [101, 102]
    assert isinstance(read.logs[0], SeenLog)
    assert node.asked("eth_getLogs") == 3


async def test_one_slow_answer_names_no_node_while_no_other_is_asked_for(
    world: ReadingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()

    def hangs(method: str, _params: object, result: object) -> object:
        if method == "eth_getLogs":
            is_over.wait(SECONDS_MAX)
        return result

    read = world.reader(world.node(hangs), world.node(), world.node())
    with monkeypatch.context() as patch:
        patch.setattr(agreeing, "SLOW_S", 0.0)
        world.chain.add()
        assert await read.to_head() == [101]
        is_over.set()
    for _ in range(20):
        world.now_s += 10
        await read.step()
    assert not read.disputes.failures


async def test_a_node_that_lags_before_and_after_a_rest_did_not_lag_all_the_time(world: ReadingWorld) -> None:
    nodes = [world.node(), world.node(), world.node()]
    read = world.reader(*nodes)
    third = read.reader.nodes.nodes[2]

    world.chain.add()
    await read.to_head()

    async def lag_once() -> None:
        nodes[2].lag = lambda: 1
        await read.step()
        nodes[2].lag = lambda: 0

    await lag_once()
    third.rests_until_s = world.now_s + 300
    world.now_s += 299
    await read.step()
    world.now_s += 1
    await lag_once()
    assert not read.disputes.failures


@pytest.mark.parametrize(
    "is_failing", [lambda call: call // BLOCKS_AT_ONCE % 2, lambda call: call % 10 == 9], ids=["requests", "calls"]
)
async def test_a_node_that_fails_now_and_then_answers_for_a_long_range_in_the_end(
    world: ReadingWorld, is_failing: Callable[[int], object]
) -> None:
    calls = count()

    def fails(method: str, _params: object, result: object) -> object:
        is_error = method == "eth_getBlockByHash" and is_failing(next(calls))
        return {"error": {"code": -32603, "message": "internal error"}} if is_error else result

    read = world.reader(world.node(fails))
    numbers = [int(world.chain.add()["blockNumber"], 16) for _ in range(5 * BLOCKS_AT_ONCE)]
    for _ in range(8):
        with suppress(Unreachable):
            await read.step()
        world.now_s += 600
        world.chain.head += 1
    assert [log.block_number for log in read.logs] == numbers


async def test_a_node_is_not_asked_again_for_blocks_while_another_one_fails(world: ReadingWorld) -> None:
    is_failing = True

    def fails(method: str, _params: object, result: object) -> object:
        is_error = method == "eth_getBlockByHash" and is_failing
        return {"error": {"code": -32603, "message": "internal error"}} if is_error else result

    nodes = [world.node(), world.node(fails)]
    read = world.reader(*nodes)
    numbers = [int(world.chain.add()["blockNumber"], 16) for _ in range(5)]
    for _ in range(3):
        with pytest.raises(Unreachable):
            await read.step()
        world.now_s += 600
    is_failing = False
    await read.step()
    assert [log.block_number for log in read.logs] == numbers
    assert nodes[0].asked("eth_getBlockByHash") == len(numbers)
