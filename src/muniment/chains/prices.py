"""Prices in US dollars per whole token, from sources that are not trusted.

A price that is too old, too uncertain or implausible is ignored. A source returns the prices that it knows; it never
raises.
"""

from __future__ import annotations

import asyncio
import math
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Protocol, TypeAlias, cast

import msgspec
import structlog

from muniment.chains.catalogue import NATIVE
from muniment.chains.reading import FeedRound
from muniment.outgoing import Outgoing, Unreachable
from muniment.protocol.errors import InvalidAddress
from muniment.protocol.evm.address import Address
from muniment.protocol.json_text import parse_json
from muniment.protocol.wire import json_kind
from muniment.text_files import read_text_file

# No token has cost more than 10^6 dollars; a far higher price is an error of the source.
PRICE_MAX: Final = 1e12
# The smallest price that `price_json` can write.
PRICE_DECIMALS: Final = 18
PRICE_MIN: Final = 1e-18

# Chainlink feeds have 8 or 18 decimals; no feed has more than 36.
FEED_DECIMALS_MAX: Final = 36
_CHAIN_ID_DIGITS_MAX: Final = 19  # of 2^63 - 1
# latestRoundData(): uint80 roundId, int256 answer, uint256 startedAt, uint256 updatedAt, uint80 answeredInRound.
_ROUND_BYTES: Final = 5 * 32
# For different clocks, and for the block in which a round at the heartbeat is stored.
CLOCK_SLACK_S: Final = 300

FILE_BYTES_MAX: Final = 4 * 1024 * 1024

# Some proxies cut URLs at 4 KB. Such a URL holds at most 93 coins; the API takes a hundred.
URL_LENGTH_MAX: Final = 4096
CONFIDENCE_MIN: Final = 0.9
PRICE_AGE_S_MAX: Final = 4 * 3600
API_SECONDS_MAX: Final = 2.5
REQUESTS_CONCURRENT_MAX: Final = 4
KEPT_MS: Final = 60_000
# After a failure, the API is not asked for this long, so that callers do not wait for it in vain.
FAILURE_KEPT_MS: Final = 10_000
# The tokens of two full lists (10,000 each); an entry takes about 300 bytes, all of them 6 MB.
KEPT_MAX: Final = 20_000
# RFC 3986: a URL is printable ASCII. This length leaves room for 58 coins.
_BASE_URL: Final = re.compile(r"https?://[!-~]{1,1016}")
# Prices up to four hours old, like `PRICE_AGE_S_MAX`.
_WIDTH: Final = "?searchWidth=4h"

# The address of a chain's own coin in the API.
_API_NATIVE: Final = "0x" + "0" * 40

# A token: its chain id and its address.
Coin: TypeAlias = tuple[int, Address]

# The type of a price in a record: `msgspec.Raw(price_json(price).encode())`, because msgspec would write 1e-07.
PriceJson: TypeAlias = Annotated[
    msgspec.Raw,
    msgspec.Meta(
        description="US dollars per whole token, 0 when unknown", extra_json_schema={"type": "number", "minimum": 0}
    ),
]

_log = structlog.get_logger(__name__)


class PriceSource(Protocol):
    """A source of prices."""

    async def prices(self, wanted: Collection[Coin], now_ms: int) -> dict[Coin, float]:
        """Prices of those of `wanted` that it knows. Does not raise."""
        ...


async def prices(sources: Sequence[PriceSource], wanted: Collection[Coin], now_ms: int) -> dict[Coin, float]:
    """The prices of `wanted`, each from the first source with a plausible price; unknown prices are absent."""
    known: dict[Coin, float] = {}
    for source in sources:
        missing = [coin for coin in dict.fromkeys(wanted) if coin not in known]
        if not missing:
            break
        found = await source.prices(missing, now_ms)
        known |= {coin: found[coin] for coin in missing if coin in found and is_plausible(found[coin])}
    return known


def is_plausible(price: float) -> bool:
    """Whether a price is possible: a finite number from 10^-18 to 10^12."""
    return math.isfinite(price) and PRICE_MIN <= price <= PRICE_MAX


def price_json(price: float) -> str:
    """A price as a JSON number in plain decimal: no exponent, at most 18 decimals, 0 for unknown.

    Raises `ValueError` for a price that is neither plausible nor 0.
    """
    if price and not is_plausible(price):
        raise ValueError("not a price")
    # `repr` gives the shortest digits of the float; its exact value would be 0.100000000000000006 for 0.1.
    exact = Decimal(repr(abs(float(price))))
    rounded = exact.quantize(Decimal(1).scaleb(-PRICE_DECIMALS), context=Context(prec=64))
    return format(rounded, "f").rstrip("0").rstrip(".") or "0"


