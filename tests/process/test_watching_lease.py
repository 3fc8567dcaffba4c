"""Of several processes one holds the lease, another takes it over, and only the holder stores anything."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec
import pytest

from chain import CHAIN_TESTS, LocalChain
from muniment.chains.nodes import Nodes
from muniment.operate.watch.follower import Follower
from muniment.operate.watch.progress import LEASE_MS, LeaseLostError, release_lease, renew_lease, take_lease
from muniment.protocol.evm.address import Address
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.types import NewIntent
from muniment.protocol.wire import decode_text
from muniment.service.resources.intents.chain_facts import RECEIPT_INDEX, Fact, insert_facts
from watching_world import (
    CHAIN_ID,
    GRACE_S,
    Registry,
    chain,
    execute,
    fail,
    intent_body,
    node_url,
    proposal_body,
    settler,
    watched,
)

__all__ = ["chain", "node_url", "settler", "watched"]  # the fixtures
pytestmark = [*CHAIN_TESTS, pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)]

NOW_MS = 1_000_000
WAITS = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)"


async def takes(watched: Registry, holder: str, now_ms: int) -> bool:
    return await watched.context.database.write(lambda tx: take_lease(tx, holder, now_ms))


async def renew(watched: Registry, holder: str, now_ms: int) -> None:
    await watched.context.database.write(lambda tx: renew_lease(tx, holder, now_ms))


async def test_one_watcher_holds_the_lease_until_it_lapses(watched: Registry) -> None:
    assert await takes(watched, "first", NOW_MS)
    assert not await takes(watched, "second", NOW_MS + LEASE_MS - 1)
    await renew(watched, "first", NOW_MS + 10)
    assert not await takes(watched, "second", NOW_MS + LEASE_MS + 9)
    assert await takes(watched, "second", NOW_MS + LEASE_MS + 10)
    with pytest.raises(LeaseLostError):
        await renew(watched, "first", NOW_MS + LEASE_MS + 11)


async def test_a_lease_that_lapsed_and_was_not_taken_is_renewed(watched: Registry) -> None:
    await takes(watched, "first", NOW_MS)
    await renew(watched, "first", NOW_MS + 10 * LEASE_MS)
    assert not await takes(watched, "second", NOW_MS + 10 * LEASE_MS + 1)


async def test_a_lease_of_a_clock_that_was_ahead_does_not_block_other_watchers(watched: Registry) -> None:
    await takes(watched, "first", NOW_MS + 3 * 3_600_000)
    assert await takes(watched, "second", NOW_MS)
    assert not await takes(watched, "third", NOW_MS)


async def test_only_its_holder_gives_a_lease_back_and_it_is_free_immediately(watched: Registry) -> None:
    await takes(watched, "first", NOW_MS)
    await watched.context.database.write(lambda tx: release_lease(tx, "second"))
    assert not await takes(watched, "second", NOW_MS)
    await watched.context.database.write(lambda tx: release_lease(tx, "first"))
    assert await takes(watched, "second", NOW_MS)


def follower(watched: Registry, holder: str) -> Follower:
    context = watched.context
    nodes = Nodes(context.outgoing, context.chains[CHAIN_ID], now_s=lambda: 0.0, chance=lambda: 0.0)
    return Follower(
        nodes=nodes, confirmations=0, database=context.database, holder=holder, now_ms=lambda: NOW_MS,
        grace_s=GRACE_S,
    )  # fmt: skip


async def test_a_process_that_lost_the_lease_in_the_middle_stores_nothing_more(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    body = intent_body(settler, 1)
    intent = await watched.record(body)
    await takes(watched, "first", NOW_MS)
    slow = follower(watched, "first")
    node = slow.nodes.nodes[0]
    await slow.step(node)
    before = await watched.context.database.fetch("SELECT next_block FROM chain_progress")
    execute(chain, body)
    await takes(watched, "second", NOW_MS + LEASE_MS)
    with pytest.raises(LeaseLostError):
        await slow.step(node)
    assert await watched.executions() == []
    assert await watched.status(intent) == "submitted"
    assert await watched.context.database.fetch("SELECT next_block FROM chain_progress") == before
    # The new leader does it.
    fast = follower(watched, "second")
    await fast.step(fast.nodes.nodes[0])
    assert await watched.status(intent) == "succeeded"


async def test_two_processes_that_believe_they_hold_the_lease_do_not_store_one_range_twice(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    await takes(watched, "both", NOW_MS)
    one, two = follower(watched, "both"), follower(watched, "both")
    for each in (one, two):
        await each.step(each.nodes.nodes[0])
    execute(chain, intent_body(settler, 1))
    await one.step(one.nodes.nodes[0])
    with pytest.raises(LeaseLostError):
        await two.step(two.nodes.nodes[0])


def success_of(intent: str, chain: LocalChain, settler: Address) -> Fact:
    """An event of the newest block about an intent."""
    block, subject = int(chain.ask("eth_blockNumber"), 16), bytes.fromhex(intent[2:])
    return Fact(CHAIN_ID, block, b"\1" * 32, b"\2" * 32, 0, settler.raw, subject, "succeeded")


async def test_a_fact_that_was_stored_as_its_intent_arrived_takes_effect_at_the_next_look(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    intent = await watched.record(intent_body(settler, 1))
    await watched.follow()
    await watched.context.database.write(lambda tx: insert_facts(tx, [success_of(intent, chain, settler)]))
    assert await watched.status(intent) == "submitted"
    await watched.follow()
    assert await watched.status(intent) == "succeeded"


async def test_a_success_that_was_stored_as_its_proposal_arrived_outdoes_a_failure_at_the_next_look(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    intent = await watched.record(intent_body(settler, 1, transactionHash=fail(chain, settler)))
    await watched.follow()
    assert await watched.status(intent) == "failed"
    await watched.context.database.write(lambda tx: insert_facts(tx, [success_of(intent, chain, settler)]))
    await watched.follow()
    assert await watched.status(intent) == "succeeded"


@pytest.mark.parametrize("named_by", ["the intent", "its proposal"])
async def test_a_failure_that_was_stored_as_its_intent_was_called_succeeded_takes_effect_at_the_next_look(
    watched: Registry, chain: LocalChain, settler: Address, named_by: str
) -> None:
    failed, block = "0x" + "ab" * 32, int(chain.ask("eth_blockNumber"), 16)
    named: dict[str, Any] = {"transactionHash": failed}
    members: dict[str, Any] = named if named_by == "the intent" else {"proposals": [proposal_body(1, **named)]}
    intent = await watched.record(intent_body(settler, 1, status="succeeded", **members))
    await watched.follow()
    receipt = Fact(CHAIN_ID, block, b"\1" * 32, b"\xab" * 32, RECEIPT_INDEX, settler.raw, b"\xab" * 32, "failed")
    await watched.context.database.write(lambda tx: insert_facts(tx, [receipt]))
    assert await watched.status(intent) == "succeeded"
    await watched.follow()
    assert await watched.status(intent) == "failed"


async def test_a_fact_that_is_taken_back_as_its_intent_arrives_has_no_effect(
    watched: Registry, chain: LocalChain, settler: Address, database_url: str
) -> None:
    body = intent_body(settler, 1)
    intent = "0x" + intent_hash(msgspec.convert(body, NewIntent, dec_hook=decode_text)).hex()
    await watched.context.database.write(lambda tx: insert_facts(tx, [success_of(intent, chain, settler)]))
    if database_url.startswith("sqlite"):  # one writer at a time
        await watched.context.database.write(lambda tx: tx.execute("DELETE FROM executions"))
        await watched.record(body)
    else:
        other: asyncpg.Connection = await asyncpg.connect(database_url)
        async with other.transaction():
            await other.execute("DELETE FROM executions")
            arriving = asyncio.create_task(watched.record(body))
            # No longer than until it waits: it does so for two seconds at most.
            while not (arriving.done() or await other.fetchval(WAITS)):
                await asyncio.sleep(0.01)
        await arriving
        await other.close()
    assert await watched.status(intent) == "submitted"
