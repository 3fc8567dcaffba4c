"""Local chains whose blocks have times that a test chooses, and nodes of them that lag, lie or are alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from chain import SECONDS_MAX, LocalChain, encoded, selector
from muniment.chains.catalogue import Chain
from muniment.chains.nodes import NodeLimits
from muniment.outgoing import Outgoing
from muniment.protocol.evm.address import Address
from muniment.relayer.runner.answers import Answers
from muniment.relayer.runner.pinning import Pins, nodes_of
from rpc_proxy import RpcProxy

CHAIN_ID = 8453
Json = dict[str, Any]


@dataclass
class Nodal:
    """A chain and the nodes that a relayer asks about it; its clock stands still unless a test moves it."""

    chain: LocalChain
    outgoing: Outgoing
    now_s: float = 1_000.0
    now_ms: int = 0
    proxies: list[RpcProxy] = field(default_factory=list[RpcProxy])

    def pins(self, *urls: str, confirmations: int = 1, **members: Any) -> Pins:
        """The pins of a relayer that asks these nodes, by default the chain's own."""
        chain = Chain(CHAIN_ID, "Local", rpc_urls=urls or (self.chain.url,), **members)
        nodes = nodes_of(self.outgoing, [chain], now_s=lambda: self.now_s, chance=lambda: 0.5)
        # These only end a hang: a busy machine may take long.
        nodes[CHAIN_ID].limits = NodeLimits(answer_seconds_max=SECONDS_MAX)
        return Pins(nodes=nodes, now_ms=lambda: self.now_ms, confirmations=confirmations)

    def answers(self, pins: Pins, second: int, **members: Any) -> Answers:
        return Answers(pins=pins, timestamp_ms=second * 1_000, **members)

    def node(self, change: Callable[[Json, Json], Json] | None = None) -> str:
        """The URL of another node of the chain, whose answers `change` may replace."""
        proxy = RpcProxy(self.chain.url, change=change)
        proxy.__enter__()
        self.proxies.append(proxy)
        return proxy.url

    def lagging(self, last: int) -> str:
        """The URL of a node that has the blocks up to `last` only."""
        head = self.chain.ask("eth_getBlockByNumber", hex(last), False)

        def change(call: Json, answer: Json) -> Json:
            if call["method"] == "eth_getBlockByNumber":
                name = call["params"][0]
                if name == "latest":
                    return {**answer, "result": head}
                if int(name, 16) > last:
                    return {**answer, "result": None}
            elif (
                call["method"] == "eth_getBlockByHash"
                and answer["result"]
                and int(answer["result"]["number"], 16) > last
            ):
                return {**answer, "result": None}
            return answer

        return self.node(change)

    def behind(self, blocks: int) -> str:
        """The URL of a node that is always so many blocks behind the chain's own."""
        ask = self.chain.ask

        def seen(position: Any, last: int) -> bool:
            """Whether the node has the block, which is named as in EIP-1898."""
            if isinstance(position, dict):
                block = ask("eth_getBlockByHash", position["blockHash"], False)
                return block is not None and int(block["number"], 16) <= last
            return int(position, 16) <= last

        def change(call: Json, answer: Json) -> Json:
            method, params, last = call["method"], call["params"], self.newest - blocks
            if method == "eth_blockNumber":
                return {**answer, "result": hex(last)}
            if method in {"eth_call", "eth_getBalance", "eth_getBlockByNumber"}:
                place = 0 if method == "eth_getBlockByNumber" else 1
                if params[place] == "latest":
                    given = [*params[:place], hex(last), *params[place + 1 :]]
                    return {**answer, "result": ask(method, *given)}
                if not seen(params[place], last):
                    error = {"code": -32001, "message": "header not found"}
                    return {"jsonrpc": "2.0", "id": call["id"], **({"result": None} if not place else {"error": error})}
            if method in {"eth_getBlockByHash", "eth_getTransactionReceipt"} and answer.get("result"):
                result = answer["result"]
                number = result.get("number") or result["blockNumber"]
                return answer if int(number, 16) <= last else {**answer, "result": None}
            if method == "eth_getLogs":
                return {**answer, "result": [each for each in answer["result"] if int(each["blockNumber"], 16) <= last]}
            return answer

        return self.node(change)

    def mine(self, *seconds: int) -> list[Json]:
        """Mine a block at each time."""
        return [self._mined(second) for second in seconds]

    def _mined(self, second: int) -> Json:
        self.chain.ask("evm_setNextBlockTimestamp", second)
        self.chain.ask("evm_mine")
        block = self.chain.ask("eth_getBlockByNumber", "latest", False)
        assert int(block["timestamp"], 16) == second
        return block

    @property
    def newest_s(self) -> int:
        return int(self.chain.ask("eth_getBlockByNumber", "latest", False)["timestamp"], 16)

    @property
    def newest(self) -> int:
        return int(self.chain.ask("eth_blockNumber"), 16)

    def feed(self, answer: int, updated_s: int, decimals: int = 8) -> Address:
        feed = self.chain.deploy("MockAggregatorV3", decimals, "test", 1)
        self.update(feed, answer, updated_s)
        return feed

    def update(self, feed: Address, answer: int, updated_s: int) -> None:
        self.chain.send(selector("set(int256,uint256)") + encoded((answer, updated_s)), feed)


@pytest.fixture(scope="module")
def chain() -> Iterator[LocalChain]:
    with LocalChain(CHAIN_ID) as made:
        yield made


@asynccontextmanager
async def nodal_of(chain: LocalChain) -> AsyncGenerator[Nodal]:
    """Its clock is at the newest block. The nodes that a test makes end with the block."""
    async with Outgoing(allow_private=True, connect_seconds_max=SECONDS_MAX) as outgoing:
        made = Nodal(chain, outgoing)
        made.now_ms = 1_000 * made.newest_s
        try:
            yield made
        finally:
            for proxy in made.proxies:
                proxy.__exit__()


@pytest.fixture
async def nodal(chain: LocalChain) -> AsyncIterator[Nodal]:
    async with nodal_of(chain) as made:
        yield made
