"""The HTTP API of prices: asked seldom, in bounded requests, and believed only as far as it deserves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from foreign_server import ForeignServer, foreign_server
from hypothesis import given, settings, strategies as st

from each_row import each_row
from muniment.chains.catalogue import NATIVE
from muniment.chains.prices import PriceApi, prices
from muniment.outgoing import Outgoing
from muniment.protocol.evm.address import Address

USDC = Address.parse("0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48")
COIN = (1, USDC)
NAME = f"ethereum:{USDC.lower()}"
CHAINS = {1: "ethereum", 10: "optimism", 8453: "base"}
NOW_S = 1_763_700_000
NOW_MS = NOW_S * 1000


def said(**changed: Any) -> dict[str, Any]:
    usual = {"price": 1.01, "timestamp": NOW_S, "confidence": 0.99, "symbol": "USDC", "decimals": 6}
    return {name: value for name, value in (usual | changed).items() if value is not ...}


def answer(coin: Any, name: str = NAME) -> bytes:
    return json.dumps({"coins": {name: coin}}).encode()


def everything(path: str) -> bytes:
    """An answer with a price for all that is asked."""
    names = urlsplit(path).path.rpartition("/")[2].split(",")
    return json.dumps({"coins": {name: said() for name in names}}).encode()


@pytest.fixture
def server() -> Iterator[ForeignServer]:
    with foreign_server() as server:
        server.body = answer(said())
        yield server


@pytest.fixture
async def api(server: ForeignServer) -> AsyncIterator[PriceApi]:
    async with Outgoing(allow_private=True) as outgoing:
        yield PriceApi(server.url + "/", outgoing, CHAINS, seconds_max=60)


async def test_a_coin_has_the_price_that_the_api_says(api: PriceApi, server: ForeignServer) -> None:
    assert await api.prices([COIN, (10, USDC), (84532, USDC)], NOW_MS) == {COIN: 1.01}
    assert server.asked == [f"/prices/current/{NAME},optimism:{USDC.lower()}?searchWidth=4h"]


async def test_chains_without_a_name_are_not_asked_for(api: PriceApi, server: ForeignServer) -> None:
    assert await api.prices([(84532, USDC)], NOW_MS) == {}
    assert server.asked == []


async def test_the_native_coin_is_the_zero_address(api: PriceApi, server: ForeignServer) -> None:
    server.body = everything
    assert await api.prices([(1, NATIVE)], NOW_MS) == {(1, NATIVE): 1.01}
    assert server.asked[0].startswith(f"/prices/current/ethereum:0x{'0' * 40}?")


async def test_the_answer_may_spell_the_address_otherwise(api: PriceApi, server: ForeignServer) -> None:
    server.body = answer(said(), f"ethereum:{USDC}")
    assert await api.prices([COIN], NOW_MS) == {COIN: 1.01}


async def test_a_chain_may_have_capitals_in_its_name(server: ForeignServer) -> None:
    async with Outgoing(allow_private=True) as outgoing:
        api = PriceApi(server.url, outgoing, {1: "Ethereum"}, seconds_max=60)
        assert await api.prices([COIN], NOW_MS) == {COIN: 1.01}
    assert server.asked == [f"/prices/current/Ethereum:{USDC.lower()}?searchWidth=4h"]


@pytest.mark.parametrize(
    "good",
    [{"confidence": 0.9}, {"confidence": 1}, {"timestamp": NOW_S - 4 * 3600}, {"timestamp": NOW_S + 300}, {"price": 1}],
    ids=str,
)  # fmt: skip
async def test_a_price_at_the_limits_is_known(api: PriceApi, server: ForeignServer, good: dict[str, Any]) -> None:
    server.body = answer(said(**good))
    assert COIN in await api.prices([COIN], NOW_MS)


@pytest.mark.parametrize(
    "coin",
    [
        *[said(confidence=value) for value in (0.89, 1.01, -1, "1", None, True, ...)],
        *[said(timestamp=value) for value in (NOW_S - 4 * 3600 - 1, NOW_S + 301, 0, -1, "now", None, 10**400, ...)],
        *[said(price=value) for value in (0, -1, 1.1e12, 1e308, 10**400, "1", True, None, [], ...)],
        None, [], 7, "x",
    ],
    ids=lambda coin: str(coin)[:70],
)  # fmt: skip
async def test_a_doubtful_price_is_unknown(api: PriceApi, server: ForeignServer, coin: Any) -> None:
    server.body = answer(coin)
    assert await api.prices([COIN], NOW_MS) == {}
    assert len(server.asked) == 1


async def test_one_doubtful_price_does_not_spoil_the_others(api: PriceApi, server: ForeignServer) -> None:
    server.body = json.dumps({"coins": {NAME: said(), f"base:{USDC.lower()}": {"price": "x"}}}).encode()
    assert await api.prices([COIN, (8453, USDC)], NOW_MS) == {COIN: 1.01}


@pytest.mark.parametrize(
    "broken",
    [
        {"status": 500}, {"status": 429}, {"status": 302, "headers": {"location": "/"}}, {"body": b""},
        {"body": b"<html>"}, {"body": b"[]"}, {"body": b"{}"}, {"body": b'{"coins":[]}'}, {"body": b'{"coins":null}'},
        {"body": answer(said()).replace(b"1.01", b"NaN")}, {"body": answer(said()).replace(b"1.01", b"1e999")},
        {"body": answer(said()).ljust(9 * 2**20)}, {"body": b"[" * 10_000}, {"body": b"\xff"},
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
async def test_an_api_that_fails_knows_nothing(api: PriceApi, server: ForeignServer, broken: dict[str, Any]) -> None:
    for name, value in broken.items():
        setattr(server, name, value)
    assert await prices([api], [COIN], NOW_MS) == {}
    assert len(server.asked) == 1


async def test_a_slow_api_knows_nothing(server: ForeignServer) -> None:
    server.delay_s = 60
    async with Outgoing(allow_private=True) as outgoing:
        api = PriceApi(server.url, outgoing, CHAINS, seconds_max=0.05)
        assert await api.prices([COIN], NOW_MS) == {}


async def test_an_api_that_is_not_there_knows_nothing() -> None:
    async with Outgoing(allow_private=True) as outgoing:
        assert await PriceApi("http://127.0.0.1:1", outgoing, CHAINS).prices([COIN], NOW_MS) == {}
        assert await PriceApi("http://127.0.0.1:99999", outgoing, CHAINS).prices([COIN], NOW_MS) == {}


@each_row("url", ["", "ftp://a", "coins.llama.fi", "https://a b", "https://" + "x" * 1017])
async def test_an_api_has_a_url_of_http(url: str) -> None:
    async with Outgoing(allow_private=True) as outgoing:
        with pytest.raises(ValueError, match="the URL of a price API"):
            PriceApi(url, outgoing, CHAINS)


async def test_an_answer_is_kept_for_a_minute(api: PriceApi, server: ForeignServer) -> None:
    for after_ms, asked in [(0, 1), (59_999, 1), (60_000, 2), (30_000, 3)]:  # and not when the clock was set back
        assert await api.prices([COIN, (10, USDC)], NOW_MS + after_ms) == {COIN: 1.01}
        assert len(server.asked) == asked


async def test_after_a_failure_the_api_is_left_alone_for_ten_seconds(api: PriceApi, server: ForeignServer) -> None:
    server.status = 500
    assert await api.prices([COIN], NOW_MS) == {}
    server.status = 200
    assert await api.prices([COIN], NOW_MS + 9_999) == {}
    assert await api.prices([COIN], NOW_MS + 10_000) == {COIN: 1.01}


async def test_concurrent_callers_share_one_request(api: PriceApi, server: ForeignServer) -> None:
    server.delay_s = 0.1
    found = await asyncio.gather(*(api.prices([COIN], NOW_MS) for _ in range(20)))
    assert found == [{COIN: 1.01}] * 20
    assert len(server.asked) == 1


async def test_a_caller_that_gives_up_takes_nothing_from_the_others(api: PriceApi, server: ForeignServer) -> None:
    server.delay_s = 0.2
    hasty = asyncio.create_task(api.prices([COIN], NOW_MS))
    patient = asyncio.create_task(api.prices([COIN], NOW_MS))
    await asyncio.sleep(0.05)
    hasty.cancel()
    assert await patient == {COIN: 1.01}
    assert len(server.asked) == 1


async def test_many_coins_are_asked_for_in_bounded_requests(api: PriceApi, server: ForeignServer) -> None:
    server.body = everything
    coins = [(1, Address.from_raw(number.to_bytes(20))) for number in range(250)]
    assert set(await api.prices(coins, NOW_MS)) == set(coins)
    assert len(server.asked) == 4  # 78 coins fit into 4 KB
    assert all(len(server.url + path) <= 4096 for path in server.asked)
    assert all(path.count(",") < 100 for path in server.asked)


class Answers(Outgoing):
    """Instead of a network: the next answer."""

    body = b""

    async def get(self, url: str, *, seconds_max: float, bytes_max: int = 0) -> bytes:  # noqa: ARG002 - the signature of Outgoing
        return self.body


SAID = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
COINS = st.fixed_dictionaries(
    {"price": SAID | st.floats(0, 2e12), "timestamp": SAID | st.just(NOW_S), "confidence": SAID | st.just(1)}
)


ANSWERS = SAID | st.fixed_dictionaries({"coins": SAID | COINS.map(lambda coin: {NAME: coin})})


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=50) | ANSWERS.map(lambda value: json.dumps(value).encode()))
def test_any_answer_gives_finite_positive_prices_or_none(body: bytes) -> None:
    async def found() -> dict[Any, float]:
        async with Answers(allow_private=True) as outgoing:
            outgoing.body = body
            return await PriceApi("http://prices.example", outgoing, CHAINS).prices([COIN], NOW_MS)

    for coin, price in asyncio.run(found()).items():
        assert coin == COIN
        assert 0 < price <= 1e12