def price_of_round(last: FeedRound, now_s: int, heartbeat_s: int) -> float | None:
    """The price in the last round of a Chainlink AggregatorV3Interface; None if the round is old or malformed.

    `heartbeat_s` is the time after which the feed promises a new round. `answeredInRound` is not checked: Chainlink
    calls it deprecated.
    """
    answer = _answer_of_round(last, now_s, heartbeat_s)
    if answer is None:
        return None
    price = answer / 10**last.decimals
    return price if is_plausible(price) else None


def exact_price_of_round(last: FeedRound, now_s: int, heartbeat_s: int) -> int | None:
    """The price as `price_of_round` takes it, in 10^-18 US dollars, rounded down; None if it rounds to nothing."""
    answer = _answer_of_round(last, now_s, heartbeat_s)
    return None if answer is None else answer * 10**PRICE_DECIMALS // 10**last.decimals or None


def _answer_of_round(last: FeedRound, now_s: int, heartbeat_s: int) -> int | None:
    """The feed's number, in units of its decimals, if the round is recent and the price not too high."""
    returned, decimals = last.returned, last.decimals
    if len(returned) != _ROUND_BYTES or not 0 <= decimals <= FEED_DECIMALS_MAX:
        return None
    answer = int.from_bytes(returned[32:64], signed=True)
    updated_s = int.from_bytes(returned[96:128])
    if not now_s - heartbeat_s - CLOCK_SLACK_S <= updated_s <= now_s + CLOCK_SLACK_S:
        return None
    # Compared as integers, because a float could overflow.
    return answer if 0 < answer <= int(PRICE_MAX) * 10**decimals else None


class StaticPrices:
    """Prices from a file, for tests and for hosts without network."""

    def __init__(self, known: Mapping[Coin, float]) -> None:
        self._known = dict(known)

    @classmethod
    def read(cls, path: Path) -> StaticPrices:
        """Read a TOML (`.toml`) or JSON file: `chainId:address` to price. Raises `ValueError` with its name."""
        try:
            data = read_text_file(path, FILE_BYTES_MAX + 1)
            if len(data) > FILE_BYTES_MAX:
                raise ValueError(f"more than {FILE_BYTES_MAX} bytes")  # noqa: TRY301 - all failures get the file's name
            value: Any = tomllib.loads(data.decode()) if path.suffix == ".toml" else parse_json(data)
            return cls(_static_prices(value))
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"prices {path}: {error}") from error

    async def prices(self, wanted: Collection[Coin], now_ms: int) -> dict[Coin, float]:  # noqa: ARG002 - never old
        """Prices of those of `wanted` that the file has."""
        return {coin: self._known[coin] for coin in wanted if coin in self._known}


def _static_prices(value: object) -> dict[Coin, float]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {json_kind(value)}")  # noqa: TRY004 - what is wrong is in the file
    known: dict[Coin, float] = {}
    for name, price in cast("dict[str, object]", value).items():
        coin = _coin(name)
        if type(price) not in {int, float} or not is_plausible(_float(cast("float", price))):
            raise ValueError(f"{name}: a price is a number from {PRICE_MIN} to {PRICE_MAX}")
        if coin in known:
            raise ValueError(f"{name}: is there twice")
        known[coin] = _float(cast("float", price))
    return known


def _coin(name: str) -> Coin:
    chain_id, _, address = name.partition(":")
    if not (chain_id.isascii() and chain_id.isdecimal() and len(chain_id) <= _CHAIN_ID_DIGITS_MAX):
        raise ValueError(f"{name[:80]}: expected chainId:address")
    try:
        return int(chain_id), Address.parse(address)
    except InvalidAddress as error:
        raise ValueError(f"{name[:80]}: {error}") from error


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer beyond a double
        return math.inf


class _Answer(msgspec.Struct, frozen=True):
    """The members for a coin in an answer of the API."""

    price: float
    timestamp: float
    confidence: float


