"""Nodes that name a block far ahead, and then the truth: no event is missed, and nobody has to help."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from chain import CHAIN_TESTS, LocalChain
from lying_node import Json, Open, World, liar, lie, opened
from muniment.chains.nodes import BLOCKS_PER_SECOND, BLOCKS_PER_STEP, STILL_SECONDS
from muniment.operate.watch.limits import WATCH_LIMITS, WatchLimits
from muniment.operate.watch.watcher import Start
from muniment.protocol.evm.address import Address
from rpc_proxy import RpcProxy
from watching_world import CHAIN_ID, canonical, chain, execute, intent_body, settler

__all__ = ["chain", "liar", "lie", "opened", "settler"]  # the fixtures
pytestmark = CHAIN_TESTS
# What is stored is taken back here; how far a node is believed is one code for both engines.
both_engines = pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)

FAR = 3_000_000


@both_engines
@pytest.mark.parametrize("restarts", [False, True], ids=["the process goes on", "restarted in between"])
async def test_a_watcher_that_followed_invented_blocks_goes_back_by_itself_and_misses_nothing(
    opened: Open, chain: LocalChain, settler: Address, *, restarts: bool
) -> None:
    world: World = await opened()
    bodies = [intent_body(settler, number) for number in range(3)]
    intents = [await world.watched.record(body) for body in bodies]
    execute(chain, bodies[0])
    await world.follow()
    world.lie.ahead = FAR
    for _ in range(4):
        await world.step()
    execute(chain, bodies[1])  # while the watcher is ahead of it
    if restarts:
        world.restart()
        await world.step()
    assert (await world.next_block() or 0) > world.head + 100
    world.lie.ahead = 0
    execute(chain, bodies[2])
    if restarts:
        world.restart()
    behind_since = world.now_s
    await world.follow()
    seconds, rest_seconds_max = WATCH_LIMITS.behind_seconds, WATCH_LIMITS.rest_seconds_max
    assert seconds <= world.now_s - behind_since < seconds + rest_seconds_max + 1
    assert [await world.watched.status(intent) for intent in intents] == ["succeeded"] * 3
    assert await world.watched.executions() == canonical(chain, settler)
    # The true facts were not taken back: no status was corrected.
    assert [len((await world.watched.find(intent))["logs"]) for intent in intents] == [1, 1, 1]


async def test_a_head_moves_no_further_than_time_allows(opened: Open) -> None:
    world: World = await opened()
    await world.follow()
    honest = world.head
    world.lie.ahead = FAR
    steps = [await world.step() for _ in range(3)]
    world.now_s += 7
    steps.append(await world.step())
    assert [step.head for step in steps if step] == [
        honest + BLOCKS_PER_STEP * number + (7 * BLOCKS_PER_SECOND if number == 4 else 0) for number in (1, 2, 3, 4)
    ]
    assert all(step is not None and step.is_held_back for step in steps)


async def test_a_process_that_begins_believes_no_more_blocks_than_there_was_time_for(
    opened: Open, chain: LocalChain
) -> None:
    world: World = await opened()
    await world.follow()
    honest = world.head
    made_at = int(chain.ask("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    world.lie.ahead = FAR
    world.restart()
    step = await world.step()
    assert step is not None
    seconds = max(0.0, time.time() - made_at) + 1
    assert honest < step.head <= honest + BLOCKS_PER_STEP + seconds * BLOCKS_PER_SECOND < honest + FAR


@pytest.mark.parametrize("has_blocks", [False, True], ids=["no such block", "made up blocks"])
@pytest.mark.parametrize("restarts", [False, True], ids=["the process goes on", "restarted in between"])
async def test_a_new_registry_whose_first_head_is_a_lie_misses_nothing(
    opened: Open, chain: LocalChain, settler: Address, *, has_blocks: bool, restarts: bool
) -> None:
    world: World = await opened(fresh=True)
    world.lie.has_blocks, world.lie.ahead = has_blocks, 9_000_000_000_000
    body = intent_body(settler, 1)
    intent = await world.watched.record(body)
    await world.step()
    assert ((await world.next_block() or 0) > FAR) is has_blocks, "a block that the node lacks is no beginning"
    if restarts:
        world.restart()
        await world.step()
    execute(chain, body)
    world.lie.ahead = 0
    await world.follow()
    assert await world.watched.status(intent) == "succeeded"
    assert await world.watched.executions() == canonical(chain, settler)


@both_engines
async def test_a_registry_that_an_earlier_release_left_at_a_lie_recovers(
    opened: Open, chain: LocalChain, settler: Address
) -> None:
    world: World = await opened(fresh=True)
    body = intent_body(settler, 1)
    intent = await world.watched.record(body)
    await world.watched.context.database.write(
        lambda tx: tx.execute(
            "INSERT INTO chain_progress (chain_id, settler, next_block) VALUES (?, ?, 9007199254740989)",
            (CHAIN_ID, settler.raw),
        )
    )
    execute(chain, body)
    await world.follow()
    assert await world.watched.status(intent) == "succeeded"


async def test_of_two_nodes_the_lower_one_is_followed(opened: Open, chain: LocalChain, settler: Address) -> None:
    world: World = await opened(chain.url)
    await world.follow()
    world.lie.ahead = FAR
    for number in range(3):
        world.now_s += 4
        execute(chain, intent_body(settler, number))
        step = await world.step()
        assert step is not None
        assert (step.head, step.is_held_back, await world.next_block()) == (world.head, True, world.head + 1)
    assert await world.watched.executions() == canonical(chain, settler)


async def test_a_second_node_that_stands_still_or_lags_or_fails_does_not_stop_the_watcher(
    opened: Open, chain: LocalChain, settler: Address
) -> None:
    stuck = {"number": chain.ask("eth_blockNumber")}

    def stands_still(call: Json, given: Json) -> Json:
        return {**given, "result": stuck["number"]} if call["method"] == "eth_blockNumber" else given

    with RpcProxy(chain.url, change=stands_still) as second:
        world: World = await opened(second.url)
        await world.follow()
        execute(chain, intent_body(settler, 1))
        stuck["number"] = chain.ask("eth_blockNumber")
        world.now_s += 4
        await world.follow()
        execute(chain, intent_body(settler, 2))
        world.now_s += 4
        step = await world.step()
        assert step is not None
        assert step.head == world.head - 1, "it may be the other one that is wrong"
        world.now_s += STILL_SECONDS
        await world.step()
        assert await world.next_block() == world.head + 1
        for answer in (hex(1), None):  # it lags; it fails
            stuck["number"] = answer
            world.now_s += 4
            execute(chain, intent_body(settler, 3 + (answer is None)))
            await world.step()
            assert await world.next_block() == world.head + 1
        assert await world.watched.executions() == canonical(chain, settler)


@pytest.mark.long
async def test_a_node_that_is_behind_is_not_followed_while_another_may_come_back(
    opened: Open, chain: LocalChain
) -> None:
    with RpcProxy(chain.url) as second:
        world: World = await opened(second.url)
        await world.follow()
        world.lie.ahead = FAR
        # The other one is silent, so the liar is believed within the bound; then it tells the truth.
        second.reply = (500, {}, b"")
        for _ in range(3):
            world.now_s += 4
            await world.step()
        followed = await world.next_block()
        world.lie.ahead = 0
        began = world.now_s
        while world.now_s < began + WATCH_LIMITS.silent_seconds - 2 * WATCH_LIMITS.rest_seconds_max:
            await world.step()
            assert await world.next_block() == followed
        await world.follow()


@pytest.mark.long
async def test_the_watcher_itself_survives_a_lie_and_a_restart_within_it(
    opened: Open, chain: LocalChain, settler: Address
) -> None:
    limits = WatchLimits(rest_seconds_first=0.05, rest_seconds_max=0.1, behind_seconds=0.5)
    world: World = await opened(limits=limits)
    watched = world.watched
    bodies = [intent_body(settler, number) for number in range(2)]
    intents = [await watched.record(body) for body in bodies]

    async def until(condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not await condition():
                await asyncio.sleep(0.05)

    async def is_led_away() -> bool:
        return (await world.next_block() or 0) > world.head + 200

    async def has_succeeded() -> bool:
        return [await watched.status(intent) for intent in intents] == ["succeeded"] * 2

    async def watch(condition: Callable[[], Any]) -> None:
        watching = asyncio.create_task(watched.watcher().watch())
        await until(condition)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    await world.follow()
    await asyncio.to_thread(execute, chain, bodies[0])
    world.lie.ahead = FAR
    await watch(is_led_away)
    await watch(is_led_away)
    await asyncio.to_thread(execute, chain, bodies[1])
    world.lie.ahead = 0
    await watch(has_succeeded)
    assert await watched.executions() == canonical(chain, settler)


@both_engines
async def test_a_chain_that_is_read_again_from_a_block_on_ends_in_the_same_state(
    opened: Open, chain: LocalChain, settler: Address
) -> None:
    world: World = await opened()
    watched, bodies = world.watched, [intent_body(settler, number) for number in range(2)]
    intents = [await watched.record(body) for body in bodies]
    execute(chain, bodies[0])
    below = world.head
    execute(chain, bodies[1])
    assert await watched.follow()
    await watched.context.database.write(  # as an earlier release did that believed a lie
        lambda tx: tx.execute("UPDATE chain_progress SET next_block = 9007199254740989")
    )
    for _ in range(2):
        watched.steps.clear()
        start = Start(CHAIN_ID, below + 1)
        assert await watched.watcher(once=True, start=start).watch()
        assert [(step.rolled_back, step.facts, step.intents) for step in watched.steps] == [
            (below + 1, 2, 1), (None, 2, 1),
        ]  # fmt: skip
        assert await world.next_block() == world.head + 1
        assert [await watched.status(intent) for intent in intents] == ["succeeded"] * 2
        assert await watched.executions() == canonical(chain, settler)
    assert [len((await watched.find(intent))["logs"]) for intent in intents] == [1, 5]
    line = (await watched.find(intents[1]))["logs"][1]["data"]
    assert line.startswith(f"chain {CHAIN_ID} block {below + 1}: read again from here on")


async def test_nothing_is_skipped_by_a_block_that_was_not_reached(
    opened: Open, chain: LocalChain, settler: Address
) -> None:
    world: World = await opened()
    execute(chain, intent_body(settler, 1))
    assert await world.watched.follow()
    execute(chain, intent_body(settler, 2))
    start = Start(CHAIN_ID, world.head + 1_000)
    assert await world.watched.watcher(once=True, start=start).watch()
    assert await world.watched.executions() == canonical(chain, settler)
