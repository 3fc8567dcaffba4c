"""The watcher on a real node: the events of both generations of the contract, and their effect on intents."""

from __future__ import annotations

from pathlib import Path

import pytest

from chain import CHAIN_TESTS, LocalChain
from muniment.operate.watch.events import OPERATION_EXECUTED
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from settler import LOG_EMITTER, encode_emit, encode_fulfil, operation_executed_data
from watching_world import (
    CHAIN_ID,
    SOLVER,
    Registry,
    canonical,
    chain,
    chains_file,
    execute,
    fail,
    intent_body,
    node_url,
    proposal_body,
    registry,
    settler,
    watched,
)

__all__ = ["chain", "node_url", "settler", "watched"]  # the fixtures
pytestmark = [*CHAIN_TESTS, pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)]


@pytest.mark.parametrize("events", [0, 1, 3])
async def test_an_executed_intent_has_succeeded(
    watched: Registry, chain: LocalChain, settler: Address, events: int
) -> None:
    body = intent_body(settler, 1, events=events)
    intent = await watched.record(body)
    done = execute(chain, body)
    assert await watched.follow()
    found = await watched.find(intent)
    assert (found["status"], found["transactionHash"]) == ("succeeded", done)
    assert [(each["status"], each["transactionHash"]) for each in found["proposals"]] == [("succeeded", done)]
    block = int(chain.ask("eth_getTransactionReceipt", done)["blockNumber"], 16)
    told = f"chain {CHAIN_ID} block {block}: executed in transaction {done}"
    assert [(each["level"], each["data"]) for each in found["logs"]] == [("info", told)]
    rows = await watched.executions()
    assert rows == canonical(chain, settler)
    assert len(rows) == events + 1


async def test_only_the_proposal_that_was_executed_succeeds(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    body = intent_body(settler, 1, proposals=[proposal_body(1), proposal_body(2)], events=0)
    intent = await watched.record(body)
    execute(chain, body, proposal=1)
    await watched.follow()
    found = await watched.find(intent)
    assert [each["status"] for each in found["proposals"]] == ["received", "succeeded"]
    assert "transactionHash" not in found["proposals"][0]


async def test_an_intent_event_counts_without_a_known_proposal(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    body = intent_body(settler, 1)
    intent = await watched.record({**body, "proposals": []})
    execute(chain, body)
    await watched.follow()
    assert await watched.status(intent) == "succeeded"


async def test_a_proposal_event_alone_says_nothing_of_an_intent_that_lacks_the_proposal(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    body = intent_body(settler, 1, events=0)
    intent = await watched.record({**body, "proposals": []})
    done = execute(chain, body)
    await watched.follow()
    assert await watched.status(intent) == "submitted"
    # It arrives later, and takes effect at once.
    await watched.propose(intent, body["proposals"][0], settler)
    found = await watched.find(intent)
    assert (found["status"], found["transactionHash"]) == ("succeeded", done)
    assert found["proposals"][0]["status"] == "succeeded"


async def test_no_intent_is_made_from_a_log_but_the_log_is_remembered(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    body = intent_body(settler, 1)
    done = execute(chain, body)
    await watched.follow()
    assert await watched.context.database.fetch("SELECT 1 FROM intents") == []
    intent = await watched.record({**body, "status": "created"})
    found = await watched.find(intent)
    assert (found["status"], found["transactionHash"]) == ("succeeded", done)
    assert found["logs"][0]["level"] == "info"


async def test_an_operation_event_of_the_newer_contract_names_the_intent(
    tmp_path: Path, chain: LocalChain, database_url: str
) -> None:
    emitter = Address.parse(chain.send(LOG_EMITTER)["contractAddress"])
    file = chains_file(tmp_path, {CHAIN_ID: (emitter, [chain.url])})
    async with registry(tmp_path, file, database_url=database_url) as watched:
        intent = await watched.record(intent_body(emitter, 1, proposals=[]))
        operation = (1, "0x" + "aa" * 20, "0x", [])
        data = operation_executed_data(bytes.fromhex(intent[2:]), operation, (0, [], []))
        word = Bytes32.parse("0x" + "00" * 31 + "01")
        done = chain.send(encode_emit([OPERATION_EXECUTED, word, word, word], data), emitter)["transactionHash"]
        await watched.follow()
        found = await watched.find(intent)
    assert (found["status"], found["transactionHash"]) == ("succeeded", done)


async def test_another_contract_says_nothing(watched: Registry, chain: LocalChain, settler: Address) -> None:
    body = intent_body(settler, 1)
    intent = await watched.record(body)
    stranger = chain.deploy("MiniSettlerLegacy")
    execute(chain, {**body, "settler": stranger})
    await watched.follow()
    assert await watched.status(intent) == "submitted"
    assert await watched.executions() == []


async def test_an_event_of_another_settler_than_the_intents_changes_nothing(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    # The followed contract reports a proposal whose intent names another contract.
    body = intent_body(Address.parse("0x" + "77" * 20), 1, events=0)
    intent = await watched.record(body)
    chain.send(encode_fulfil(body, body["proposals"][0]), settler, SOLVER)
    await watched.follow()
    assert len(await watched.executions()) == 1
    assert await watched.status(intent) == "submitted"


async def test_the_chain_corrects_what_operators_said_and_logs_it(
    watched: Registry, chain: LocalChain, settler: Address
) -> None:
    body = intent_body(settler, 1, status="discarded")
    intent = await watched.record(body)
    execute(chain, body)
    await watched.follow()
    found = await watched.find(intent)
    assert found["status"] == "succeeded"
    assert [each["level"] for each in found["logs"]] == ["warning"]
    assert found["logs"][0]["data"].endswith("the status was discarded")


async def test_following_again_changes_nothing(watched: Registry, chain: LocalChain, settler: Address) -> None:
    body = intent_body(settler, 1)
    intent = await watched.record(body)
    execute(chain, body)
    await watched.follow()
    before = await watched.find(intent), await watched.executions()
    # Also when every block is read again: as if the progress had been lost.
    for table in ("chain_progress", "chain_blocks"):
        await watched.context.database.write(lambda tx, table=table: tx.execute(f"DELETE FROM {table}"))
    await watched.follow()
    assert (await watched.find(intent), await watched.executions()) == before


async def test_blocks_wait_for_their_confirmations(
    tmp_path: Path, chain: LocalChain, settler: Address, database_url: str
) -> None:
    file = chains_file(tmp_path, {CHAIN_ID: (settler, [chain.url])}, confirmations=3)
    async with registry(tmp_path, file, database_url=database_url) as watched:
        body, failing = intent_body(settler, 1), intent_body(settler, 2, transactionHash=fail(chain, settler))
        intents = [await watched.record(body), await watched.record(failing)]
        execute(chain, body)
        chain.ask("anvil_mine", "0x1")
        await watched.follow()
        assert [await watched.status(intent) for intent in intents] == ["submitted", "submitted"]
        chain.ask("anvil_mine", "0x1")
        await watched.follow()
        assert [await watched.status(intent) for intent in intents] == ["submitted", "failed"]
        chain.ask("anvil_mine", "0x1")
        await watched.follow()
        assert [await watched.status(intent) for intent in intents] == ["succeeded", "failed"]
