"""Intents of generation 2, whose settlement contract emits other events than those of generation 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_watching_lease import success_of
from test_watching_reorganised import other_blocks

from chain import CHAIN_TESTS, LocalChain
from muniment.protocol.evm.address import Address
from muniment.service.resources.intents.chain_facts import RECEIPT_INDEX, insert_facts
from watching_world import (
    CHAIN_ID,
    Registry,
    canonical,
    chain,
    chains_file,
    execute,
    fail,
    intent_body,
    node_url,
    operations_body,
    operations_proposal,
    registry,
    watched,
)

__all__ = ["chain", "node_url", "watched"]  # the fixtures
pytestmark = [*CHAIN_TESTS, pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)]


@pytest.fixture
def settler(chain: LocalChain) -> Address:
    """A new contract of the second generation for each test."""
    return chain.deploy("MiniSettlerOps")


@pytest.mark.parametrize(("operations", "events"), [(1, 0), (1, 1), (3, 0), (3, 2)])
async def test_an_executed_intent_has_succeeded(
    watched: Registry, chain: LocalChain, settler: Address, operations: int, events: int
) -> None:
    body = operations_body(settler, 1, operations=operations, events=events)
    intent = await watched.record(body)
    done = execute(chain, body)
    assert await watched.follow()
    found = await watched.find(intent)
    assert (found["status"], found["transactionHash"]) == ("succeeded", done)
    assert [(each["status"], each["transactionHash"]) for each in found["proposals"]] == [("succeeded", done)]
    block = int(chain.ask("eth_getTransactionReceipt", done)["blockNumber"], 16)
    line = f"chain {CHAIN_ID} block {block}: executed in transaction {done}"
    assert [(each["level"], each["data"]) for each in found["logs"]] == [("info", line)]
    rows = await watched.executions()
    assert rows == canonical(chain, settler)
    assert len(rows) == operations * events + 1


async def test_only_the_proposal_that_was_executed_succeeds(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    offers = [operations_proposal(1), operations_proposal(2)]
    body = operations_body(settler, 1, proposals=offers, events=0)
    intent = await watched.record(body)
    execute(chain, body, proposal=1)
    await watched.follow()
    found = await watched.find(intent)
    assert [each["status"] for each in found["proposals"]] == ["received", "succeeded"]
    assert "transactionHash" not in found["proposals"][0]


async def test_an_operation_event_counts_without_a_known_proposal(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    body = operations_body(settler, 1)
    intent = await watched.record({**body, "proposals": []})
    execute(chain, body)
    await watched.follow()
    assert await watched.status(intent) == "succeeded"


async def test_a_proposal_that_arrives_after_its_event_takes_effect_at_once(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    body = operations_body(settler, 1, events=0)
    intent = await watched.record({**body, "proposals": []})
    done = execute(chain, body)
    await watched.follow()
    assert await watched.status(intent) == "submitted"
    await watched.propose(intent, body["proposals"][0], settler)
    found = await watched.find(intent)
    assert (found["status"], found["transactionHash"]) == ("succeeded", done)
    assert found["proposals"][0]["status"] == "succeeded"


async def test_an_intent_that_arrives_after_its_event_has_succeeded(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    body = operations_body(settler, 1)
    done = execute(chain, body)
    await watched.follow()
    intent = await watched.record({**body, "status": "created", "proposals": []})
    found = await watched.find(intent)
    assert (found["status"], found["transactionHash"]) == ("succeeded", done)
    assert found["logs"][0]["level"] == "info"


async def test_another_contract_says_nothing(watched: Registry, chain: LocalChain, settler: Address) -> None:
    body = operations_body(Address.parse("0x" + "77" * 20), 1)
    intent = await watched.record(body)
    # The followed contract names this intent by its hash, though the intent names another contract.
    execute(chain, body, settler=settler)
    await watched.follow()
    assert len(await watched.executions()) == 3
    assert await watched.status(intent) == "submitted"


@pytest.mark.parametrize("status", ["submitted", "succeeded"])
async def test_a_failed_transaction_fails_the_intent_that_names_it(
    watched: Registry, chain: LocalChain, settler: Address, status: str
) -> None:
    done = fail(chain, settler)
    intent = await watched.record(operations_body(settler, 1, status=status, transactionHash=done))
    await watched.follow()
    found = await watched.find(intent)
    assert (found["status"], found["transactionHash"]) == ("failed", done)
    line = f"failed with transaction {done}" + ("; the status was succeeded" if status == "succeeded" else "")
    assert found["logs"][0]["data"].endswith(line)


async def test_a_failed_transaction_of_a_proposal_fails_it_and_its_intent(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    done = fail(chain, settler)
    offers = [operations_proposal(1, transactionHash=done, status="submitted"), operations_proposal(2)]
    intent = await watched.record(operations_body(settler, 1, proposals=offers))
    await watched.follow()
    found = await watched.find(intent)
    assert found["status"] == "failed"
    assert [each["status"] for each in found["proposals"]] == ["failed", "received"]


async def test_a_fact_that_was_stored_as_its_intent_arrived_takes_effect_at_the_next_look(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    intent = await watched.record(operations_body(settler, 1))
    await watched.follow()
    await watched.context.database.write(lambda tx: insert_facts(tx, [success_of(intent, chain, settler)]))
    assert await watched.status(intent) == "submitted"
    await watched.follow()
    assert await watched.status(intent) == "succeeded"


@pytest.mark.parametrize("named_by", ["the intent", "its proposal"])
async def test_a_failure_that_was_stored_for_another_settler_as_its_intent_arrived_takes_effect_at_the_next_look(
    watched: Registry, chain: LocalChain, settler: Address, named_by: str
) -> None:
    named: dict[str, Any] = {"transactionHash": "0x" + "ab" * 32}
    members: dict[str, Any] = named if named_by == "the intent" else {"proposals": [operations_proposal(1, **named)]}
    intent = await watched.record(operations_body(settler, 1, **members))
    await watched.follow()
    success = success_of(intent, chain, Address.parse("0x" + "77" * 20))
    receipt = success._replace(log_index=RECEIPT_INDEX, subject=b"\xab" * 32, outcome="failed")
    await watched.context.database.write(lambda tx: insert_facts(tx, [receipt]))
    assert await watched.status(intent) == "submitted"
    await watched.follow()
    assert await watched.status(intent) == "failed"


async def test_intents_of_both_forms_are_followed_at_their_settlers(
    tmp_path: Path, chain: LocalChain, settler: Address, database_url: str
) -> None:
    older = chain.deploy("MiniSettlerLegacy")
    first, second = [intent_body(older, n) for n in range(3)], [operations_body(settler, n) for n in range(3)]
    reverted = fail(chain, settler)
    first[2]["transactionHash"] = second[2]["transactionHash"] = reverted
    file = chains_file(tmp_path, {CHAIN_ID: ((settler, older), [chain.url])})
    async with registry(tmp_path, file, database_url=database_url) as watched:
        # They alternate, so that their numbers do.
        intents = [await watched.record(body) for pair in zip(first, second, strict=True) for body in pair]
        execute(chain, first[0])
        execute(chain, second[1])
        assert await watched.follow()
        statuses = [await watched.status(intent) for intent in intents]
        assert statuses == ["succeeded", "submitted", "submitted", "succeeded", "failed", "failed"]
        assert await watched.executions() == sorted(canonical(chain, older) + canonical(chain, settler))


async def test_blocks_that_are_replaced_take_their_effects_on_both_forms_along(
    tmp_path: Path, database_url: str
) -> None:
    with LocalChain(CHAIN_ID) as chain:  # of its own: other tests must not see its history change
        settlers = chain.deploy("MiniSettlerOps"), chain.deploy("MiniSettlerLegacy")
        file = chains_file(tmp_path, {CHAIN_ID: (settlers, [chain.url])})
        async with registry(tmp_path, file, database_url=database_url) as watched:
            bodies = [operations_body(settlers[0], n) for n in range(4)] + [intent_body(settlers[1], 1)]
            bodies[3]["transactionHash"] = "0x" + "cd" * 32
            intents = [await watched.record(body) for body in bodies]
            execute(chain, bodies[0])
            snapshot = chain.ask("evm_snapshot")
            gone = [execute(chain, body) for body in (bodies[1], bodies[2], bodies[4])]
            failed = fail(chain, settlers[0])
            late = await watched.record(operations_body(settlers[0], 5, transactionHash=failed))
            await watched.follow()
            before = [await watched.status(intent) for intent in (*intents, late)]
            assert before == ["succeeded"] * 3 + ["submitted", "succeeded", "failed"]

            chain.ask("evm_revert", snapshot)
            other_blocks(chain, 2)
            again = execute(chain, bodies[2])
            other_blocks(chain, 4)
            assert await watched.follow()

            after = [await watched.status(intent) for intent in (*intents, late)]
            assert after == ["succeeded", "submitted", "succeeded", "submitted", "submitted", "submitted"]
            assert again not in gone
            found = await watched.find(intents[2])
            assert found["transactionHash"] == found["proposals"][0]["transactionHash"] == again
            assert [each["level"] for each in found["logs"]] == ["info", "warning", "info"]
            lost = await watched.find(intents[1])
            assert "transactionHash" not in lost
            assert [(each["status"], each.get("transactionHash")) for each in lost["proposals"]] == [("received", None)]
            line = lost["logs"][1]["data"]
            assert line.endswith("reorganised from here on: the status was succeeded and is submitted again")
            assert await watched.executions() == sorted(canonical(chain, settlers[0]) + canonical(chain, settlers[1]))
