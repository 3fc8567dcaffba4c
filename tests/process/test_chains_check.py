"""`muniment chains check` against a real node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from chain import CHAIN_TESTS, LocalChain
from muniment.chains.catalogue import NATIVE, Chain
from muniment.cli.chains import as_objects, exit_status, shown
from muniment.cli.main import main
from muniment.operate.check_chains import Report, check
from muniment.outgoing import Outgoing
from muniment.protocol.evm.address import Address
from rpc_proxy import RpcProxy

pytestmark = CHAIN_TESTS

NO_CODE = Address.parse("0x" + "c0" * 20)


@pytest.fixture(scope="module")
def local() -> Iterator[LocalChain]:
    with LocalChain(8453) as chain:
        yield chain


async def reports_of(local: LocalChain, chain: Chain, tokens: list[Address], late_s: int = 0) -> list[Report]:
    now_s = int(local.ask("eth_getBlockByNumber", "latest", False)["timestamp"], 16) + late_s
    async with Outgoing(allow_private=True) as outgoing:
        return await check(outgoing, {chain.id: chain}, {chain.id: tokens}, now_s=now_s)


async def checked(local: LocalChain, chain: Chain, tokens: list[Address], late_s: int = 0) -> tuple[int, str]:
    reports = await reports_of(local, chain, tokens, late_s)
    return exit_status(reports), f"{shown(reports)}\n"


async def test_a_chain_without_faults_is_printed_with_the_generation_of_its_settlers_and_status_0(
    local: LocalChain,
) -> None:
    token, feed = local.deploy("MockERC20", "T", "T", 6), local.deploy("MockAggregatorV3", 8, "ETH / USD", 1)
    settlers = local.deploy("MiniSettlerOps"), local.deploy("MiniSettlerLegacy")
    chain = Chain(8453, "Local", rpc_urls=(local.url,), settlers=settlers, feeds={NATIVE: (feed, 3600)})
    status, told = await checked(local, chain, [token, NATIVE], late_s=7)
    block = int(local.ask("eth_blockNumber"), 16)
    told_of = "".join(f"  settler {settler}: generation {2 - place}\n" for place, settler in enumerate(settlers))
    assert (status, told) == (0, f"8453 Local, URL 1: block {block}, 7 s old\n{told_of}")


async def test_every_fault_is_printed_and_the_url_is_not(local: LocalChain) -> None:
    reverting = local.deploy("RevertingToken")
    urls = (local.url, "http://127.0.0.1:9/s3cr3t")
    chain = Chain(8453, "Local", rpc_urls=urls, settlers=(NO_CODE,), feeds={NATIVE: (NO_CODE, 3600)})
    status, told = await checked(local, chain, [reverting], late_s=1000)
    assert status == 1
    for fault in (
        "its last block is 1000 s old", f"the settler has no code at {NO_CODE}",
        f"{NO_CODE} is not a settlement contract of a known generation",
        f"the feed of {NATIVE} has no code", f"token {reverting} cannot be read", f"feed {NO_CODE} has no round",
        "URL 2: no answer\n  does not answer: unreachable",
    ):  # fmt: skip
        assert fault in told
    assert "127.0.0.1" not in told


async def test_a_node_that_gives_a_call_less_gas_is_named_by_its_number(local: LocalChain) -> None:
    def capped(call: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        gas = int(call["params"][0].get("gas", "0x0"), 16) if call["method"] == "eth_call" else 0
        refused = {"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32000, "message": "out of gas"}}
        return refused if gas > 20_000_000 else answer

    with RpcProxy(local.url, change=capped) as proxy:
        chain = Chain(8453, "Local", rpc_urls=(local.url, proxy.url))
        full, short = await reports_of(local, chain, [])
    assert not any("gas" in note for note in full.notes)
    assert any("URL 2 gives a call less than 25,000,000 gas" in note for note in short.notes)
    assert short.faults == []


async def test_json_has_an_object_for_each_url_with_the_generation_of_each_settler(local: LocalChain) -> None:
    settlers = local.deploy("MiniSettlerOps"), NO_CODE, local.deploy("MiniSettlerLegacy")
    urls = (local.url, "http://127.0.0.1:9/s3cr3t")
    answered, silent = as_objects(await reports_of(local, Chain(8453, "Local", urls, settlers), [], late_s=7))
    assert answered == {
        "chainId": 8453, "name": "Local", "url": 1, "block": int(local.ask("eth_blockNumber"), 16),
        "blockAgeSeconds": 7,
        "settlers": [
            {"address": settler, "generation": generation}
            for settler, generation in zip(settlers, (2, None, 1), strict=True)
        ],
        "faults": [
            f"the settler has no code at {NO_CODE}",
            f"{NO_CODE} is not a settlement contract of a known generation",
        ],
        "notes": [],
    }  # fmt: skip
    assert (silent["url"], silent["block"], silent["blockAgeSeconds"]) == (2, None, None)
    assert [each["generation"] for each in silent["settlers"]] == [None] * 3
    assert silent["faults"] == ["does not answer: unreachable: ConnectError"]


async def test_a_chain_without_settlers_is_fine_and_another_chain_is_a_fault(local: LocalChain) -> None:
    chain = Chain(8453, "Local", rpc_urls=(local.url,))
    status, told = await checked(local, chain, [])
    assert status == 0
    assert "no settler is configured" in told
    assert "Multicall3" not in told
    status, told = await checked(local, replace(chain, id=10), [])
    assert (status, "answers for chain 8453" in told) == (1, True)


async def test_no_chain_with_a_url_is_said() -> None:
    async with Outgoing(allow_private=False) as outgoing:
        reports = await check(outgoing, {1: Chain(1, "Ethereum")}, {}, now_s=0)
    assert exit_status(reports) == 1
    assert "no chain has an RPC URL" in shown(reports)


async def test_a_node_in_the_own_network_needs_a_setting_that_is_named() -> None:
    chain = Chain(1, "Ethereum", rpc_urls=("http://127.0.0.1:9",))
    async with Outgoing(allow_private=False) as outgoing:
        (report,) = await check(outgoing, {1: chain}, {}, now_s=0)
    (fault,) = report.faults
    assert "MUNIMENT_ALLOW_PRIVATE_NETWORKS=true" in fault


def test_the_command_prints_json_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["chains", "check", "--json"])
    assert (result.exit_code, result.output) == (1, "[]\n")
