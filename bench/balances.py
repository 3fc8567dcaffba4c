"""Reading a wallet's balances on three chains against the bare calls that carry them, in the same run, taking turns.

The chains are anvil nodes on this machine, so nothing is on the way, and what a reading costs beside its calls shows.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import uvloop

from muniment.chains.catalogue import NATIVE, Chain
from muniment.chains.holdings import KEPT_MS, Holdings
from muniment.chains.multicall import (
    ALLOWANCE,
    BALANCE_OF,
    Read,
    aggregate3,
    decode_aggregate3,
    decode_one_shot,
    number_of,
    one_shot,
    word,
)
from muniment.chains.reading import COIN
from muniment.chains.rpc import Call, eth_call
from muniment.chains.token_lists import TokenLists
from muniment.evm.address import Address
from muniment.evm.hashing import keccak256
from muniment.evm.hex import data_of
from muniment.outgoing import Outgoing
from muniment.wire import encode

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_chain: Any = import_module("chain")
_rpc_proxy: Any = import_module("rpc_proxy")

CHAIN_IDS = (8453, 137, 42161)
TOKENS = 200
# Every tenth token is held, and half of those may be spent by the settler.
HELD_EVERY, APPROVED_EVERY = 10, 20
ROUNDS = 9
READINGS = 30
WALLET, SETTLER = Address.parse("0x" + "a1" * 20), Address.parse("0x" + "5e" * 20)
COINS = 10**18
MUNIMENT, ONE_SHOT, ONE_SHOT_OURS, MULTICALL3 = (
    "muniment", "bare one-shot, httpx2", "bare one-shot, our client", "bare Multicall3, httpx2",
)  # fmt: skip

Amounts = dict[tuple[int, Address], tuple[int, int]]
Reading = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Cost:
    """Milliseconds of one reading of all chains: by the clock, and of this process's CPU, without the nodes'."""

    wall_ms: float
    cpu_ms: float


@dataclass
class Clock:
    """A clock that is moved by hand."""

    now_ms: int = 1_800_000_000_000

    def __call__(self) -> int:
        """Unix time in milliseconds."""
        return self.now_ms


def measure() -> dict[str, list[Cost]] | None:
    """What one reading has cost, by way of reading and round; None when there is no anvil to read from."""
    if not _chain.ANVIL.exists():
        return None
    with ExitStack() as stack:
        nodes = [stack.enter_context(_chain.LocalChain(chain_id)) for chain_id in CHAIN_IDS]
        tokens = [Address.from_raw(keccak256(f"token {number}".encode())[12:]) for number in range(TOKENS)]
        amounts: Amounts = {}
        for node in nodes:
            amounts |= _furnished(node, tokens)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        chains = {
            node.chain_id: Chain(node.chain_id, "Local", rpc_urls=(node.url,), settlers=(SETTLER,)) for node in nodes
        }
        return uvloop.run(_measured(chains, tokens, amounts, directory))


def _furnished(node: Any, tokens: list[Address]) -> Amounts:
    """Give a chain its tokens, and the wallet some of them; what a reading has to find."""
    code = node.ask("eth_getCode", node.deploy("MockERC20", "Token", "TKN", 18), "latest")
    amounts: Amounts = {(node.chain_id, NATIVE): (COINS, 0)}
    for number, token in enumerate(tokens):
        node.ask("anvil_setCode", token, code)
        if number % HELD_EVERY == 0:
            balance = node.chain_id * COINS + number
            node.mint(token, WALLET, balance)
            allowance = 0
            if number % APPROVED_EVERY == 0:
                allowance = COINS + number
                node.approve(token, WALLET, SETTLER, allowance)
            amounts[node.chain_id, token] = balance, allowance
    node.set_balance(WALLET, COINS)
    return amounts


async def _measured(
    chains: dict[int, Chain], tokens: list[Address], amounts: Amounts, directory: Path
) -> dict[str, list[Cost]]:
    async with AsyncExitStack() as stack:
        outgoing = await stack.enter_async_context(Outgoing(allow_private=True))
        client = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False))
        clock = Clock()
        lists = _lists(directory, tokens, outgoing, clock)
        await _check_round_trips(chains, lists, outgoing, clock)
        urls = {chain.id: chain.rpc_urls[0] for chain in chains.values()}
        code = bytes.fromhex(resources.files("muniment.chains").joinpath("one_shot_reader.hex").read_text("ascii"))
        shot = _body(eth_call(one_shot(code, WALLET, SETTLER, [COIN, *tokens])))
        reads = [Read(token, data) for token in tokens for data in _calldata()]
        aggregate = _body(eth_call(aggregate3(reads), to=_chain.MULTICALL3))
        holdings = Holdings(chains, lists, (), outgoing, now_ms=clock, seconds_max=5)
        await _check_holdings(holdings, clock, amounts)
        for chain_id, url in urls.items():
            expected = {token: held for (of_chain, token), held in amounts.items() if of_chain == chain_id}
            assert _of_one_shot(await _by_httpx2(client, url, shot), tokens) == expected
            assert _of_one_shot(await outgoing.post(url, shot, seconds_max=5), tokens) == expected
            del expected[NATIVE]  # Multicall3 is asked for tokens alone
            assert _of_aggregate(await _by_httpx2(client, url, aggregate), tokens) == expected
        return await _rounds(
            {
                MUNIMENT: lambda: _read(holdings, clock),
                ONE_SHOT: lambda: asyncio.gather(*(_by_httpx2(client, url, shot) for url in urls.values())),
                ONE_SHOT_OURS: lambda: asyncio.gather(
                    *(outgoing.post(url, shot, seconds_max=5) for url in urls.values())
                ),
                MULTICALL3: lambda: asyncio.gather(*(_by_httpx2(client, url, aggregate) for url in urls.values())),
            }
        )


def _lists(directory: Path, tokens: list[Address], outgoing: Outgoing, clock: Clock) -> TokenLists:
    listed = [
        {"chainId": chain_id, "address": token, "symbol": f"T{number}", "name": f"Token {number}", "decimals": 18}
        for chain_id in CHAIN_IDS
        for number, token in enumerate(tokens)
    ]
    version = {"major": 1, "minor": 0, "patch": 0}
    document = {"name": "Local", "timestamp": "2026-11-20T00:00:00+00:00", "version": version, "tokens": listed}
    path = directory / "list.json"
    path.write_text(json.dumps(document), "utf-8")
    return TokenLists([path], chains=CHAIN_IDS, directory=directory, outgoing=outgoing, now_ms=clock)


async def _read(holdings: Holdings, clock: Clock) -> Any:
    """A reading that nothing is remembered for."""
    clock.now_ms += KEPT_MS
    return await holdings.of(WALLET)


def _calldata() -> tuple[bytes, bytes]:
    return BALANCE_OF + word(WALLET), ALLOWANCE + word(WALLET) + word(SETTLER)


def _body(call: Call) -> bytes:
    return encode({"jsonrpc": "2.0", "id": 0, "method": call.method, "params": call.params})


async def _by_httpx2(client: httpx2.AsyncClient, url: str, body: bytes) -> bytes:
    return (await client.post(url, content=body, headers={"content-type": "application/json"})).content


async def _check_round_trips(chains: Mapping[int, Chain], lists: TokenLists, outgoing: Outgoing, clock: Clock) -> None:
    """Each reading is one HTTP request to each chain, and none is answered from memory."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(_rpc_proxy.RpcProxy(chain.rpc_urls[0])) for chain in chains.values()]
        behind = {
            chain.id: replace(chain, rpc_urls=(proxy.url,))
            for chain, proxy in zip(chains.values(), proxies, strict=True)
        }
        holdings = Holdings(behind, lists, (), outgoing, now_ms=clock, seconds_max=5)
        for number in (1, 2):
            await _read(holdings, clock)
            assert [len(proxy.requests) for proxy in proxies] == [number] * len(chains)


