"""Check every configured RPC URL with the requests that the service will send to it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from muniment.chains.catalogue import NATIVE, Chain, load_chains
from muniment.chains.gas import CALL_GAS_MAX, burning_call, is_short_of_gas
from muniment.chains.multicall import WORD
from muniment.chains.reading import ReadingState, read_chain
from muniment.chains.rpc import Call, Endpoint, check_given, eth_call
from muniment.chains.settlers import GENERATION_CALLS
from muniment.outgoing import Outgoing, Unreachable
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import data_of, quantity_of
from muniment.service.app import build_holdings
from muniment.service.running.clock import Clock

if TYPE_CHECKING:
    from muniment.service.running.settings import Settings

SECONDS_MAX: Final = 10.0
# Base makes a block in 2 s, Ethereum in 12 s. A node with an older block does not follow its chain.
BLOCK_AGE_SECONDS_MAX: Final = 300
# Nodes spend the gas of a call in a tenth of a second; the doctor has five for all that it asks of a chain.
_GAS_SECONDS_MAX: Final = 2.0
_OWN_NODE: Final = ": a node in your own network needs MUNIMENT_ALLOW_PRIVATE_NETWORKS=true"
# A wallet without balances, for which every token must answer.
_WALLET: Final = Address("0x0000000000000000000000000000000000000001")

_Ask = Callable[[Sequence[Call]], Awaitable[list[Any]]]


@dataclass(slots=True)
class Report:
    """The answers of one URL of one chain. `place` is the position of the URL from 1: the URL itself may hold a key.

    `generations` are those of the settlement contracts. Without `faults` all answers are good. `notes` say what the
    settings leave out.
    """

    chain: Chain
    place: int
    block: int | None = None
    block_age_s: int | None = None
    generations: dict[Address, int] = field(default_factory=dict[Address, int])
    faults: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


async def check(
    outgoing: Outgoing, chains: Mapping[int, Chain], tokens: Mapping[int, Sequence[Address]], *, now_s: float
) -> list[Report]:
    """A report for each URL of each chain, in order. `tokens` are by chain id; `now_s` is Unix time in seconds."""
    reports: list[Report] = []
    for chain in chains.values():
        for place, url in enumerate(chain.rpc_urls, 1):
            report = Report(chain, place)
            try:
                await _check_url(outgoing, url, report, tokens.get(chain.id, ()), now_s)
            except Unreachable as error:
                hint = _OWN_NODE if error.reason == "forbidden-address" else ""
                report.faults.append(f"does not answer: {error.told}{hint}")
            reports.append(report)
    return reports


async def _check_url(outgoing: Outgoing, url: str, report: Report, tokens: Sequence[Address], now_s: float) -> None:
    chain, endpoint = report.chain, Endpoint(url)

    async def ask(calls: Sequence[Call]) -> list[Any]:
        return await endpoint.ask(outgoing, calls, now_s=time.monotonic, seconds_max=SECONDS_MAX, chain_id=chain.id)

    parts = [("Multicall3", chain.multicall3), *(("the settler", settler) for settler in chain.settlers)]
    parts += [(f"the feed of {token}", feed) for token, (feed, _) in chain.feeds.items()]
    calls = [Call("eth_chainId"), Call("eth_getBlockByNumber", (chain.block_tag, False))]
    calls += [Call("eth_getCode", (address, chain.block_tag)) for _, address in parts]
    chain_id, block, *codes = await ask(calls)
    check_given(chain_id)
    if quantity_of(chain_id) != chain.id:
        report.faults.append(f"answers for chain {quantity_of(chain_id)}")
        return
    header = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
    report.block, made_at = quantity_of(header.get("number")), quantity_of(header.get("timestamp"))
    if made_at is None:
        report.faults.append("has no block")
        return
    report.block_age_s = int(now_s) - made_at
    if report.block_age_s > BLOCK_AGE_SECONDS_MAX:
        report.faults.append(f"its last block is {report.block_age_s} s old")
    report.faults += [
        f"{what} has no code at {address}"
        for (what, address), code in zip(parts, codes, strict=True)
        if not data_of(code)
    ]
    await _check_settlers(ask, report)
    await _check_gas(ask, report)
    await _check_tokens(outgoing, url, report, tokens)


async def _check_settlers(ask: _Ask, report: Report) -> None:
    """Find the generation of each settlement contract, which answers only one of the two calls."""
    chain = report.chain
    if not chain.settlers:
        report.notes.append("no settler is configured: allowances read as 0, and no settlement is followed")
        return
    asked = [(settler, generation, data) for settler in chain.settlers for generation, data in GENERATION_CALLS]
    calls = [eth_call(data, to=settler, block=chain.block_tag) for settler, _, data in asked]
    answers = await ask(calls)
    for (settler, generation, _), answer in zip(asked, answers, strict=True):
        if len(data_of(answer) or b"") == WORD:
            report.generations.setdefault(settler, generation)
    report.faults += [
        f"{settler} is not a settlement contract of a known generation"
        for settler in chain.settlers
        if settler not in report.generations
    ]


async def _check_gas(ask: _Ask, report: Report) -> None:
    """Spend the gas of a call of a run."""
    with suppress(Unreachable, TimeoutError):  # no answer in time says nothing about the gas
        async with asyncio.timeout(_GAS_SECONDS_MAX):
            (answer,) = await ask([burning_call(report.chain.block_tag)])
        if is_short_of_gas(answer):
            report.notes.append(
                f"URL {report.place} gives a call less than {CALL_GAS_MAX:,} gas: for a relayer, what runs out of gas "
                "there is no answer"
            )


async def _check_tokens(outgoing: Outgoing, url: str, report: Report, tokens: Sequence[Address]) -> None:
    one_url = replace(report.chain, rpc_urls=(url,))
    state = ReadingState(time.monotonic)
    asked = [token for token in tokens if token != NATIVE]
    feeds = list(dict.fromkeys(feed for feed, _ in one_url.feeds.values()))
    reading = await read_chain(outgoing, one_url, _WALLET, asked, feeds, seconds_max=SECONDS_MAX, state=state)
    report.faults += [
        f"token {token} cannot be read" for token in asked if reading.holdings[token].balance is None
    ]  # fmt: skip
    report.faults += [f"feed {feed} has no round" for feed in feeds if feed not in reading.rounds]


def check_configured(settings: Settings) -> list[Report]:
    """`check` with the chains and token lists of the settings. Lists at URLs are fetched and not kept."""
    with tempfile.TemporaryDirectory() as lists:
        return asyncio.run(_check_configured(settings, Path(lists)))


async def _check_configured(settings: Settings, lists: Path) -> list[Report]:
    chains = load_chains(settings.chains_file)
    clock = Clock.trusted(lambda: time.time_ns() // 1_000_000)
    async with Outgoing(allow_private=settings.allow_private_networks) as outgoing:
        holdings = build_holdings(settings, chains, outgoing, clock, lists)
        await holdings.tokens.refresh()
        checked = {chain.id: chain for chain in holdings.chains}
        tokens = {chain_id: [token.address for token in holdings.tokens.tokens(chain_id)] for chain_id in checked}
        return await check(outgoing, checked, tokens, now_s=time.time())
