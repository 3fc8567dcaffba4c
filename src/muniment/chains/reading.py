"""Reads a wallet's holdings on one chain, and the last rounds of price feeds: normally in one HTTP round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from muniment.chains import multicall
from muniment.chains.catalogue import Chain
from muniment.chains.multicall import Holding, Read
from muniment.chains.rpc import Call, Endpoint, Failed, check_given, eth_call
from muniment.outgoing import Outgoing, Unreachable
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import data_of, quantity_of

# 300 tokens fit into the answer (365 entries in 24,576 bytes) and the creation code (1,490 in EIP-3860's 49,152 bytes).
TOKENS_PER_CALL: Final = 300
FAILURES_MAX: Final = 5
REST_SECONDS: Final = 30
# For this long, a node that refused creation calls gets none, and a token that burnt gas is left out.
REMEMBERED_SECONDS: Final = 86_400
# An honest answer needs one round; a new block in between needs a second one; a lack of gas, one per hundred tokens.
_ROUNDS_MAX: Final = 8
_ZERO: Final = Address("0x0000000000000000000000000000000000000000")
COIN: Final = _ZERO
# Up to this many tokens that failed in a group are each read alone: one more round trip instead of four.
_ALONE_MAX: Final = 16
# Gas for one token's two reads and the outer call; on some rollups a call also pays for its calldata.
_GAS_ALONE: Final = 10 * multicall.READ_GAS_MAX
# Halving 300 tokens ends after 9 rounds; regrouping failed tokens may add as many.
_GROUP_ROUNDS_MAX: Final = 20
# The answer for a token takes 640 characters: 320 bytes of ABI data in hex, for its balance and its allowance.
_TOKENS_PER_REQUEST: Final = 300


@dataclass(frozen=True, slots=True)
class FeedRound:
    """The last round of a Chainlink feed: the five words of `latestRoundData()`, unchecked, and its decimals."""

    returned: bytes
    decimals: int


@dataclass(frozen=True, slots=True)
class ChainReading:
    """A block's number, the holdings at it (the coin's at `COIN`), and the feeds' rounds.

    An unreadable token has a balance of None; an unreadable feed is absent.
    """

    block: int
    holdings: Mapping[Address, Holding]
    rounds: Mapping[Address, FeedRound]


@dataclass(slots=True)
class _Node:
    """The state of a URL."""

    endpoint: Endpoint
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
        if url not in self.nodes:
            self.nodes[url] = _Node(Endpoint(url))
        return self.nodes[url]

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
    """The results that every first request has."""

    block: int
    time: int
    rounds: dict[Address, FeedRound]


@dataclass(frozen=True, slots=True)
class _Reader:
    """A reading from a node."""

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

    async def _ask(self, calls: Sequence[Call]) -> list[Any]:
        """The results of calls, as `Endpoint.ask` gives them. Raises `Unreachable`."""
        return await self.state.node(self.url).endpoint.ask(
            self.outgoing, calls, now_s=self.state.now_s, seconds_max=self.seconds_max, chain_id=self.chain.id
        )

    async def _first(self, calls: list[Call]) -> tuple[_Head, list[Any]]:
        """The head of the chain and its feeds, and the answers to `calls`, in one round trip."""
        first = [Call("eth_chainId"), Call("eth_getBlockByNumber", (self.chain.block_tag, False))]
        if self.feeds:
            reads = [
                Read(feed, data) for feed in self.feeds for data in (multicall.LATEST_ROUND_DATA, multicall.DECIMALS)
            ]
            first.append(eth_call(multicall.aggregate3(reads), to=self.chain.multicall3, block=self.chain.block_tag))
        results = await self._ask([*first, *calls])
        for answer in results[: len(first)]:
            if not (isinstance(answer, Failed) and answer.fault in ("contract", "gas")):
                check_given(answer)
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
        answers = await self._ask(calls)
        return [_shot(answer, chunk) for answer, chunk in zip(answers, chunks, strict=True)]

    def _one_shot(self, chunk: list[Address], block: str) -> Call:
        spender = self.chain.settler or _ZERO
        return eth_call(multicall.one_shot(self.wallet, spender, chunk), block=block)

    async def _fall_back(self, block: int, tokens: list[Address]) -> dict[Address, Holding]:
        """Read the holdings through Multicall3, at one block. Tokens that burn gas are banned."""
        banned = self.state.banned(self.chain.id, tokens)
        chunks = _chunks([token for token in tokens if token not in banned])
        found = await _read_groups(self._ask, self.chain, self.wallet, chunks, block=block)
        self.state.ban(self.chain.id, found.burners)
        unread = Holding(None, None)
        return {token: found.holdings.get(token, unread) for token in tokens}

    def _reading(self, head: _Head, holdings: dict[Address, Holding]) -> ChainReading:
        spender = self.chain.settler is not None
        for token, holding in holdings.items():
            if holding.balance is not None and (token == COIN or not spender):
                holdings[token] = Holding(holding.balance, 0)
        return ChainReading(head.block, holdings, head.rounds)


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


_Group = tuple[Address, ...]
_Ask = Callable[[Sequence[Call]], Awaitable[list[Any]]]


@dataclass(slots=True)
class _Found:
    """Holdings of the readable tokens, and the tokens that made a call fail even alone (`burners`)."""

    holdings: dict[Address, Holding] = field(default_factory=dict[Address, Holding])
    burners: list[Address] = field(default_factory=list[Address])


async def _read_groups(
    ask: _Ask, chain: Chain, wallet: Address, chunks: Sequence[Sequence[Address]], *, block: int
) -> _Found:
    """Holdings at `block`, through Multicall3's `aggregate3`, for nodes that refuse creation calls.

    `allowFailure` does not protect a call against lack of gas: a token that burns all its gas (63/64 of the rest,
    EIP-150) makes the whole call fail, or leaves too little for the tokens after it. So a group that fails is read
    again in halves, and tokens that failed inside a good group are read again without the others, until each failure
    is the token's own. A single token gets little gas: a token that burns it makes the call fail, a token that reverts
    does not.

    Each request also has a call that reads only the block number: if that fails, the node is at fault, not a token, and
    so it is if a single token's call fails for a reason that no contract has. Raises `Unreachable`, then with the
    reason `refused`.
    """
    found = _Found()
    groups: list[_Group] = [tuple(chunk) for chunk in chunks if chunk]
    alone: list[_Group] = []  # groups of a request whose answer was too large: each gets its own request
    for _ in range(_GROUP_ROUNDS_MAX):
        requests = [*_requests(groups), *([group] for group in alone)]
        if not requests:
            break
        answers = await asyncio.gather(*(_ask_groups(ask, chain, wallet, request, block=block) for request in requests))
        groups, alone = [], []
        for request, answer in zip(requests, answers, strict=True):
            if answer is None:
                alone += request if len(request) > 1 else _add_result(found, request[0], None)
            else:
                for group, result in zip(request, answer, strict=True):
                    groups += _add_result(found, group, result)
    return found


def _requests(groups: Sequence[_Group]) -> list[list[_Group]]:
    """`groups` in their order, divided into requests whose honest answers stay below the limit of an answer."""
    requests: list[list[_Group]] = []
    tokens = 0
    for group in groups:
        if not requests or tokens + len(group) > _TOKENS_PER_REQUEST:
            requests.append([])
            tokens = 0
        requests[-1].append(group)
        tokens += len(group)
    return requests


async def _ask_groups(
    ask: _Ask, chain: Chain, wallet: Address, groups: Sequence[_Group], *, block: int
) -> list[Any] | None:
    """The node's result for each of `groups`; None if the answer is too large. Raises `Unreachable`."""
    probe = _call(chain, [Read(chain.multicall3, multicall.GET_BLOCK_NUMBER)], block)
    calls = [
        _call(chain, _reads(chain, wallet, group), block, gas=_GAS_ALONE if len(group) == 1 else None)
        for group in groups
    ]
    try:
        results = await ask([probe, *calls])
    except Unreachable as error:
        if error.reason == "too-large":
            return None
        raise
    check_given(results[0])
    if _group_result(results[0], 1) in (None, [None]):
        raise Unreachable("refused", "the node answers no aggregate3 call")
    for group, result in zip(groups, results[1:], strict=True):
        if len(group) == 1 and isinstance(result, Failed) and result.fault == "node":
            raise Unreachable("refused", result.message)
    return results[1:]


