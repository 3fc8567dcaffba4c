"""Answers to the questions of one run, from pinned blocks, and what a record of the run keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import UNSET, convert

from muniment.chains import multicall
from muniment.chains.catalogue import NATIVE
from muniment.chains.prices import PRICE_DECIMALS, PriceSource, exact_price_of_round
from muniment.chains.reading import COIN, FeedRound
from muniment.guest.types import Answer, Question
from muniment.protocol.evm.address import Address
from muniment.protocol.runs.types import RunAnswer, RunBlock, RunCall, RunInput
from muniment.protocol.wire import decode_text
from muniment.relayer.runner import questions
from muniment.relayer.runner.calls import Returned, Wanted, call_all, recorded
from muniment.relayer.runner.pinning import Incomplete, Pin, Pins
from muniment.relayer.runner.questions import Asked, Balances, Call, Price, Refused

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.protocol.runs.payloads import EventPayload

_TOO_LONG: Final = f"the questions of a run have at most {questions.PARAMS_CHARACTERS_MAX} characters together"


class Found(NamedTuple):
    """An answer, the block that it was read at, and the calls that it was made from."""

    data: Any
    pin: Pin | None = None
    calls: tuple[RunCall, ...] = ()


@dataclass(slots=True, kw_only=True)
class Answers:
    """Answers the questions of one run: call it with each.

    `timestamp_ms` is the time of the run, `event` the log that made it due, if one did. `api` is asked for prices
    instead of the feeds, and its answers cannot be repeated. `has_prices` is false where the operator gives no prices.
    `pinned` has the blocks that are read, by chain; a block that is in it before the run is taken as it is.
    """

    pins: Pins
    timestamp_ms: int
    event: EventPayload | None = None
    api: PriceSource | None = None
    has_prices: bool = True
    pinned: dict[int, Pin] = field(default_factory=dict[int, Pin])
    inputs: list[RunInput] = field(default_factory=list[RunInput])
    _asked_characters: int = 0
    # The block that the present question has led to: an answer without it follows from no chain.
    _read_at: Pin | None = None

    async def __call__(self, question: Question) -> Answer:
        """The answer to a question, which is kept in `inputs`. Raises `Incomplete`: then the run is tried again."""
        self._asked_characters += questions.length_of(question)
        self._read_at = None
        is_short = self._asked_characters <= questions.PARAMS_CHARACTERS_MAX
        try:
            if not is_short:
                raise Refused(_TOO_LONG)  # noqa: TRY301 - all refusals are recorded alike
            found = await self._find(questions.read(question, self.timestamp_ms))
        except Refused as refused:
            found = Found("", self._read_at)
            return self._keep(question, Answer(success=False, error=str(refused)), found, is_short=is_short)
        return self._keep(question, Answer(success=True, data=found.data), found)

    @property
    def blocks(self) -> list[RunBlock]:
        """The blocks that were read, one for each chain, by chain id."""
        return [self.pinned[chain_id].block() for chain_id in sorted(self.pinned)]

    def _keep(self, question: Question, answer: Answer, found: Found, *, is_short: bool = True) -> Answer:
        shown = {"success": True, "data": answer.data} if answer.success else {"success": False, "error": answer.error}
        self.inputs.append(
            RunInput(
                query=question.query,
                params=questions.kept(question, is_short=is_short and answer.success),
                answer=convert(shown, RunAnswer, dec_hook=decode_text),
                block=UNSET if found.pin is None else found.pin.block(),
                calls=list(found.calls) or UNSET,
            )
        )
        return answer

    async def _find(self, asked: Asked) -> Found:
        """Raises `Refused`, `Incomplete`."""
        match asked:
            case Call(chain_id, to, data):
                pin = await self._pin(chain_id)
                (returned,) = await self._call(pin, [Wanted(to, data)])
                return Found("0x" + _data_of(returned).hex(), pin)
            case Price(chain_id, token):
                return await self._price(chain_id, token)
            case Balances():
                return await self._balances(asked)

    async def _pin(self, chain_id: int) -> Pin:
        """The run's block of a chain. Raises `Refused`, `Incomplete`."""
        if chain_id not in self.pins.nodes:
            raise Refused(f"chain {chain_id} is not one that this relayer reads")
        if chain_id not in self.pinned:
            event = self.event
            if event is not None and event.chain_id == chain_id:
                pin = await self.pins.pin_event(chain_id, event.block_hash.raw)
            else:
                pin = await self.pins.pin(chain_id, self.timestamp_ms // 1_000)
            self.pinned[chain_id] = pin
        self._read_at = self.pinned[chain_id]
        return self._read_at

    async def _call(self, pin: Pin, calls: list[Wanted]) -> tuple[Returned, ...]:
        """Raises `Incomplete`. A block that nodes do not have any more is looked for again by the next try."""
        try:
            return await call_all(self.pins.nodes[pin.chain_id], pin, calls)
        except Incomplete:
            self.pins.forget(pin)
            raise

    async def _price(self, chain_id: int, token: Address) -> Found:
        if not self.has_prices:
            raise Refused("this relayer gives no prices")
        if self.api is not None:
            return Found([str(await self._api_price(chain_id, token))])
        pin = await self._pin(chain_id)
        (price,), calls = await self._feed_prices(pin, [token])
        return Found([str(price)], pin, calls)

    async def _api_price(self, chain_id: int, token: Address) -> int:
        """The present price in 10^-18 US dollars. Raises `Refused`."""
        prices = await self.api.prices([(chain_id, token)], self.timestamp_ms) if self.api is not None else {}
        price = prices.get((chain_id, token))
        if price is None:
            raise Refused(f"there is no price for token {token.lower()} on chain {chain_id}")
        return int(Decimal(repr(price)).scaleb(PRICE_DECIMALS))

    async def _feed_prices(self, pin: Pin, tokens: list[Address]) -> tuple[list[int], tuple[RunCall, ...]]:
        """The prices of the tokens' feeds in 10^-18 US dollars, and the calls. Raises `Refused`, `Incomplete`."""
        chain = self._chain(pin)
        for token in tokens:
            if token not in chain.feeds:
                self._read_at = None  # no block says so, but the operator's file
                raise Refused(f"there is no price feed for token {token.lower()} on chain {chain.id}")
        wanted = [
            Wanted(chain.feeds[token][0], data)
            for token in tokens
            for data in (multicall.LATEST_ROUND_DATA, multicall.DECIMALS)
        ]
        returned = await self._call(pin, wanted)
        prices: list[int] = []
        for place, token in enumerate(tokens):
            last, decimals = (_data_of(each) for each in returned[2 * place : 2 * place + 2])
            places = multicall.number_of(decimals)
            rounds = FeedRound(last, -1 if places is None else places)
            price = exact_price_of_round(rounds, pin.time_s, chain.feeds[token][1])
            if price is None:
                raise Refused(f"the price feed of token {token.lower()} on chain {chain.id} is not up to date")
            prices.append(price)
        return prices, tuple(recorded(pin, *pair) for pair in zip(wanted, returned, strict=True))

    async def _balances(self, asked: Balances) -> Found:
        """The balances that are not zero, and with a minimum in US dollars not worth less."""
        balances: list[dict[str, Any]] = []
        calls: list[RunCall] = []
        for chain_id, tokens in asked.tokens.items():
            pin = await self._pin(chain_id)
            held, call = await self._held(pin, asked.owner, tokens)
            calls.append(call)
            if asked.least and held:
                worths, more = await self._worths(pin, held)
                calls += more
                held = {token: held[token] for token, worth in worths.items() if worth >= asked.least}
            balances += [
                {"token": {"address": token.lower(), "chainId": chain_id}, "balance": str(balance)}
                for token, balance in held.items()
            ]
        pins = [self.pinned[chain_id] for chain_id in asked.tokens]
        data = [{"timestamp": self.timestamp_ms, "balances": balances}]
        return Found(data, pins[0] if len(pins) == 1 else None, tuple(calls))

    async def _held(self, pin: Pin, owner: Address, tokens: list[Address]) -> tuple[dict[Address, int], RunCall]:
        """The balances that are not zero, by one call. Raises `Refused`, `Incomplete`."""
        data = multicall.one_shot(owner, COIN, [COIN if token == NATIVE else token for token in tokens])
        wanted = Wanted(None, data)
        (returned,) = await self._call(pin, [wanted])
        shot = multicall.decode_one_shot(_data_of(returned), len(tokens))
        if shot is None or shot.tried < len(tokens):
            raise Refused(f"the balances on chain {pin.chain_id} could not be read")
        held: dict[Address, int] = {}
        for place, holding in shot.found.items():
            if holding.balance is None:
                raise Refused(f"token {tokens[place].lower()} on chain {pin.chain_id} gives no balance")
            held[tokens[place]] = holding.balance
        return held, recorded(pin, wanted, returned)

    async def _worths(self, pin: Pin, held: Mapping[Address, int]) -> tuple[dict[Address, int], list[RunCall]]:
        """What holdings are worth in 10^-18 US dollars, rounded down. Raises `Refused`, `Incomplete`."""
        if not self.has_prices or self.api is not None:
            raise Refused("a minimum in US dollars needs the price feeds, which this relayer does not use")
        tokens = list(held)
        prices, calls = await self._feed_prices(pin, tokens)
        wanted = [Wanted(token, multicall.DECIMALS) for token in tokens if token != NATIVE]
        returned = await self._call(pin, wanted) if wanted else ()
        places = {each.to: multicall.number_of(_data_of(found)) for each, found in zip(wanted, returned, strict=True)}
        places[NATIVE] = self._chain(pin).native_decimals
        worths: dict[Address, int] = {}
        for token, price in zip(tokens, prices, strict=True):
            decimals = places[token]
            if decimals is None or decimals > multicall.DECIMALS_MAX:
                raise Refused(f"token {token.lower()} on chain {pin.chain_id} has no usable decimals")
            worths[token] = held[token] * price // 10**decimals
        return worths, [*calls, *(recorded(pin, *pair) for pair in zip(wanted, returned, strict=True))]

    def _chain(self, pin: Pin) -> Chain:
        return self.pins.nodes[pin.chain_id].chain


def _data_of(returned: Returned) -> bytes:
    """What a call returned. Raises `Refused` where it failed."""
    if returned.failure:
        raise Refused(returned.failure)
    return returned.data
