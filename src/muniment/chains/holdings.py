"""What a wallet holds on all chains that are configured, and what it is worth: chains side by side, prices behind."""

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
from muniment.evm.address import Address
from muniment.outgoing import Outgoing, Unreachable

# About a block of the slower chains: asked again at once, a wallet would see nothing new.
KEPT_MS: Final = 10_000
# Readings kept, and under way: one for a wallet and chain, some 5 KB each.
READINGS_MAX: Final = 4_096
# What of the time is left for prices, which come after the balances that need them.
PRICE_SECONDS_MAX: Final = 2.5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """A token or coin of which a wallet has some, in base units; `price` in US dollars, None when unknown."""

    token: Token
    balance: int
    allowance: int
    price: float | None


@dataclass(frozen=True, slots=True)
class Portfolio:
    """What was found, and for the chains that could not be read one word that says why."""

    held: Sequence[Held]
    failed: Mapping[int, str]
    chains_read: int


@dataclass(frozen=True, slots=True)
class _Answer:
    """A chain's reading, or the reason why there is none."""

    chain: Chain
    reading: ChainReading | None
    reason: str = ""


class Holdings:
    """Reads wallets. An answer is kept for a moment, and requests at the same time share one reading."""

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
        """Read the chains among `chains` that have an RPC URL, within `seconds_max` in all."""
        self.chains = [chain for chain in chains.values() if chain.rpc_urls]
        self.tokens = tokens
        self._sources = sources
        self._outgoing = outgoing
        self._now_ms = now_ms
        self._seconds_max = seconds_max
        self._state = ReadingState(now_s=lambda: (monotonic_ms or now_ms)() / 1000)
        self._readings: OrderedDict[tuple[int, Address], tuple[int, asyncio.Task[_Answer]]] = OrderedDict()

    async def of(self, wallet: Address) -> Portfolio:
        """What `wallet` holds. A token that cannot be read is left out, a chain that cannot is among the failed."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds_max
        # Shielded: who gives up must not take the reading from the others.
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
            pass  # unknown then
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
        """The reading that is under way, or was made a moment ago and is good, or a new one."""
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
        except Exception:  # noqa: BLE001 - one chain's trouble, whatever it is, is not the others'
            _log.exception("chain not read", chain=chain.id)
            return _Answer(chain, None, "error")
        return _Answer(chain, reading)

    def _feed_prices(self, answers: Sequence[_Answer]) -> dict[Coin, float]:
        """What the feeds that were read on the way say."""
        known: dict[Coin, float] = {}
        for answer in answers:
            for token, (feed, heartbeat_s) in answer.chain.feeds.items():
                last = answer.reading.rounds.get(feed) if answer.reading is not None else None
                price = None if last is None else price_of_round(last, self._now_ms() // 1000, heartbeat_s)
                if price is not None:
                    known[answer.chain.id, token] = price
        return known


def _asked_as(token: Token) -> Address:
    """The address that the reader knows a token by: the coin has none."""
    return COIN if token.address == NATIVE else token.address


def _has_failed(task: asyncio.Task[_Answer]) -> bool:
    """Whether a reading ended without one: then the next who asks tries anew."""
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().reading is None)
