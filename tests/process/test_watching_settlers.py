"""Several settlement contracts of one chain, followed together: also one that is added later."""

from __future__ import annotations

from pathlib import Path

import pytest

from chain import CHAIN_TESTS, LocalChain
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
pytestmark = [*CHAIN_TESTS, pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)]


def asked_logs(proxy: RpcProxy) -> list[tuple[list[str], int, int]]:
    asked = [call["params"][0] for calls in proxy.requests for call in calls if call["method"] == "eth_getLogs"]
    return [(each["address"], int(each["fromBlock"], 16), int(each["toBlock"], 16)) for each in asked]


async def test_all_settlers_are_followed_with_one_request_for_logs(
    tmp_path: Path, chain: LocalChain, settler: Address, database_url: str
) -> None:
    newer = chain.deploy("MiniSettlerLegacy")
    bodies = [intent_body(settler, 1), intent_body(newer, 2), intent_body(settler, 3), intent_body(newer, 4)]
    bodies[2]["transactionHash"], bodies[3]["transactionHash"] = fail(chain, settler), fail(chain, newer)
    with RpcProxy(chain.url) as proxy:
        file = chains_file(tmp_path, {CHAIN_ID: ((newer, settler), [proxy.url])})
        async with registry(tmp_path, file, database_url=database_url) as watched:
            intents = [await watched.record(body) for body in bodies]
            execute(chain, bodies[0])
            execute(chain, bodies[1])
            assert await watched.follow()
            assert [await watched.status(each) for each in intents] == ["succeeded"] * 2 + ["failed"] * 2
            assert await watched.executions() == sorted(canonical(chain, settler) + canonical(chain, newer))
            assert await progress(watched) == [int(chain.ask("eth_blockNumber"), 16) + 1] * 2
        assert [each[0] for each in asked_logs(proxy)] == [[newer, settler]]


async def progress(watched: Registry) -> list[int]:
    rows = await watched.context.database.fetch("SELECT next_block FROM chain_progress ORDER BY next_block")
    return [block for (block,) in rows]


async def test_a_settler_that_is_added_is_followed_up_to_the_others_and_then_with_them(
    tmp_path: Path, chain: LocalChain, settler: Address, database_url: str
) -> None:
    newer = chain.deploy("MiniSettlerLegacy")
    bodies = [intent_body(settler, 1), intent_body(newer, 2), intent_body(settler, 3), intent_body(newer, 4)]
    file = chains_file(tmp_path, {CHAIN_ID: (settler, [chain.url])})
    async with registry(tmp_path, file, database_url=database_url) as watched:
        intents = [await watched.record(body) for body in bodies]
        execute(chain, bodies[0])
        execute(chain, bodies[1])
        assert await watched.follow()
        assert [await watched.status(each) for each in intents[:2]] == ["succeeded", "submitted"]
        (reached,) = await progress(watched)
    with RpcProxy(chain.url) as proxy:
        file = chains_file(tmp_path, {CHAIN_ID: ((newer, settler), [proxy.url])})
        async with registry(tmp_path, file, database_url=database_url) as watched:
            execute(chain, bodies[2])
            execute(chain, bodies[3])
            head = int(chain.ask("eth_blockNumber"), 16)
            assert await watched.follow()
            assert [await watched.status(each) for each in intents] == ["succeeded"] * 4
            assert [len((await watched.find(each))["logs"]) for each in intents] == [1] * 4
            assert await watched.executions() == sorted(canonical(chain, settler) + canonical(chain, newer))
            assert await progress(watched) == [head + 1] * 2
        assert asked_logs(proxy) == [([newer], 0, reached - 1), ([newer, settler], reached, head)]


async def test_a_failed_transaction_fails_the_intents_of_every_settler_that_name_it(
    tmp_path: Path, chain: LocalChain, settler: Address, database_url: str
) -> None:
    # A transaction of a solver's own contract may call several settlers.
    newer = chain.deploy("MiniSettlerLegacy")
    done = fail(chain, settler)
    file = chains_file(tmp_path, {CHAIN_ID: ((newer, settler), [chain.url])})
    async with registry(tmp_path, file, database_url=database_url) as watched:
        intents = [await watched.record(intent_body(each, 1, transactionHash=done)) for each in (settler, newer)]
        assert await watched.follow()
        assert [await watched.status(each) for each in intents] == ["failed", "failed"]
