"""Receipts of transactions that operators named: the requests for them, and the effect of a failed one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chain import CHAIN_TESTS, LocalChain
from muniment.chains.nodes import Nodes
from muniment.operate.watch.limits import WatchLimits
from muniment.operate.watch.receipts import Receipts
from muniment.outgoing import ANSWER_BYTES_MAX, Unreachable
from muniment.protocol.evm.address import Address
from rpc_proxy import RpcProxy
from watching_world import CHAIN_ID, Registry, chain, execute, fail, intent_body, proposal_body, settler, watched

__all__ = ["chain", "settler", "watched"]  # the fixtures
pytestmark = [*CHAIN_TESTS, pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)]


@pytest.fixture
def proxy(chain: LocalChain) -> Iterator[RpcProxy]:
    with RpcProxy(chain.url) as proxy:
        yield proxy


@pytest.fixture
def node_url(proxy: RpcProxy) -> str:
    return proxy.url


async def test_a_failed_transaction_fails_the_submitted_intent_that_names_it(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    done = fail(chain, settler)
    intent = await watched.record(intent_body(settler, 1, transactionHash=done))
    await watched.follow()
    found = await watched.find(intent)
    assert (found["status"], found["transactionHash"]) == ("failed", done)
    assert found["logs"][0]["data"].endswith(f"failed with transaction {done}")


async def test_a_failed_transaction_of_a_proposal_fails_it_and_its_intent(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    done = fail(chain, settler)
    proposals = [proposal_body(1, transactionHash=done, status="submitted"), proposal_body(2)]
    intent = await watched.record(intent_body(settler, 1, proposals=proposals))
    await watched.follow()
    found = await watched.find(intent)
    assert found["status"] == "failed"
    assert [each["status"] for each in found["proposals"]] == ["failed", "received"]


async def test_an_intent_fails_only_when_every_named_transaction_did(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    done = fail(chain, settler)
    body = intent_body(settler, 1, transactionHash=done)
    intent = await watched.record(body)
    await watched.follow()
    assert await watched.status(intent) == "failed"
    # Another solver's transaction is on its way.
    await watched.propose(intent, proposal_body(2, transactionHash="0x" + "cd" * 32), settler)
    found = await watched.find(intent)
    assert found["status"] == "submitted"
    assert [each["level"] for each in found["logs"]] == ["info", "warning"]
    execute(chain, body)
    await watched.follow()
    assert await watched.status(intent) == "succeeded"


async def test_an_error_in_place_of_every_receipt_is_a_failure_of_the_node(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    await watched.record(intent_body(settler, 1, transactionHash=fail(chain, settler)))

    def refused(call: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        error = {"code": -32000, "message": "transaction indexing is in progress"}
        is_receipt = call["method"] == "eth_getTransactionReceipt"
        return {"jsonrpc": "2.0", "id": call["id"], "error": error} if is_receipt else answer

    with RpcProxy(chain.url, change=refused) as proxy:
        one = replace(watched.context.chains[CHAIN_ID], rpc_urls=(proxy.url,))
        nodes = Nodes(watched.context.outgoing, one, now_s=lambda: 0.0, chance=lambda: 0.0)
        receipts = Receipts(nodes=nodes, settler=settler, database=watched.context.database)
        with pytest.raises(Unreachable) as caught:
            await receipts.ask(nodes.nodes[0], 1_000)
    assert caught.value.told == "refused: transaction indexing is in progress"


async def test_a_dropped_transaction_decides_nothing(watched: Registry, settler: Address) -> None:
    intent = await watched.record(intent_body(settler, 1, transactionHash="0x" + "ab" * 32))
    assert await watched.follow()
    assert await watched.status(intent) == "submitted"


@pytest.mark.parametrize("status", ["created", "enqueued", "discarded"])
async def test_a_failed_receipt_refutes_only_that_an_intent_was_submitted_or_succeeded(
    watched: Registry, chain: LocalChain, settler: Address, status: str
) -> None:
    done = fail(chain, settler)
    submitted = await watched.record(intent_body(settler, 1, transactionHash=done))
    intent = await watched.record(intent_body(settler, 2, status=status, transactionHash=done))
    await watched.follow()
    assert [await watched.status(each) for each in (submitted, intent)] == ["failed", status]


async def test_a_failed_proposal_of_an_enqueued_intent_leaves_it_enqueued(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    done = fail(chain, settler)
    proposals = [proposal_body(1, transactionHash=done, status="submitted"), proposal_body(2)]
    intent = await watched.record(intent_body(settler, 1, proposals=proposals, status="enqueued"))
    await watched.follow()
    found = await watched.find(intent)
    assert (found["status"], found["logs"]) == ("enqueued", [])
    assert [each["status"] for each in found["proposals"]] == ["failed", "received"]


@pytest.mark.parametrize("named_by", ["the intent", "its proposal"])
async def test_a_success_that_operators_claim_of_a_reverted_transaction_is_corrected(
    watched: Registry, chain: LocalChain, settler: Address, named_by: str
) -> None:
    done = fail(chain, settler)
    if named_by == "the intent":
        body = intent_body(settler, 1, status="succeeded", transactionHash=done)
    else:
        body = intent_body(settler, 1, status="succeeded", proposals=[proposal_body(transactionHash=done)])
    intent = await watched.record(body)
    await watched.follow()
    found = await watched.find(intent)
    assert (found["status"], found["transactionHash"]) == ("failed", done)
    ((level, told),) = [(each["level"], each["data"]) for each in found["logs"]]
    assert level == "warning"
    assert told.endswith(f"failed with transaction {done}; the status was succeeded")
    # Another transaction did it after all.
    execute(chain, body)
    await watched.follow()
    assert await watched.status(intent) == "succeeded"


async def test_a_success_stays_while_one_of_its_transactions_may_be_the_successful_one(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    named = [proposal_body(1, transactionHash=mined(chain)), proposal_body(2, transactionHash=fail(chain, settler))]
    intent = await watched.record(intent_body(settler, 1, status="succeeded", proposals=named))
    await watched.follow()
    found = await watched.find(intent)
    assert (found["status"], found["logs"]) == ("succeeded", [])
    assert [each["status"] for each in found["proposals"]] == ["received", "failed"]


@pytest.mark.parametrize("status", ["submitted", "succeeded"])
async def test_a_good_receipt_is_asked_for_once_and_changes_no_status(
    watched: Registry, chain: LocalChain, settler: Address, proxy: RpcProxy, status: str
) -> None:
    done = mined(chain)
    intent = await watched.record(intent_body(settler, 1, status=status, transactionHash=done))
    before = await version(watched)
    for _ in range(3):
        assert await watched.follow()
        assert all(step.facts == step.intents == 0 for step in watched.steps)
    assert asked(proxy) == [done]
    found = await watched.find(intent)
    assert (found["status"], found["logs"], await version(watched)) == (status, [], before)


async def test_a_good_receipt_goes_with_its_block_and_is_asked_for_again(
    watched: Registry, chain: LocalChain, settler: Address, proxy: RpcProxy
) -> None:
    snapshot = chain.ask("evm_snapshot")
    done = mined(chain)
    await watched.record(intent_body(settler, 1, status="succeeded", transactionHash=done))
    await watched.follow()
    chain.ask("evm_revert", snapshot)
    chain.send(b"", Address.parse("0x" + "ee" * 20))
    await watched.follow()
    assert asked(proxy) == [done, done]
    assert await watched.context.database.fetch("SELECT 1 FROM executions") == []


async def test_a_claimed_success_without_a_receipt_is_asked_for_now_and_then(
    watched: Registry, settler: Address, proxy: RpcProxy
) -> None:
    claimed, sent = "0x" + "ab" * 32, "0x" + "cd" * 32
    await watched.record(intent_body(settler, 1, status="succeeded", transactionHash=claimed))
    await watched.record(intent_body(settler, 2, transactionHash=sent))
    now_s, chain = 1_000.0, watched.context.chains[CHAIN_ID]
    nodes = Nodes(watched.context.outgoing, chain, now_s=lambda: now_s, chance=lambda: 0.5)
    asking = Receipts(nodes=nodes, settler=settler, database=watched.context.database)
    for at_s, expected in ((1_000.0, [sent, claimed]), (1_059.9, [sent]), (1_060.0, [sent, claimed])):
        now_s, before = at_s, len(asked(proxy))
        assert await asking.ask(nodes.nodes[0], 0) == []
        asking.kept()
        assert asked(proxy)[before:] == expected
        assert asking.all_asked


async def test_a_receipt_that_was_not_stored_is_asked_for_again_before_the_next(
    watched: Registry, settler: Address, proxy: RpcProxy
) -> None:
    named = [f"0x{number:064x}" for number in range(3)]
    for number, each in enumerate(named):
        await watched.record(intent_body(settler, number, status="succeeded", transactionHash=each))
    chain = watched.context.chains[CHAIN_ID]
    limits = WatchLimits(intents_per_step=2)
    nodes = Nodes(watched.context.outgoing, chain, now_s=lambda: 1.0, chance=lambda: 0.5)
    asking = Receipts(nodes=nodes, settler=settler, database=watched.context.database, limits=limits)
    await asking.ask(nodes.nodes[0], 0)
    for _ in range(2):
        await asking.ask(nodes.nodes[0], 0)
        assert not asking.all_asked
        asking.kept()
    assert sorted(asked(proxy)) == sorted([*named[:2], *named[:2], named[2]])
    assert asking.all_asked


async def test_a_receipt_that_is_too_large_keeps_no_other_waiting(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    large, good = mined(chain), mined(chain)
    for number, each in enumerate((large, good)):
        await watched.record(intent_body(settler, number, transactionHash=each))

    def change(call: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "more": "0" * ANSWER_BYTES_MAX} if call["params"] == [large] else answer

    with RpcProxy(chain.url, change=change) as proxy:
        followed = replace(watched.context.chains[CHAIN_ID], rpc_urls=(proxy.url,))
        nodes = Nodes(watched.context.outgoing, followed, now_s=lambda: 1.0, chance=lambda: 0.5)
        asking = Receipts(nodes=nodes, settler=settler, database=watched.context.database)
        for _ in range(2):
            found = await asking.ask(nodes.nodes[0], int(chain.ask("eth_blockNumber"), 16))
            assert ["0x" + each.subject.hex() for each in found] == [good]
            asking.kept()
        assert asked(proxy).count(large) == 2, "once with the other, once alone"


def mined(chain: LocalChain) -> str:
    """A transaction that succeeds without an event of a settler; its hash."""
    return chain.send(b"", Address.parse("0x" + "ee" * 20))["transactionHash"]


def asked(proxy: RpcProxy) -> list[str]:
    """The transactions whose receipts were asked for."""
    calls = [call for request in proxy.requests for call in request if call["method"] == "eth_getTransactionReceipt"]
    return [call["params"][0] for call in calls]


async def version(watched: Registry) -> int:
    (row,) = await watched.context.database.fetch("SELECT version FROM intents")
    return row[0]