async def _check_holdings(holdings: Holdings, clock: Clock, amounts: Amounts) -> None:
    """Exactly what the wallet was given is found, on every chain."""
    found = await _read(holdings, clock)
    assert found.chains_read == len(CHAIN_IDS)
    assert {(held.token.chain_id, held.token.address): (held.balance, held.allowance) for held in found.held} == amounts


def _of_one_shot(answer: bytes, tokens: list[Address]) -> dict[Address, tuple[int, int]]:
    """What a bare answer says is held: the calls that are compared do the same work."""
    shot = decode_one_shot(_result(answer), len(tokens) + 1)
    assert shot is not None
    assert shot.tried == len(tokens) + 1
    named = [NATIVE, *tokens]
    return {named[index]: (held.balance or 0, held.allowance or 0) for index, held in shot.found.items()}


def _of_aggregate(answer: bytes, tokens: list[Address]) -> dict[Address, tuple[int, int]]:
    returned = decode_aggregate3(_result(answer), 2 * len(tokens))
    assert returned is not None
    numbers = [number_of(each) for each in returned]
    assert None not in numbers
    found = zip(tokens, numbers[::2], numbers[1::2], strict=True)
    return {token: (balance or 0, allowance or 0) for token, balance, allowance in found if balance}


def _result(answer: bytes) -> bytes:
    data = data_of(msgspec.json.decode(answer)["result"])
    assert data is not None
    return data


async def _rounds(ways: Mapping[str, Reading]) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, reading in ways.items():
            cost = await _cost(reading)
            if number:  # the first round warms up
                costs[name].append(cost)
    return costs


async def _cost(reading: Reading) -> Cost:
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(READINGS):
        await reading()
    wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
    return Cost(wall / READINGS / 1e6, cpu / READINGS / 1e6)
