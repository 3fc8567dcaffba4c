"""Prices: a price counts if it is certain, recent and plausible; every other price is unknown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from muniment.chains.prices import PRICE_MAX, Coin, PriceJson, StaticPrices, price_json, price_of_round, prices
from muniment.chains.reading import FeedRound
from muniment.protocol.evm.address import Address
from muniment.protocol.wire import Record, encode

USDC = Address.parse("0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48")
DAI = Address.parse("0x6B175474E89094C44Da98b954EedeAC495271d0F")
NOW_S = 1_763_700_000
HOUR = 3600


def round_data(answer: int, updated_s: int = NOW_S, round_id: int = 7) -> bytes:
    words = (round_id, answer % 2**256, updated_s, updated_s, round_id)
    return b"".join(word.to_bytes(32) for word in words)


@each_row(
    ("answer", "decimals", "price"),
    [(345012345678, 8, 3450.12345678), (10**18, 18, 1.0), (1, 18, 1e-18), (10**12, 0, 1e12), (10**48, 36, 1e12)],
)
def test_a_round_has_its_price(answer: int, decimals: int, price: float) -> None:
    assert price_of_round(FeedRound(round_data(answer), decimals), NOW_S, HOUR) == price


@each_row(
    ("answer", "decimals"),
    [
        (0, 8), (-1, 8), (-(2**255), 8), (10**12 + 1, 0), (2**255 - 1, 8), (2**255 - 1, 36),
        (1, 19), (1, 37), (1, 1000), (1, -1),
    ],
)  # fmt: skip
def test_an_absurd_answer_gives_no_price(answer: int, decimals: int) -> None:
    assert price_of_round(FeedRound(round_data(answer), decimals), NOW_S, HOUR) is None


@each_row(
    ("age_s", "good"), [(0, True), (HOUR + 300, True), (HOUR + 301, False), (-300, True), (-301, False), (NOW_S, False)]
)
def test_a_round_is_good_until_its_heartbeat_and_a_little(age_s: int, *, good: bool) -> None:
    price = price_of_round(FeedRound(round_data(10**8, NOW_S - age_s), 8), NOW_S, HOUR)
    assert price == (1.0 if good else None)


@each_row("returned", [b"", bytes(159), bytes(160), round_data(1) + b"\0", b"\xff" * 160])
def test_a_malformed_round_has_no_price(returned: bytes) -> None:
    assert price_of_round(FeedRound(returned, 0), NOW_S, HOUR) is None


@given(st.binary(min_size=160, max_size=160) | st.integers(-(2**255), 2**255 - 1).map(round_data), st.integers(0, 255))
def test_any_round_has_a_finite_positive_price_or_none(returned: bytes, decimals: int) -> None:
    price = price_of_round(FeedRound(returned, decimals), NOW_S, HOUR)
    assert price is None or 0 < price <= PRICE_MAX


@each_row(
    ("price", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (1.0, "1"), (100.0, "100"), (0.1, "0.1"), (1e-07, "0.0000001"),
        (1e-18, "0." + "0" * 17 + "1"),
        (1e12, "1000000000000"), (97000.1, "97000.1"), (0.3333333333333333, "0.3333333333333333"),
        (1.2345678901234567e-10, "0.000000000123456789"), (999999999999.9999, "999999999999.9999"),
    ],
)  # fmt: skip
def test_a_price_is_written_in_plain_decimal(price: float, text: str) -> None:
    assert price_json(price) == text


@each_row("price", [math.nan, math.inf, -math.inf, -1.0, 1e-19, 1.1e12])
def test_an_implausible_price_is_not_written(price: float) -> None:
    with pytest.raises(ValueError, match="not a price"):
        price_json(price)


@given(st.floats(1e-18, 1e12))
def test_a_price_that_is_read_again_is_the_same_but_for_18_decimals(price: float) -> None:
    text = price_json(price)
    assert re.fullmatch(r"(0|[1-9][0-9]*)(\.[0-9]+)?", text)
    assert abs(float(text) - price) <= max(5e-19, price * 1e-15)
    assert json.loads(text) > 0


class Priced(Record, frozen=True):
    token_price: PriceJson


def test_a_record_carries_a_price_as_a_json_number() -> None:
    assert encode(Priced(token_price=msgspec.Raw(price_json(1e-07).encode()))) == b'{"tokenPrice":0.0000001}'
    member = msgspec.json.schema(Priced)["$defs"]["Priced"]["properties"]["tokenPrice"]
    assert (member["type"], member["minimum"]) == ("number", 0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.toml", f'"1:{USDC}" = 1\n"10:{DAI.lower()}" = 0.5\n'),
        ("p.json", f'{{"1:{USDC}": 1, "10:{DAI.lower()}": 0.5}}'),
    ],
)
async def test_a_file_has_prices(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    source = StaticPrices.read(path)
    assert await source.prices([(1, USDC), (10, DAI), (1, DAI)], 0) == {(1, USDC): 1.0, (10, DAI): 0.5}


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "7", f'{{"1:{USDC}": "1"}}', f'{{"1:{USDC}": true}}', f'{{"1:{USDC}": 0}}', f'{{"1:{USDC}": -1}}',
        f'{{"1:{USDC}": 1e13}}', f'{{"1:{USDC}": 1{"0" * 400}}}', f'{{"1:{USDC}": NaN}}', f'{{"{USDC}": 1}}',
        f'{{"ethereum:{USDC}": 1}}', '{"1:USDC": 1}', f'{{"1:{USDC}": 1, "1:{USDC.lower()}": 1}}',
    ],
    ids=lambda text: text[:24] + text[-12:],
)  # fmt: skip
def test_a_broken_file_of_prices_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"prices\.json: "):
        StaticPrices.read(path)


@pytest.mark.parametrize("content", ["x = nan", "x", "\xff", f'"1:{USDC}" = inf', "x=" + "[" * 5000])
def test_a_broken_toml_file_of_prices_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"prices\.toml: "):
        StaticPrices.read(path)


class Says:
    """A source that says whatever a test wants, and remembers what it was asked."""

    def __init__(self, known: dict[Coin, float]) -> None:
        self.known = known
        self.asked: list[list[Coin]] = []

    async def prices(self, wanted: Collection[Coin], now_ms: int) -> dict[Coin, float]:
        assert now_ms == NOW_S * 1000
        self.asked.append(list(wanted))
        return self.known


@each_row("absurd", [math.nan, math.inf, -1.0, 0.0, 1e13, 1e-30])
async def test_the_first_plausible_price_wins(absurd: float) -> None:
    first = Says({(1, USDC): absurd, (1, DAI): 1.5})
    second = Says({(1, USDC): 2.0, (1, DAI): 3.0, (10, USDC): 4.0})
    found = await prices([first, second], [(1, USDC), (1, DAI), (1, USDC)], NOW_S * 1000)
    assert found == {(1, USDC): 2.0, (1, DAI): 1.5}
    assert (first.asked, second.asked) == ([[(1, USDC), (1, DAI)]], [[(1, USDC)]])


async def test_sources_are_not_asked_for_known_prices() -> None:
    second = Says({})
    assert await prices([Says({(1, USDC): 1.0}), second], [(1, USDC)], NOW_S * 1000) == {(1, USDC): 1.0}
    assert second.asked == []
    assert await prices([], [(1, USDC)], 0) == {}