def _call(chain: Chain, reads: list[Read], block: int, gas: int | None = None) -> Call:
    return eth_call(multicall.aggregate3(reads), to=chain.multicall3, block=hex(block), gas=gas)


def _reads(chain: Chain, wallet: Address, group: _Group) -> list[Read]:
    """Two reads for each token: its balance and its allowance."""
    balance = multicall.BALANCE_OF + multicall.word(wallet)
    spender = multicall.word(chain.settler) if chain.settler is not None else bytes(multicall.WORD)
    allowance = multicall.ALLOWANCE + multicall.word(wallet) + spender
    coin = Read(chain.multicall3, multicall.GET_ETH_BALANCE + multicall.word(wallet))
    pairs = ((coin, coin) if token == COIN else (Read(token, balance), Read(token, allowance)) for token in group)
    return [read for pair in pairs for read in pair]


def _group_result(result: object, count: int) -> list[bytes | None] | None:
    data = None if isinstance(result, Failed) else data_of(result)
    return None if data is None else multicall.decode_aggregate3(data, count)


def _add_result(found: _Found, group: _Group, result: object) -> list[_Group]:
    """Add a group's result to `found`; the groups to read again."""
    returned = _group_result(result, 2 * len(group))
    if returned is None:
        if len(group) == 1:
            found.burners += group
            return []
        return _halves(group)
    failed: list[Address] = []
    for index, token in enumerate(group):
        balance = multicall.number_of(returned[2 * index])
        allowance = 0 if token == COIN or balance == 0 else multicall.number_of(returned[2 * index + 1])
        if balance is None or allowance is None:
            failed.append(token)
        if balance is not None:
            found.holdings[token] = Holding(balance, allowance)
    if len(group) == 1 or not failed:
        return []
    if len(failed) <= _ALONE_MAX:
        return [(token,) for token in failed]
    return _halves(tuple(failed)) if len(failed) == len(group) else [tuple(failed)]


def _halves(group: _Group) -> list[_Group]:
    return [group[: len(group) // 2], group[len(group) // 2 :]]
