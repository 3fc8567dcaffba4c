"""GET /users/tokens over HTTP against two real nodes that stand for two chains."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

import warm
from builders import Wallet, log_in
from chain import CHAIN_TESTS, LocalChain, encoded, selector
from conformance import check_answer
from migrated import migrated_directory
from muniment.chains.catalogue import NATIVE
from muniment.operate.sample_day.records import KEYS
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import address_of_key
from muniment.service.app import Application, build_context
from muniment.service.running.settings import Settings
from rpc_proxy import RpcProxy
from without_server import InProcess

pytestmark = CHAIN_TESTS

OWNER = Wallet(7)
HOLDER = Address(OWNER.address)
SETTLER = Address.parse("0x" + "5e" * 20)
FIRST, SECOND = 8453, 137
# Enough for a node that answers, on a busy machine too.
TIME_BOX_S = 20


@dataclass
class Chains:
    """Two nodes, with the tokens of each by symbol, and a feed on the first."""

    first: LocalChain
    second: LocalChain
    tokens: dict[int, dict[str, Address]]
    feed: Address


@pytest.fixture(scope="module")
def chains() -> Iterator[Chains]:
    with LocalChain(FIRST) as first, LocalChain(SECOND) as second:
        tokens: dict[int, dict[str, Address]] = {}
        for number, chain in enumerate((first, second), start=1):
            tokens[chain.chain_id] = {
                "Coin": chain.deploy("MockERC20", "Coin", "COIN", 6),
                "Odd": chain.deploy("RevertingToken"),
                "Empty": chain.deploy("MockERC20", "Empty", "NONE", 18),
            }
            chain.mint(tokens[chain.chain_id]["Coin"], HOLDER, 2**256 - number)
            chain.approve(tokens[chain.chain_id]["Coin"], HOLDER, SETTLER, 45 * number)
            chain.set_balance(HOLDER, 3 * 10**18 + number)
        feed = first.deploy("MockAggregatorV3", 8, "COIN / USD", 123_456_789)
        yield Chains(first, second, tokens, feed)


@dataclass
class Registry:
    """A logged-in client of a registry on these chains."""

    client: httpx2.AsyncClient

    async def ask(self) -> httpx2.Response:
        return await self.client.get("/users/tokens")


def chains_file(directory: Path, chains: Chains, urls: dict[int, list[str]]) -> Path:
    listed = [
        {"chainId": chain_id, "address": address, "symbol": symbol.upper(), "name": symbol, "decimals": 6}
        for chain_id, tokens in chains.tokens.items()
        for symbol, address in tokens.items()
    ]
    document = {
        "name": "Local", "timestamp": "2026-11-20T00:00:00+00:00", "version": {"major": 1, "minor": 0, "patch": 0},
        "tokens": listed,
    }  # fmt: skip
    (directory / "list.json").write_text(json.dumps(document))
    tables = [
        f'[[chains]]\nid = {chain_id}\nrpc_urls = {json.dumps(rpc_urls)}\nsettler = "{SETTLER}"\n'
        'token_lists = ["list.json"]\n'
        + (
            f'[chains.feeds]\n"{chains.tokens[FIRST]["Coin"]}" = {{feed = "{chains.feed}", heartbeat = 86400}}\n'
            if chain_id == FIRST
            else ""
        )
        for chain_id, rpc_urls in urls.items()
    ]
    path = directory / "chains.toml"
    path.write_text("\n".join(tables))
    return path


@asynccontextmanager
async def registry(
    directory: Path, chains: Chains, urls: dict[int, list[str]], **settings: Any
) -> AsyncGenerator[Registry]:
    own = {"allow_private_networks": True, "balances_timeout_s": 60, "blocks_url": "database:"}
    given: dict[str, Any] = {**own, **settings}
    migrated_directory(directory / "data")
    file = chains_file(directory, chains, urls)
    made = Settings(data_dir=directory / "data", log_level="warning", chains_file=str(file), **given)
    context = build_context(made)
    await context.database.migrate()
    transport = InProcess(Application(context))
    hooks: dict[str, list[Any]] = {"response": [check_answer]}
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", event_hooks=hooks) as client:
        client.headers["x-auth-token"] = await log_in(client, OWNER)
        yield Registry(client)
    await context.outgoing.close()
    await context.database.close()


def both(chains: Chains) -> dict[int, list[str]]:
    return {FIRST: [chains.first.url], SECOND: [chains.second.url]}


def by_token(response: httpx2.Response) -> dict[tuple[int, str], dict[str, Any]]:
    assert response.status_code == 200, response.text
    return {(each["chainId"], each["address"]): each for each in response.json()}


async def test_balances_and_allowances_are_those_of_the_chain(tmp_path: Path, chains: Chains) -> None:
    async with registry(tmp_path, chains, both(chains)) as asked:
        response = await asked.ask()
    found = by_token(response)
    for number, chain in enumerate((chains.first, chains.second), start=1):
        coin = chains.tokens[chain.chain_id]["Coin"]
        balance = int.from_bytes(chain.call(coin, "balanceOf(address)", HOLDER))
        allowance = int.from_bytes(chain.call(coin, "allowance(address,address)", HOLDER, SETTLER))
        assert (balance, allowance) == (2**256 - number, 45 * number)
        record = found[chain.chain_id, coin]
        assert (record["balance"], record["allowance"]) == (str(balance), str(allowance))
        assert (record["symbol"], record["decimals"]) == ("COIN", 6)
        native = found[chain.chain_id, NATIVE]
        assert (native["balance"], native["allowance"]) == (str(3 * 10**18 + number), "0")
        assert native["decimals"] == 18
    # The reverting token and the one of which nothing is held are not listed.
    assert len(found) == 4
    assert all(each["logo"].startswith("data:image/svg+xml,") for each in found.values())
    assert response.headers["cache-control"] == "no-store"
    assert "x-partial" not in response.headers


async def test_a_price_comes_from_the_feed_and_the_rest_is_named(tmp_path: Path, chains: Chains) -> None:
    # 1.23456789 dollars, of now: the node's clock and ours differ by seconds at most.
    chains.first.send(selector("set(int256,uint256)") + encoded((123_456_789, int(time.time()))), chains.feed)
    async with registry(tmp_path, chains, both(chains)) as asked:
        response = await asked.ask()
    found = by_token(response)
    coin = chains.tokens[FIRST]["Coin"]
    assert found[FIRST, coin]["price"] == 1.23456789
    others = {key for key in found if key != (FIRST, coin)}
    assert {found[key]["price"] for key in others} == {0}
    assert set(response.headers["x-unpriced"].split(", ")) == {f"{chain}:{address}" for chain, address in others}


@pytest.mark.parametrize("answer", [0, -5, 10**30], ids=["zero", "negative", "absurd"])
async def test_an_answer_of_a_feed_that_is_not_a_price_gives_no_price(
    tmp_path: Path, chains: Chains, answer: int
) -> None:
    chains.first.send(selector("set(int256,uint256)") + encoded((answer, int(time.time()))), chains.feed)
    async with registry(tmp_path, chains, {FIRST: [chains.first.url]}) as asked:
        response = await asked.ask()
    coin = chains.tokens[FIRST]["Coin"]
    assert by_token(response)[FIRST, coin]["price"] == 0
    assert f"{FIRST}:{coin}" in response.headers["x-unpriced"]


async def test_a_stale_round_is_no_price_and_a_fixed_one_takes_its_place(tmp_path: Path, chains: Chains) -> None:
    coin = chains.tokens[FIRST]["Coin"]
    chains.first.send(selector("set(int256,uint256)") + encoded((10**8, int(time.time()) - 3 * 86_400)), chains.feed)
    (tmp_path / "prices.json").write_text(json.dumps({f"{FIRST}:{coin}": 0.0000001}))
    prices_file = str(tmp_path / "prices.json")
    async with registry(tmp_path, chains, {FIRST: [chains.first.url]}, prices_file=prices_file) as asked:
        response = await asked.ask()
    assert by_token(response)[FIRST, coin]["price"] == 1e-7
    assert '"price":0.0000001,' in response.text
    assert str(coin) not in response.headers["x-unpriced"]


async def test_the_next_url_is_asked_when_one_fails(tmp_path: Path, chains: Chains) -> None:
    urls = {FIRST: ["http://127.0.0.1:1", chains.first.url]}
    async with registry(tmp_path, chains, urls) as asked:
        response = await asked.ask()
    assert (FIRST, NATIVE) in by_token(response)
    assert "x-partial" not in response.headers


async def test_a_chain_that_is_down_is_left_out_and_named(tmp_path: Path, chains: Chains) -> None:
    urls = {FIRST: [chains.first.url], SECOND: ["http://127.0.0.1:1"]}
    async with registry(tmp_path, chains, urls) as asked:
        response = await asked.ask()
    assert {chain for chain, _ in by_token(response)} == {FIRST}
    assert response.headers["x-partial"] == f"chain={SECOND}; reason=unreachable"


@pytest.mark.long
async def test_a_chain_that_hangs_costs_no_more_than_the_time_box(tmp_path: Path, chains: Chains) -> None:
    async with registry(tmp_path, chains, both(chains), balances_timeout_s=TIME_BOX_S) as asked:
        chains.second.pause()
        try:
            started = time.monotonic()
            response = await asked.ask()
            assert time.monotonic() - started < TIME_BOX_S + 60
        finally:
            chains.second.resume()
    assert {chain for chain, _ in by_token(response)} == {FIRST}
    assert response.headers["x-partial"] == f"chain={SECOND}; reason=timeout"


async def test_a_node_of_another_chain_is_not_used(tmp_path: Path, chains: Chains) -> None:
    urls = {FIRST: [chains.first.url], SECOND: [chains.first.url]}
    async with registry(tmp_path, chains, urls) as asked:
        response = await asked.ask()
    assert {chain for chain, _ in by_token(response)} == {FIRST}
    assert response.headers["x-partial"] == f"chain={SECOND}; reason=wrong-chain"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ((200, {}, b"garbage"), "garbage"),
        ((200, {}, b'[{"id":0,"result":"\xff"}]'), "garbage"),
        ((200, {}, b"[" * 100_000), "garbage"),
        ((200, {}, b"[]"), "garbage"),
        ((200, {}, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no batches"}}'), "refused"),
        ((500, {}, b"{}"), "http-500"),
        ((302, {"location": "http://169.254.169.254/latest/meta-data"}, b""), "http-302"),
        ((200, {}, b" " * (9 * 2**20)), "too-large"),
    ],
    ids=["text", "not UTF-8", "deep", "empty batch", "no batches", "500", "redirect", "9 MiB"],
)
async def test_a_node_that_answers_something_else_is_named(
    tmp_path: Path, chains: Chains, reply: Any, reason: str
) -> None:
    with RpcProxy(reply=reply) as proxy:
        urls = {FIRST: [chains.first.url], SECOND: [proxy.url]}
        async with registry(tmp_path, chains, urls) as asked:
            response = await asked.ask()
    assert {chain for chain, _ in by_token(response)} == {FIRST}
    assert response.headers["x-partial"] == f"chain={SECOND}; reason={reason}"


async def test_a_private_address_is_refused_unless_a_setting_allows_it(tmp_path: Path, chains: Chains) -> None:
    async with registry(tmp_path, chains, both(chains), allow_private_networks=False) as asked:
        response = await asked.ask()
    assert (response.status_code, response.json()["code"]) == (503, "chains-unavailable")
    assert "forbidden-address" in response.json()["detail"]
    assert chains.first.url not in response.text


async def test_no_chain_at_all_answering_is_503_and_not_an_empty_list(tmp_path: Path, chains: Chains) -> None:
    urls = {FIRST: ["http://127.0.0.1:1"], SECOND: ["http://127.0.0.1:1"]}
    async with registry(tmp_path, chains, urls) as asked:
        response = await asked.ask()
    assert (response.status_code, response.json()["code"]) == (503, "chains-unavailable")
    assert int(response.headers["retry-after"]) > 0


async def test_no_chain_configured_is_an_empty_list(client: httpx2.AsyncClient) -> None:
    response = await client.get("/users/tokens", headers={"x-auth-token": await log_in(client, OWNER)})
    assert response.json() == []


async def test_simultaneous_requests_of_balances_share_one_request_to_the_node(tmp_path: Path, chains: Chains) -> None:
    with RpcProxy(chains.first.url) as proxy:
        async with registry(tmp_path, chains, {FIRST: [proxy.url]}) as asked:
            answers = await asyncio.gather(*(asked.ask() for _ in range(20)))
        assert len({answer.text for answer in answers}) == 1
        assert len(proxy.requests) == 1


def test_the_walk_through_shows_balances_of_a_node_on_this_machine(tmp_path: Path, chains: Chains) -> None:
    file = chains_file(tmp_path, chains, {FIRST: [chains.first.url]})
    chains.first.set_balance(address_of_key(KEYS[0]), 10**18)
    words = ["demo", "--port", "0", "--chains", str(file), "--data-dir", str(tmp_path / "demo")]
    environment = {**os.environ, "MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true", "PYTHONPATH": str(warm.UNHURRIED)}
    demo = warm.popen(words, environment)
    assert demo.stdout is not None
    told: list[str] = []
    for line in demo.stdout:
        told.append(line)
        if "Ctrl-C" in line:
            break
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=60)
    assert demo.returncode == 0
    assert any(re.match(r" +balance +[1-9][0-9.]* ETH on ", line) for line in told), told
