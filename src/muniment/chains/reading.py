"""Reads a wallet's holdings on one chain, and the last rounds of price feeds: normally in one HTTP round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from muniment.chains import fall_back, multicall
from muniment.chains.catalogue import Chain
from muniment.chains.multicall import Holding, Read
from muniment.chains.rpc import Call, ask, eth_call
from muniment.evm.address import Address
from muniment.evm.hex import data_of, quantity_of
from muniment.outgoing import Outgoing, Unreachable

# 300 tokens fit into the answer (365 entries in 24,576 bytes) and the creation code (1,490 in EIP-3860's 49,152 bytes).
TOKENS_PER_CALL: Final = 300
FAILURES_MAX: Final = 5
REST_SECONDS: Final = 30
# For this long, a node that refused creation calls gets none, and a token that burnt gas is left out.
REMEMBERED_SECONDS: Final = 86_400
# An honest answer needs one round; a new block in between needs a second one; a lack of gas, one per hundred tokens.
_ROUNDS_MAX: Final = 8
_NOBODY: Final = Address("0x0000000000000000000000000000000000000000")
COIN: Final = _NOBODY
_READER: Final = bytes.fromhex(Path(__file__).with_name("one_shot_reader.hex").read_text("ascii"))


@dataclass(frozen=True, slots=True)
class FeedRound:
    """The last round of a Chainlink feed: the five words of `latestRoundData()`, unchecked, and its decimals."""

    returned: bytes
    decimals: int


@dataclass(frozen=True, slots=True)
class ChainReading:
    """A block's number and Unix time in seconds, the holdings at it (the coin's at `COIN`), and the feeds' rounds.

    An unreadable token has a balance of None; an unreadable feed is absent.
    """

    block: int
    block_time: int
    holdings: Mapping[Address, Holding]
    rounds: Mapping[Address, FeedRound]


@dataclass(slots=True)
class _Node:
    """The state of one URL."""

    failures: int = 0
    reason: str = ""
    rests_until: float = 0
    refuses_creation_until: float = 0


@dataclass(slots=True)
class ReadingState:
    """The state of nodes and tokens that a process remembers; `now_s` is its clock, in seconds."""

    now_s: Callable[[], float]
    nodes: dict[str, _Node] = field(default_factory=dict[str, _Node], repr=False)
    banned_until: dict[tuple[int, Address], float] = field(default_factory=dict[tuple[int, Address], float])

    def node(self, url: str) -> _Node:
        """The state of `url`."""
        return self.nodes.setdefault(url, _Node())

    def banned(self, chain_id: int, tokens: Sequence[Address]) -> set[Address]:
        """The tokens among `tokens` that burnt the gas of others within the last day."""
        now = self.now_s()
        return {token for token in tokens if self.banned_until.get((chain_id, token), 0) > now}

    def ban(self, chain_id: int, tokens: Sequence[Address]) -> None:
        """For a day, leave `tokens` out of calls in which one token can fail others."""
        for token in tokens:
            self.banned_until[chain_id, token] = self.now_s() + REMEMBERED_SECONDS

    def failed(self, url: str, reason: str) -> None:
        """Count a failure; after `FAILURES_MAX` in a row the node rests for `REST_SECONDS`."""
        node = self.node(url)
        node.failures, node.reason = node.failures + 1, reason
        if node.failures >= FAILURES_MAX:
            node.rests_until = self.now_s() + REST_SECONDS


async def read_chain(
    outgoing: Outgoing,
    chain: Chain,
    wallet: Address,
    tokens: Sequence[Address],
    feeds: Sequence[Address],
    *,
    seconds_max: float,
    state: ReadingState,
) -> ChainReading:
    """The balances of `wallet` in `tokens` and the coin, and its allowances to the chain's settler, all at one block.

    The chain's URLs are tried in turn within `seconds_max`. Raises `Unreachable` with the reason of the last one:
    `timeout`, `wrong-chain`, `garbage`, `http-500`, `unreachable`, `refused`, or another reason of `Outgoing`.
    """
    asked = list(dict.fromkeys([COIN, *tokens]))
    end = asyncio.get_running_loop().time() + seconds_max
    refused = Unreachable("unreachable", "the chain has no RPC URL")
    for tried, url in enumerate(chain.rpc_urls):
        node = state.node(url)
        if node.rests_until > state.now_s():
            refused = Unreachable(node.reason)
            continue
        seconds = (end - asyncio.get_running_loop().time()) / (len(chain.rpc_urls) - tried)
        try:
            async with asyncio.timeout(seconds):
                reading = await _Reader(outgoing, url, chain, wallet, asked, list(feeds), seconds, state).read()
        except TimeoutError:
            refused = Unreachable("timeout")
        except Unreachable as error:
            refused = error
        else:
            node.failures = 0
            return reading
        state.failed(url, refused.reason)
    raise refused


@dataclass(frozen=True, slots=True)
class _Head:
    """The results that every first request brings."""

    block: int
    time: int
    rounds: dict[Address, FeedRound]


@dataclass(frozen=True, slots=True)
class _Reader:
    """One reading from one node."""

    outgoing: Outgoing
    url: str
    chain: Chain
    wallet: Address
    tokens: list[Address]
    feeds: list[Address]
    seconds_max: float
    state: ReadingState

    async def read(self) -> ChainReading:
        """Read the chain. Raises `Unreachable`."""
        node = self.state.node(self.url)
        if node.refuses_creation_until > self.state.now_s():
            head, _ = await self._first([])
            return self._reading(head, await self._fall_back(head.block, self.tokens))
        chunks = _chunks(self.tokens)
        head, answers = await self._first([self._one_shot(chunk, self.chain.block_tag) for chunk in chunks])
        shots = [_shot(answer, chunk) for answer, chunk in zip(answers, chunks, strict=True)]
        if all(shot is None for shot in shots):
            holdings = await self._fall_back(head.block, self.tokens)
            node.refuses_creation_until = self.state.now_s() + REMEMBERED_SECONDS
            return self._reading(head, holdings)
        return self._reading(head, await self._complete(head.block, chunks, shots))

    async def _first(self, calls: list[Call]) -> tuple[_Head, list[Any]]:
        """The head of the chain and its feeds, and the answers to `calls`, in one round trip."""
        first = [Call("eth_chainId"), Call("eth_getBlockByNumber", (self.chain.block_tag, False))]
        if self.feeds:
            reads = [
                Read(feed, data) for feed in self.feeds for data in (multicall.LATEST_ROUND_DATA, multicall.DECIMALS)
            ]
            first.append(eth_call(multicall.aggregate3(reads), to=self.chain.multicall3, block=self.chain.block_tag))
        results = await ask(
            self.outgoing, self.url, [*first, *calls], seconds_max=self.seconds_max, chain_id=self.chain.id
        )
        chain_id = quantity_of(results[0])
        if chain_id is None:
            raise Unreachable("garbage", "no chain id")
        if chain_id != self.chain.id:
            raise Unreachable("wrong-chain")
        header = cast("dict[str, Any]", results[1]) if isinstance(results[1], dict) else {}
        block, time = quantity_of(header.get("number")), quantity_of(header.get("timestamp"))
        if block is None or time is None:
            raise Unreachable("garbage", "no block")
        rounds = _rounds(data_of(results[2]), self.feeds) if self.feeds else {}
        return _Head(block, time, rounds), results[len(first) :]

    async def _complete(
        self, block: int, chunks: list[list[Address]], shots: list[multicall.OneShot | None]
    ) -> dict[Address, Holding]:
        """Every token's holding, all at one block.

        Answers are of one block if the block numbers inside them are equal; on Arbitrum these are Ethereum's, not those
        of block headers. If they differ, all tokens are read again at the block of the header.
        """
        pinned = hex(block)
        if len({shot.block for shot in shots if shot is not None}) > 1:
            shots = await self._shots(chunks, pinned)
        holdings: dict[Address, Holding] = {}
        for _ in range(_ROUNDS_MAX):
            rest: list[Address] = []
            for chunk, shot in zip(chunks, shots, strict=True):
                tried = 0 if shot is None else shot.tried
                for index, token in enumerate(chunk[:tried]):
                    holdings[token] = _EMPTY if shot is None else shot.found.get(index, _EMPTY)
                rest += chunk[tried:]
            if not rest:
                return holdings
            if not any(shot is not None and shot.tried for shot in shots):
                break
            chunks = _chunks(rest)
            shots = await self._shots(chunks, pinned)
        missing = [token for token in self.tokens if token not in holdings]
        return holdings | await self._fall_back(block, missing)

    async def _shots(self, chunks: list[list[Address]], block: str) -> list[multicall.OneShot | None]:
        calls = [self._one_shot(chunk, block) for chunk in chunks]
        answers = await ask(self.outgoing, self.url, calls, seconds_max=self.seconds_max, chain_id=self.chain.id)
        return [_shot(answer, chunk) for answer, chunk in zip(answers, chunks, strict=True)]

    def _one_shot(self, chunk: list[Address], block: str) -> Call:
        spender = self.chain.settler or _NOBODY
        return eth_call(multicall.one_shot(_READER, self.wallet, spender, chunk), block=block)

    async def _fall_back(self, block: int, tokens: list[Address]) -> dict[Address, Holding]:
        """Read the holdings through Multicall3, at one block. Tokens that burn gas are banned."""
        banned = self.state.banned(self.chain.id, tokens)
        chunks = _chunks([token for token in tokens if token not in banned])
        found = await fall_back.read(
            self.outgoing, self.url, self.chain, self.wallet, chunks, block=block, seconds_max=self.seconds_max
        )
        self.state.ban(self.chain.id, found.burners)
        unread = Holding(None, None)
        return {token: found.holdings.get(token, unread) for token in tokens}

    def _reading(self, head: _Head, holdings: dict[Address, Holding]) -> ChainReading:
        spender = self.chain.settler is not None
        for token, holding in holdings.items():
            if holding.balance is not None and (token == COIN or not spender):
                holdings[token] = Holding(holding.balance, 0)
        return ChainReading(head.block, head.time, holdings, head.rounds)


_EMPTY: Final = Holding(0, 0)


def _chunks(tokens: list[Address]) -> list[list[Address]]:
    return [tokens[at : at + TOKENS_PER_CALL] for at in range(0, len(tokens), TOKENS_PER_CALL)]


def _shot(answer: object, chunk: list[Address]) -> multicall.OneShot | None:
    data = data_of(answer)
    return None if data is None else multicall.decode_one_shot(data, len(chunk))


def _rounds(answer: bytes | None, feeds: list[Address]) -> dict[Address, FeedRound]:
    """The readable rounds: five words of `latestRoundData()`, one of `decimals()`."""
    returned = None if answer is None else multicall.decode_aggregate3(answer, 2 * len(feeds))
    rounds: dict[Address, FeedRound] = {}
    for index, feed in enumerate(feeds if returned is not None else []):
        words, decimals = (returned or [])[2 * index : 2 * index + 2]
        places = multicall.number_of(decimals)
        if words is None or len(words) != 5 * multicall.WORD or places is None:
            continue
        rounds[feed] = FeedRound(words, places)
    return rounds
