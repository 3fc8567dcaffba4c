"""The holdings of a wallet on all configured chains, with prices: first all chains in parallel, then the prices."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from muniment.chains.catalogue import NATIVE, Chain
from muniment.chains.prices import Coin, PriceSource, price_of_round, prices
from muniment.chains.reading import COIN, ChainReading, ReadingState, read_chain
from muniment.chains.token_lists import TokenLists
from muniment.chains.tokens import Token, default_logo
from muniment.outgoing import Outgoing, Unreachable
from muniment.protocol.evm.address import Address

# About one block of the slower chains: an earlier reading would show nothing new.
KEPT_MS: Final = 10_000
# Readings in memory, by wallet and chain: some 5 KB each.
READINGS_MAX: Final = 4_096
# The share of the time for prices, which are read after the balances.
PRICE_SECONDS_MAX: Final = 2.5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """A token or coin that a wallet holds, in base units; `price` in US dollars, None if unknown."""

    token: Token
    balance: int
    allowance: int
    price: float | None


@dataclass(frozen=True, slots=True)
class Portfolio:
    """The holdings of a wallet; `failed` has a one-word reason for each chain that could not be read."""

    held: Sequence[Held]
    failed: Mapping[int, str]
    chains_read: int


@dataclass(frozen=True, slots=True)
class _Answer:
    """A chain's reading, or the reason for its failure."""

    chain: Chain
    reading: ChainReading | None
    reason: str = ""


class Holdings:
    """Reads wallets. A reading is kept for `KEPT_MS`, and concurrent requests share it."""

    def __init__(
        self,
        chains: Mapping[int, Chain],
        tokens: TokenLists,
        sources: Sequence[PriceSource],
        outgoing: Outgoing,
        *,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int] | None = None,
        seconds_max: float,
    ) -> None:
        """Read those of `chains` that have an RPC URL; a request takes at most `seconds_max`."""
        self.chains = [chain for chain in chains.values() if chain.rpc_urls]
        self.tokens = tokens
        self._sources = sources
        self._outgoing = outgoing
        self._now_ms = now_ms
        self._seconds_max = seconds_max
        self._state = ReadingState(now_s=lambda: (monotonic_ms or now_ms)() / 1000)
        self._readings: OrderedDict[tuple[int, Address], tuple[int, asyncio.Task[_Answer]]] = OrderedDict()

    async def of(self, wallet: Address) -> Portfolio:
        """The holdings of `wallet`, without unreadable tokens; unreadable chains are in `failed`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds_max
        # Shielded: a cancelled request must not cancel the reading of others.
        answers = await asyncio.gather(*(asyncio.shield(self._reading(chain, wallet)) for chain in self.chains))
        found = [
            (token, holding.balance, holding.allowance or 0, answer)
            for answer in answers
            if answer.reading is not None
            for token in self._listed(answer.chain)
            if (holding := answer.reading.holdings.get(_asked_as(token))) is not None and holding.balance
        ]
        known = self._feed_prices(answers)
        missing = [coin for token, _, _, _ in found if (coin := (token.chain_id, token.address)) not in known]
        try:
            async with asyncio.timeout_at(end):
                known |= await prices(self._sources, missing, self._now_ms())
        except TimeoutError:
            pass  # these prices stay unknown
        held = [
            Held(token, balance, allowance, known.get((token.chain_id, token.address)))
            for token, balance, allowance, _ in found
        ]
        failed = {answer.chain.id: answer.reason for answer in answers if answer.reading is None}
        return Portfolio(held, failed, len(answers) - len(failed))

    def _listed(self, chain: Chain) -> list[Token]:
        logo = chain.native_logo or default_logo(chain.native_symbol)
        coin = Token(chain.id, NATIVE, chain.native_symbol, chain.name, chain.native_decimals, logo)
        return [coin, *(token for token in self.tokens.tokens(chain.id) if token.address != NATIVE)]

    def _reading(self, chain: Chain, wallet: Address) -> asyncio.Task[_Answer]:
        """The running reading, a good reading younger than `KEPT_MS`, or a new reading."""
        key, now_ms = (chain.id, wallet), self._now_ms()
        since_ms, task = self._readings.get(key, (0, None))
        if task is None or _has_failed(task) or not 0 <= now_ms - since_ms < KEPT_MS:
            task = asyncio.create_task(self._read(chain, wallet))
            self._readings[key] = (now_ms, task)
            self._readings.move_to_end(key)
            if len(self._readings) > READINGS_MAX:
                self._readings.popitem(last=False)
        return task

    async def _read(self, chain: Chain, wallet: Address) -> _Answer:
        tokens = [token.address for token in self.tokens.tokens(chain.id) if token.address != NATIVE]
        feeds = list(dict.fromkeys(feed for feed, _ in chain.feeds.values()))
        seconds = max(self._seconds_max - PRICE_SECONDS_MAX, self._seconds_max / 2)
        try:
            reading = await read_chain(
                self._outgoing, chain, wallet, tokens, feeds, seconds_max=seconds, state=self._state
            )
        except Unreachable as error:
            return _Answer(chain, None, error.reason)
        except Exception:  # noqa: BLE001 - an error of one chain must not fail the others
            _log.exception("chain not read", chain=chain.id)
            return _Answer(chain, None, "error")
        return _Answer(chain, reading)

    def _feed_prices(self, answers: Sequence[_Answer]) -> dict[Coin, float]:
        """The prices of the feeds that were read with the balances."""
        known: dict[Coin, float] = {}
        for answer in answers:
            for token, (feed, heartbeat_s) in answer.chain.feeds.items():
                last = answer.reading.rounds.get(feed) if answer.reading is not None else None
                price = None if last is None else price_of_round(last, self._now_ms() // 1000, heartbeat_s)
                if price is not None:
                    known[answer.chain.id, token] = price
        return known


def _asked_as(token: Token) -> Address:
    """The address under which `read_chain` gives a token's holding; the coin is at `COIN`."""
    return COIN if token.address == NATIVE else token.address


def _has_failed(task: asyncio.Task[_Answer]) -> bool:
    """Whether a reading has failed; then the next request reads again."""
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().reading is None)
