"""Balances read from a real node, with tokens and nodes that break the rules."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from chain import CHAIN_TESTS, LocalChain
from muniment.chains.catalogue import Chain
from muniment.chains.multicall import Holding
from muniment.chains.reading import COIN, ChainReading, ReadingState, read_chain
from muniment.outgoing import Outgoing, Unreachable
from muniment.protocol.evm.address import Address
from rpc_proxy import RpcProxy, refuses_creation

pytestmark = CHAIN_TESTS

WALLET = Address.parse("0x" + "a1" * 20)
SETTLER = Address.parse("0x" + "5e" * 20)
NO_CODE = Address.parse("0x" + "c0" * 20)
UNREAD = Holding(None, None)
CHAIN = Chain(8453, "Local", settlers=(SETTLER,))


@dataclass
class Seconds:
    """A clock that a test moves."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """A chain with one plain token, every odd one, and a feed."""

    chain: LocalChain
    plain: Address
    feed: Address
    odd: dict[str, Address] = field(default_factory=dict)

    @property
    def tokens(self) -> list[Address]:
        return [self.plain, *self.odd.values(), NO_CODE]

    @property
    def expected(self) -> dict[Address, Holding]:
        most = 2**256 - 1
        odd = {
            "Bytes32SymbolToken": Holding(7 * 10**18, 0),
            "NoMetadataToken": Holding(42, 0),
            "RevertingToken": UNREAD,
            "GasBurnerToken": UNREAD,
            "ShortReturnToken": UNREAD,
            "ReturnBombToken": UNREAD,
            "HugeDecimalsToken": Holding(most, most),
            "DirtySymbolToken": Holding(1, 0),
        }
        return {
            COIN: Holding(3 * 10**18, 0),
            self.plain: Holding(123, 45),
            NO_CODE: UNREAD,
            **{self.odd[name]: holding for name, holding in odd.items()},
        }


ODD = [
    "Bytes32SymbolToken", "NoMetadataToken", "RevertingToken", "GasBurnerToken",
    "ShortReturnToken", "ReturnBombToken", "HugeDecimalsToken", "DirtySymbolToken",
]  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with LocalChain(CHAIN.id) as chain:
        plain = chain.deploy("MockERC20", "Plain", "PLN", 6)
        chain.mint(plain, WALLET, 123)
        chain.approve(plain, WALLET, SETTLER, 45)
        feed = chain.deploy("MockAggregatorV3", 8, "ETH / USD", 2_500 * 10**8)
        odd = {name: chain.deploy(name) for name in ODD}
        chain.set_balance(WALLET, 3 * 10**18)
        yield World(chain, plain, feed, odd)


@pytest.fixture
async def outgoing() -> AsyncIterator[Outgoing]:
    async with Outgoing(allow_private=True) as made:
        yield made


@pytest.fixture
def state() -> ReadingState:
    return ReadingState(Seconds())


@pytest.fixture
def read(outgoing: Outgoing, state: ReadingState) -> Callable[..., Any]:
    async def reading(
        *urls: str,
        tokens: list[Address],
        feeds: tuple[Address, ...] = (),
        chain: Chain = CHAIN,
        seconds_max: float = 60,
    ) -> ChainReading:
        asked = replace(chain, rpc_urls=urls)
        return await read_chain(outgoing, asked, WALLET, tokens, feeds, seconds_max=seconds_max, state=state)

    return reading


async def test_every_token_is_read_as_by_direct_calls_and_an_odd_token_harms_no_other(world: World, read: Any) -> None:
    found = await read(world.chain.url, tokens=world.tokens)
    assert found.holdings == world.expected
    balance = world.chain.call(world.plain, "balanceOf(address)", WALLET)
    allowance = world.chain.call(world.plain, "allowance(address,address)", WALLET, SETTLER)
    assert found.holdings[world.plain] == Holding(int.from_bytes(balance), int.from_bytes(allowance))
    assert found.block == int(world.chain.ask("eth_blockNumber"), 16)


async def test_a_feed_is_read_with_the_balances_and_an_invalid_feed_is_left_out(world: World, read: Any) -> None:
    found = await read(world.chain.url, tokens=[], feeds=(world.feed, NO_CODE, world.plain))
    assert list(found.rounds) == [world.feed]
    last = found.rounds[world.feed]
    assert last.decimals == 8
    assert int.from_bytes(last.returned[32:64]) == 2_500 * 10**8
    assert last.returned == world.chain.call(world.feed, "latestRoundData()")


async def test_200_tokens_and_a_feed_take_one_round_trip(world: World, read: Any) -> None:
    tokens = [*world.tokens, *(Address.from_raw(bytes([7] * 18 + [0, n])) for n in range(200 - len(world.tokens)))]
    with RpcProxy(world.chain.url) as proxy:
        found = await read(proxy.url, tokens=tokens, feeds=(world.feed,))
    assert len(tokens) == 200
    assert len(proxy.requests) == 1
    assert len(found.holdings) == 201
    assert {token: found.holdings[token] for token in world.expected} == world.expected


async def test_a_thousand_tokens_are_read_at_one_block(world: World, read: Any) -> None:
    filler = [Address.from_raw(bytes([8] * 18) + n.to_bytes(2)) for n in range(1_000)]
    found = await read(world.chain.url, tokens=[*filler, world.plain])
    assert found.holdings[world.plain] == Holding(123, 45)
    assert all(found.holdings[token] == UNREAD for token in filler)


async def test_chunks_from_different_blocks_are_all_read_again_at_one_block(world: World, read: Any) -> None:
    shots: list[dict[str, Any]] = []

    def later_block(call: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if call["method"] == "eth_call" and "to" not in call["params"][0]:
            shots.append(call)
            if len(shots) == 1:
                return {**answer, "result": "0x" + (10**6).to_bytes(32).hex() + answer["result"][66:]}
        return answer

    filler = [Address.from_raw(bytes([9] * 18) + n.to_bytes(2)) for n in range(400)]
    with RpcProxy(world.chain.url, change=later_block) as proxy:
        found = await read(proxy.url, tokens=[*filler, world.plain])
    assert len(proxy.requests) == 2
    assert {call["params"][1] for call in shots[2:]} == {hex(found.block)}
    assert found.holdings[world.plain] == Holding(123, 45)


async def test_a_node_that_refuses_creation_calls_is_read_through_multicall3_and_this_is_remembered(
    world: World, read: Any, state: ReadingState
) -> None:
    with RpcProxy(world.chain.url, change=refuses_creation) as proxy:
        found = await read(proxy.url, tokens=world.tokens)
        assert found.holdings == world.expected
        assert state.banned(CHAIN.id, world.tokens) == {world.odd["GasBurnerToken"], world.odd["ReturnBombToken"]}
        proxy.requests.clear()
        assert (await read(proxy.url, tokens=world.tokens)).holdings == world.expected
    assert not any("to" not in c["params"][0] for r in proxy.requests for c in r if c["method"] == "eth_call")


async def test_in_the_fall_back_a_token_that_burns_all_gas_harms_none_of_300_others(
    world: World, read: Any, state: ReadingState
) -> None:
    filler = [Address.from_raw(bytes([6] * 18) + n.to_bytes(2)) for n in range(280)]
    tokens = [world.odd["GasBurnerToken"], *filler, world.plain, world.odd["ReturnBombToken"]]
    with RpcProxy(world.chain.url, change=refuses_creation) as proxy:
        found = await read(proxy.url, tokens=tokens)
    assert found.holdings[world.plain] == Holding(123, 45)
    assert found.holdings[world.odd["ReturnBombToken"]] == UNREAD
    assert found.holdings[world.odd["GasBurnerToken"]] == UNREAD
    assert len(proxy.requests) < 40
    assert state.banned(CHAIN.id, tokens) == {world.odd["GasBurnerToken"], world.odd["ReturnBombToken"]}


async def test_in_the_fall_back_a_failure_of_the_node_is_none_of_a_token(world: World, read: Any) -> None:
    def change(call: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if call["method"] == "eth_call" and len(call["params"][0]["data"]) > 1_000:
            return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32603, "message": "internal error"}}
        return refuses_creation(call, answer)

    with RpcProxy(world.chain.url, change=change) as proxy, pytest.raises(Unreachable) as caught:
        await read(proxy.url, tokens=[world.plain])
    assert caught.value.told == "refused: internal error"


async def test_a_ban_ends_after_a_day(state: ReadingState) -> None:
    state.ban(1, [WALLET])
    state.now_s = Seconds(1_000_000.0 + 86_399)
    assert state.banned(1, [WALLET]) == {WALLET}
    assert state.banned(10, [WALLET]) == set()
    state.now_s = Seconds(1_000_000.0 + 86_401)
    assert state.banned(1, [WALLET]) == set()


async def test_a_paused_node_is_a_timeout_within_the_time_given(world: World, read: Any) -> None:
    world.chain.pause()
    try:
        began = time.monotonic()
        with pytest.raises(Unreachable) as refusal:
            await read(world.chain.url, tokens=world.tokens, seconds_max=0.5)
        assert refusal.value.reason == "timeout"
        assert time.monotonic() - began < 60
    finally:
        world.chain.resume()


async def test_a_node_of_another_chain_is_not_used(world: World, read: Any) -> None:
    with pytest.raises(Unreachable) as refusal:
        await read(world.chain.url, tokens=world.tokens, chain=replace(CHAIN, id=10))
    assert refusal.value.reason == "wrong-chain"


async def test_the_next_url_answers_for_one_that_does_not(world: World, read: Any) -> None:
    with RpcProxy(reply=(500, {}, b"")) as broken:
        found = await read(broken.url, world.chain.url, tokens=[world.plain])
    assert found.holdings[world.plain] == Holding(123, 45)
    assert len(broken.requests) == 1
