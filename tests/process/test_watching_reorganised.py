"""Reorganisations made for real: the node goes back to a snapshot and other transactions are mined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from chain import CHAIN_TESTS, LocalChain
from muniment.operate.watch.limits import WATCH_LIMITS, WatchLimits
from muniment.protocol.evm.address import Address
from watching_world import CHAIN_ID, Registry, canonical, chains_file, execute, fail, intent_body, registry

pytestmark = [*CHAIN_TESTS, pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)]

OpenRegistry = Callable[..., Any]


@pytest.fixture
def chain() -> Iterator[LocalChain]:
    """A chain of its own for each test: others must not see its history change."""
    with LocalChain(CHAIN_ID) as chain:
        yield chain


@pytest.fixture
def settler(chain: LocalChain) -> Address:
    return chain.deploy("MiniSettlerLegacy")


@pytest.fixture
async def opened(tmp_path: Path, chain: LocalChain, settler: Address, database_url: str) -> AsyncIterator[OpenRegistry]:
    async with AsyncExitStack() as stack:

        async def opened(*, limits: WatchLimits = WATCH_LIMITS, **members: Any) -> Registry:
            file = chains_file(tmp_path, {CHAIN_ID: (settler, [chain.url])}, **members)
            return await stack.enter_async_context(registry(tmp_path, file, limits=limits, database_url=database_url))

        yield opened


def other_blocks(chain: LocalChain, count: int) -> None:
    """Blocks that are not those mined before: each has a transfer that the others had not."""
    for number in range(count):
        chain.send(b"", Address.from_raw(bytes([0xEE, number + 1]).rjust(20, b"\1")))


@pytest.mark.parametrize("confirmations", [0, 1])
async def test_five_blocks_that_are_replaced_take_their_effects_along(
    opened: OpenRegistry, chain: LocalChain, settler: Address, confirmations: int
) -> None:
    watched: Registry = await opened(confirmations=confirmations)
    bodies = [intent_body(settler, number) for number in range(6)]
    intents = [await watched.record(body) for body in bodies]
    execute(chain, bodies[0])
    chain.ask("anvil_mine", hex(20))
    snapshot = chain.ask("evm_snapshot")
    gone = [execute(chain, body) for body in bodies[1:]]
    chain.ask("anvil_mine", hex(confirmations))
    await watched.follow()
    assert {await watched.status(intent) for intent in intents} == {"succeeded"}
    block = int(chain.ask("eth_getTransactionReceipt", gone[0])["blockNumber"], 16)

    chain.ask("evm_revert", snapshot)
    other_blocks(chain, 4)
    again = execute(chain, bodies[2])
    other_blocks(chain, 2 + confirmations)
    assert await watched.follow()

    statuses = [await watched.status(intent) for intent in intents]
    assert statuses == ["succeeded", "submitted", "succeeded", "submitted", "submitted", "submitted"]
    found = await watched.find(intents[2])
    assert found["transactionHash"] == again
    assert [each["level"] for each in found["logs"]] == ["info", "warning", "info"]
    lost = await watched.find(intents[1])
    assert "transactionHash" not in lost
    assert [each["status"] for each in lost["proposals"]] == ["received"]
    told = lost["logs"][1]["data"]
    assert told.startswith(f"chain {CHAIN_ID} block ")
    assert told.endswith("reorganised from here on: the status was succeeded and is submitted again")
    assert await watched.executions() == canonical(chain, settler)
    # Only what was replaced was taken back, not what was below.
    assert [
        step.rolled_back for step in watched.steps if step.rolled_back is not None and block - 5 <= step.rolled_back
    ]
    assert len((await watched.find(intents[0]))["logs"]) == 1


async def test_a_step_finds_the_last_common_block_among_those_that_it_kept(
    opened: OpenRegistry, chain: LocalChain, settler: Address
) -> None:
    watched: Registry = await opened()
    other_blocks(chain, 3)
    await watched.follow()
    common = int(chain.ask("eth_blockNumber"), 16)
    snapshot = chain.ask("evm_snapshot")
    for number in range(5):  # one range each
        execute(chain, intent_body(settler, number))
        await watched.follow()
    chain.ask("evm_revert", snapshot)
    other_blocks(chain, 6)
    await watched.follow()
    assert [step.rolled_back for step in watched.steps if step.rolled_back is not None] == [common + 1]
    assert await watched.executions() == []


async def test_a_failed_receipt_goes_with_its_block(opened: OpenRegistry, chain: LocalChain, settler: Address) -> None:
    watched: Registry = await opened()
    snapshot = chain.ask("evm_snapshot")
    done = fail(chain, settler)
    intent = await watched.record(intent_body(settler, 1, transactionHash=done))
    await watched.follow()
    assert await watched.status(intent) == "failed"
    chain.ask("evm_revert", snapshot)
    other_blocks(chain, 2)
    await watched.follow()
    found = await watched.find(intent)
    assert found["status"] == "submitted"
    assert [each["level"] for each in found["logs"]] == ["info", "warning"]


async def test_a_reorganisation_deeper_than_what_is_kept_is_followed_anew(
    opened: OpenRegistry, chain: LocalChain, settler: Address
) -> None:
    watched: Registry = await opened(limits=WatchLimits(blocks_kept=2))
    early = intent_body(settler, 100)
    execute(chain, early)
    await watched.follow()
    snapshot = chain.ask("evm_snapshot")
    bodies = [intent_body(settler, number) for number in range(4)]
    intents = [await watched.record(body) for body in (early, *bodies)]
    for body in bodies:
        execute(chain, body)
        await watched.follow()
    await watched.context.database.write(  # as if following had begun later than the block that stays of older ones
        lambda tx: tx.execute("DELETE FROM chain_blocks WHERE number = (SELECT MIN(number) FROM chain_blocks)")
    )
    assert len(await watched.context.database.fetch("SELECT 1 FROM chain_blocks")) == 2
    chain.ask("evm_revert", snapshot)
    other_blocks(chain, 5)
    await watched.follow()
    assert [step.rolled_back for step in watched.steps if step.rolled_back is not None] == [0]
    assert [await watched.status(intent) for intent in intents] == ["succeeded"] + ["submitted"] * 4
    assert await watched.executions() == canonical(chain, settler)


async def test_of_older_blocks_the_first_of_each_so_many_stays_to_go_back_to(
    opened: OpenRegistry, chain: LocalChain, settler: Address
) -> None:
    first = int(chain.ask("eth_blockNumber"), 16)
    watched: Registry = await opened(limits=WatchLimits(blocks_kept=2, blocks_between=8), settler_block=first)
    for _ in range(20):
        other_blocks(chain, 1)
        await watched.follow()
    snapshot, common = chain.ask("evm_snapshot"), int(chain.ask("eth_blockNumber"), 16)
    for number in range(20):
        execute(chain, intent_body(settler, number))
        await watched.follow()
    kept = {number for (number,) in await watched.context.database.fetch("SELECT number FROM chain_blocks")}
    newest = common + 20
    assert kept == {first, *range(first - first % 8 + 8, newest + 1, 8), newest - 1, newest}
    chain.ask("evm_revert", snapshot)
    other_blocks(chain, 25)
    assert await watched.follow()
    (back,) = [step.rolled_back for step in watched.steps if step.rolled_back is not None]
    assert common - 8 < back <= common + 1
    assert await watched.executions() == canonical(chain, settler)


async def test_another_chain_is_followed_anew_when_the_settler_block_is_above_the_kept_blocks(
    opened: OpenRegistry, chain: LocalChain, settler: Address
) -> None:
    snapshot, head = chain.ask("evm_snapshot"), int(chain.ask("eth_blockNumber"), 16)
    watched: Registry = await opened(settler_block=head + 1)
    execute(chain, intent_body(settler, 1))
    await watched.follow()
    chain.ask("evm_revert", snapshot)
    other_blocks(chain, 8)
    above: Registry = await opened(settler_block=head + 7)
    assert await asyncio.wait_for(above.follow(), 60)
    assert len([step for step in above.steps if step.rolled_back is not None]) == 1
    assert await above.executions() == []


async def test_a_node_that_is_behind_takes_nothing_back(
    opened: OpenRegistry, chain: LocalChain, settler: Address
) -> None:
    watched: Registry = await opened()
    snapshot = chain.ask("evm_snapshot")
    body = intent_body(settler, 1)
    intent = await watched.record(body)
    execute(chain, body)
    await watched.follow()
    chain.ask("evm_revert", snapshot)
    assert await watched.follow() is False
    assert await watched.status(intent) == "succeeded"
    # It catches up with the same transactions on another fork: then they count there.
    other_blocks(chain, 1)
    done = execute(chain, body)
    assert await watched.follow()
    assert (await watched.find(intent))["transactionHash"] == done
    assert await watched.executions() == canonical(chain, settler)
