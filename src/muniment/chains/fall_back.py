"""Balances through Multicall3's `aggregate3`, for nodes that refuse creation calls.

`allowFailure` does not protect a call against lack of gas: a token that burns all its gas (63/64 of the rest, EIP-150)
makes the whole call fail, or leaves too little for the tokens after it. So a group that fails is read again in halves,
and tokens that failed inside a good group are read again without the others, until each failure is the token's own. A
single token gets little gas: a token that burns it makes the call fail, a token that reverts does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from muniment.chains import multicall
from muniment.chains.catalogue import Chain
from muniment.chains.multicall import Holding, Read
from muniment.chains.rpc import Call, Failed, ask, eth_call
from muniment.evm.address import Address
from muniment.evm.hex import data_of
from muniment.outgoing import Outgoing, Unreachable

# Up to this many tokens that failed in a group are each read alone: one more round trip instead of four.
_ALONE_MAX: Final = 16
# Gas for one token's two reads and the outer call; on some rollups a call also pays for its calldata.
_GAS_ALONE: Final = 10 * multicall.READ_GAS_MAX
# Halving 300 tokens ends after 9 rounds; regrouping failed tokens may add as many.
_ROUNDS_MAX: Final = 20
# EIP-1474: the error of a node for calls beyond its rate limit; no token causes it.
_LIMIT_EXCEEDED: Final = -32005
# The answer for a token takes 640 characters: 320 bytes of ABI data in hex, for its balance and its allowance.
_TOKENS_PER_REQUEST: Final = 300
_COIN_RAW: Final = bytes(20)

_Group = tuple[Address, ...]


@dataclass(slots=True)
class Found:
    """Holdings of the readable tokens, and the tokens that made a call fail even alone (`burners`)."""

    holdings: dict[Address, Holding] = field(default_factory=dict[Address, Holding])
    burners: list[Address] = field(default_factory=list[Address])


async def read(
    outgoing: Outgoing,
    url: str,
    chain: Chain,
    wallet: Address,
    chunks: Sequence[Sequence[Address]],
    *,
    block: int,
    seconds_max: float,
) -> Found:
    """Holdings at `block`; address zero is the coin.

    Each request also has a call that reads only the block number: if that fails, the node is at fault, not a token.
    Raises `Unreachable`, then with the reason `refused`.
    """
    found = Found()
    groups: list[_Group] = [tuple(chunk) for chunk in chunks if chunk]
    alone: list[_Group] = []  # groups of a request whose answer was too large: each gets its own request
    for _ in range(_ROUNDS_MAX):
        requests = [*_requests(groups), *([group] for group in alone)]
        if not requests:
            break
        answers = await asyncio.gather(
            *(_ask(outgoing, url, chain, wallet, request, block=block, seconds_max=seconds_max) for request in requests)
        )
        groups, alone = [], []
        for request, answer in zip(requests, answers, strict=True):
            if answer is None:
                alone += request if len(request) > 1 else _take(found, request[0], None)
            else:
                groups += [
                    one for group, result in zip(request, answer, strict=True) for one in _take(found, group, result)
                ]
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


async def _ask(
    outgoing: Outgoing,
    url: str,
    chain: Chain,
    wallet: Address,
    groups: Sequence[_Group],
    *,
    block: int,
    seconds_max: float,
) -> list[Any] | None:
    """The node's result for each of `groups`; None if the answer is too large. Raises `Unreachable`."""
    probe = _call(chain, [Read(chain.multicall3, multicall.GET_BLOCK_NUMBER)], block)
    calls = [
        _call(chain, _reads(chain, wallet, group), block, gas=_GAS_ALONE if len(group) == 1 else None)
        for group in groups
    ]
    try:
        results = await ask(outgoing, url, [probe, *calls], seconds_max=seconds_max, chain_id=chain.id)
    except Unreachable as error:
        if error.reason == "too-large":
            return None
        raise
    if _returned(results[0], 1) in (None, [None]):
        raise Unreachable("refused", "the node answers no aggregate3 call")
    if any(isinstance(result, Failed) and result.code == _LIMIT_EXCEEDED for result in results):
        raise Unreachable("limited", "the node limits the rate of calls")
    return results[1:]


def _call(chain: Chain, reads: list[Read], block: int, gas: int | None = None) -> Call:
    return eth_call(multicall.aggregate3(reads), to=chain.multicall3, block=hex(block), gas=gas)


def _reads(chain: Chain, wallet: Address, group: _Group) -> list[Read]:
    """Two reads for each token: its balance and its allowance."""
    balance = multicall.BALANCE_OF + multicall.word(wallet)
    spender = multicall.word(chain.settler) if chain.settler is not None else bytes(multicall.WORD)
    allowance = multicall.ALLOWANCE + multicall.word(wallet) + spender
    coin = Read(chain.multicall3, multicall.GET_ETH_BALANCE + multicall.word(wallet))
    return [
        one
        for token in group
        for one in ((coin, coin) if token.raw == _COIN_RAW else (Read(token, balance), Read(token, allowance)))
    ]


def _returned(result: object, count: int) -> list[bytes | None] | None:
    data = None if isinstance(result, Failed) else data_of(result)
    return None if data is None else multicall.decode_aggregate3(data, count)


def _take(found: Found, group: _Group, result: object) -> list[_Group]:
    """Add a group's result to `found`; the groups to read again."""
    returned = _returned(result, 2 * len(group))
    if returned is None:
        if len(group) == 1:
            found.burners += group
            return []
        return _halves(group)
    failed: list[Address] = []
    for index, token in enumerate(group):
        balance = multicall.number_of(returned[2 * index])
        allowance = 0 if token.raw == _COIN_RAW or balance == 0 else multicall.number_of(returned[2 * index + 1])
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
