"""`muniment intents watch` as processes: killed in the middle, two at once, stopped by signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import warm
from chain import CHAIN_TESTS, LocalChain
from muniment.protocol.evm.address import Address
from rpc_proxy import RpcProxy
from watching_world import CHAIN_ID, Registry, canonical, chains_file, execute, intent_body, registry

pytestmark = CHAIN_TESTS

Json = dict[str, Any]
INTENTS = 40
FIRST_BLOCKS = 10
# A lease lapses after 15 seconds; the rest is for a busy machine.
SECONDS_MAX = 60


@dataclass
class World:
    """A chain behind a proxy that gives few blocks at a time, a registry of intents on it, and watchers to start."""

    directory: Path
    chain: LocalChain
    settler: Address
    watched: Registry
    file: Path
    stack: ExitStack
    # While it is not set nobody is given the logs of what follows the first blocks.
    go_on: threading.Event

    def watch(self, *options: str) -> warm.WarmProcess:
        words = [
            "intents", "watch", "--chains", str(self.file), "--data-dir", str(self.directory / "data"),
            "--interval", "0.1", "--json", "--health", "127.0.0.1:0", *options,
        ]  # fmt: skip
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")},
            "MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true", "MUNIMENT_LOG_LEVEL": "error",
        }  # fmt: skip
        process = warm.popen(words, environment)
        self.stack.callback(self.end, process)
        return process

    @staticmethod
    def end(process: warm.WarmProcess) -> None:
        process.kill()
        process.communicate()

    async def next_block(self) -> int:
        row = await self.watched.context.database.fetch_one("SELECT next_block FROM chain_progress")
        return row[0] if row else 0

    async def holder(self) -> str:
        now_ms = self.watched.context.clock.now_ms()
        row = await self.watched.context.database.fetch_one("SELECT holder FROM leases WHERE until_ms > ?", (now_ms,))
        return row[0] if row else ""

    async def is_done(self) -> bool:
        return await self.next_block() > int(self.chain.ask("eth_blockNumber"), 16)


@pytest.fixture
def chain() -> Iterator[LocalChain]:
    with LocalChain(CHAIN_ID) as chain:
        yield chain


def three_blocks_at_once(go_on: threading.Event, call: Json, given: Json) -> Json:
    if call["method"] != "eth_getLogs":
        return given
    asked = call["params"][0]
    if int(asked["fromBlock"], 16) > FIRST_BLOCKS:
        go_on.wait()
    if int(asked["toBlock"], 16) - int(asked["fromBlock"], 16) < 3:
        return given
    return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32005, "message": "at most 3 blocks"}}


@pytest.fixture
async def world(tmp_path: Path, chain: LocalChain) -> AsyncIterator[World]:
    settler = chain.deploy("MiniSettlerLegacy")
    async with AsyncExitStack() as opened:
        stack = opened.enter_context(ExitStack())
        go_on = threading.Event()
        go_on.set()
        stack.callback(go_on.set)
        proxy = opened.enter_context(RpcProxy(chain.url, change=partial(three_blocks_at_once, go_on)))
        file = chains_file(tmp_path, {CHAIN_ID: (settler, [proxy.url])})
        watched = await opened.enter_async_context(registry(tmp_path, file))
        yield World(tmp_path, chain, settler, watched, file, stack, go_on)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not await condition():
            await asyncio.sleep(0.01)


async def intents_executed(world: World) -> list[str]:
    """Intents of which every other was recorded before, all carried out on chain."""
    bodies = [intent_body(world.settler, number, events=number % 3) for number in range(INTENTS)]
    for body in bodies:
        execute(world.chain, body)
    return [await world.watched.record(body) for body in bodies[::2]]


async def assert_canonical(world: World, intents: list[str]) -> None:
    assert await world.watched.executions() == canonical(world.chain, world.settler)
    for intent in intents:
        found = await world.watched.find(intent)
        assert found["status"] == "succeeded"
        assert [each["level"] for each in found["logs"]] == ["info"]


@pytest.mark.long
async def test_after_a_watcher_was_killed_in_the_middle_the_waiting_one_takes_over(world: World) -> None:
    intents = await intents_executed(world)
    world.go_on.clear()
    first = world.watch()
    await until(lambda: true_when(world.holder()))
    leader = await world.holder()
    second = world.watch()

    async def is_in_the_middle() -> bool:
        return await world.next_block() > FIRST_BLOCKS

    await until(is_in_the_middle)
    first.kill()
    await ended(first)
    assert await world.next_block() < INTENTS
    world.go_on.set()
    await until(world.is_done)
    assert await world.holder() not in {leader, ""}
    await assert_canonical(world, intents)
    # What happens from now on is followed too, and a signal ends it cleanly and gives the lease back.
    late = intent_body(world.settler, INTENTS)
    execute(world.chain, late)
    await until(world.is_done)
    await assert_canonical(world, [*intents, await world.watched.record(late)])
    second.send_signal(signal.SIGTERM)
    assert await ended(second) == 0
    assert await world.holder() == ""


async def ended(process: warm.WarmProcess) -> int:
    """The exit status; the loop turns meanwhile, since in one turn of it every read sees the same state."""
    return await asyncio.to_thread(process.wait, SECONDS_MAX)


async def true_when(value: Awaitable[str]) -> bool:
    return bool(await value)


async def test_the_waiting_watcher_takes_over_immediately_from_one_that_was_stopped(world: World) -> None:
    first = world.watch()
    await until(lambda: true_when(world.holder()))
    leader = await world.holder()
    second = world.watch()
    await asyncio.sleep(1)
    assert await world.holder() == leader
    first.send_signal(signal.SIGINT)
    assert await ended(first) == 0
    assert await world.holder() != leader, "the lease is given back, and need not lapse"

    async def is_taken_over() -> bool:
        return await world.holder() not in {leader, ""}

    await until(is_taken_over)
    assert second.poll() is None


@pytest.mark.long
async def test_once_ends_at_the_head_and_prints_each_step(world: World) -> None:
    intents = await intents_executed(world)
    process = world.watch("--once")
    told, _ = await asyncio.to_thread(process.communicate, timeout=SECONDS_MAX)
    assert process.returncode == 0
    steps = [json.loads(line) for line in told.splitlines()]
    assert {step["chainId"] for step in steps} == {CHAIN_ID}
    assert sum(step["facts"] for step in steps) == len(await world.watched.executions())
    assert sum(step["intents"] for step in steps) == len(intents)
    await assert_canonical(world, intents)


async def test_once_fails_when_a_chain_cannot_be_followed(world: World) -> None:
    world.chain.stop()
    process = world.watch("--once")
    assert await ended(process) == 1


async def test_a_watcher_without_a_chain_to_follow_fails(world: World) -> None:
    world.file.write_text("")
    process = world.watch("--once")
    assert await ended(process) == 1