class PriceApi:
    """Current prices from an HTTP API like DefiLlama's `coins`: `GET /prices/current/{coins}`.

    Answers are kept for a minute, and concurrent callers share one request for a coin.
    """

    def __init__(
        self, base_url: str, outgoing: Outgoing, chains: Mapping[int, str], *, seconds_max: float = API_SECONDS_MAX
    ) -> None:
        """`base_url` is the part before `/prices`; `chains` has the API's name of each chain that it knows.

        Raises `ValueError` unless `base_url` is an http or https URL.
        """
        if not _BASE_URL.fullmatch(base_url):
            raise ValueError("the URL of a price API begins with http:// or https:// and has at most 1024 characters")
        self._prefix = f"{base_url.rstrip('/')}/prices/current/"
        self._outgoing = outgoing
        self._chains = dict(chains)
        self._seconds_max = seconds_max
        self._kept: dict[Coin, tuple[int, int, float | None]] = {}  # kept since (ms), for how long (ms), the price
        self._pending: dict[Coin, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(REQUESTS_CONCURRENT_MAX)

    async def prices(self, wanted: Collection[Coin], now_ms: int) -> dict[Coin, float]:
        """Prices of those of `wanted` that the API knows. Empty when the API fails."""
        coins = [coin for coin in dict.fromkeys(wanted) if coin[0] in self._chains]
        fresh = [coin for coin in coins if self._is_kept(coin, now_ms)]
        missing = [coin for coin in coins if not self._is_kept(coin, now_ms)]
        for batch in self._batches([coin for coin in missing if coin not in self._pending]):
            task = asyncio.create_task(self._fetch(batch, now_ms))
            self._pending |= dict.fromkeys(batch, task)
        found = {coin: self._kept[coin][2] for coin in fresh}
        if tasks := {self._pending[coin] for coin in missing}:
            # Not `gather`: a cancelled caller must not cancel the requests of others.
            await asyncio.wait(tasks)
        found |= {coin: self._kept[coin][2] for coin in missing if coin in self._kept}
        return {coin: price for coin, price in found.items() if price is not None}

    def _is_kept(self, coin: Coin, now_ms: int) -> bool:
        since_ms, for_ms, _ = self._kept.get(coin, (0, 0, None))
        # A time before `since_ms` does not count: after a clock was set back, a price would be kept for too long.
        return 0 <= now_ms - since_ms < for_ms

    def _batches(self, coins: Sequence[Coin]) -> Iterator[list[Coin]]:
        """`coins` in batches, each for one URL."""
        batch: list[Coin] = []
        length = 0
        for coin in coins:
            added = len(self._name(coin)) + 1
            if batch and length + added > URL_LENGTH_MAX - len(self._prefix) - len(_WIDTH):
                yield batch
                batch, length = [], 0
            batch.append(coin)
            length += added
        if batch:
            yield batch

    def _name(self, coin: Coin) -> str:
        chain_id, address = coin
        return f"{self._chains[chain_id]}:{_API_NATIVE if address == NATIVE else address.lower()}"

    async def _fetch(self, batch: list[Coin], now_ms: int) -> None:
        try:
            async with self._slots:
                url = self._prefix + ",".join(map(self._name, batch)) + _WIDTH
                answer = await self._outgoing.get(url, seconds_max=self._seconds_max)
                found = _answers(answer)
            for coin in batch:
                self._keep(coin, (now_ms, KEPT_MS, _price(found.get(self._name(coin).lower()), now_ms // 1000)))
        except (Unreachable, ValueError) as error:
            _log.warning("no prices", reason=str(error))
            for coin in batch:
                self._keep(coin, (now_ms, FAILURE_KEPT_MS, None))
        finally:
            for coin in batch:
                self._pending.pop(coin, None)

    def _keep(self, coin: Coin, answer: tuple[int, int, float | None]) -> None:
        self._kept.pop(coin, None)
        self._kept[coin] = answer
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]


def _answers(data: bytes) -> dict[str, object]:
    """The API's answer for each coin, by name in lower case; raises `ValueError` for a malformed answer."""
    value: Any = parse_json(data)
    coins: object = cast("dict[str, object]", value).get("coins") if isinstance(value, dict) else None
    if not isinstance(coins, dict):
        raise ValueError("the answer has no coins")  # noqa: TRY004 - what is wrong is the answer
    return {name.lower(): coin for name, coin in cast("dict[str, object]", coins).items()}


def _price(coin: object, now_s: int) -> float | None:
    """The price in the API's answer for a coin, if it is certain, recent and plausible."""
    try:
        answer = msgspec.convert(coin, _Answer)
    except (msgspec.ValidationError, OverflowError):
        return None
    if not CONFIDENCE_MIN <= answer.confidence <= 1 or not is_plausible(answer.price):
        return None
    return answer.price if -CLOCK_SLACK_S <= now_s - answer.timestamp <= PRICE_AGE_S_MAX else None
