"""A node that lies about its newest block, and a registry that reads its chain from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chain import LocalChain
from muniment.chains import nodes as node_choice
from muniment.chains.nodes import Nodes
from muniment.operate.watch.follower import Follower, Step
from muniment.operate.watch.limits import WATCH_LIMITS, WatchLimits
from muniment.operate.watch.progress import take_lease
from muniment.outgoing import Unreachable
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from rpc_proxy import RpcProxy
from watching_world import CHAIN_ID, GRACE_S, Registry, chains_file, registry

Json = dict[str, Any]


@dataclass
class Lie:
    """Change a node's answers as if it had `ahead` more blocks; 0: honest.

    With `has_blocks` it invents these blocks; otherwise it lacks them, like a node with a wrong counter.
    """

    ahead: int = 0
    has_blocks: bool = True

    def __call__(self, call: Json, given: Json) -> Json:
        if not self.ahead:
            return given
        honest = {key: value for key, value in given.items() if key != "error"}
        if call["method"] == "eth_blockNumber":
            return {**honest, "result": hex(int(given["result"], 16) + self.ahead)}
        if call["method"] == "eth_getBlockByNumber" and given["result"] is None and self.has_blocks:
            number = call["params"][0]
            made_up = {"number": number, "hash": "0x" + keccak256(number.encode()).hex(), "timestamp": hex(2**33)}
            return {**honest, "result": made_up}
        if call["method"] == "eth_getLogs" and "error" in given:
            return {**honest, "result": []}
        return given


@dataclass
class World:
    """A registry whose first node lies, and a follower with a clock that the test moves."""

    watched: Registry
    lie: Lie
    chain: LocalChain
    now_s: float = 1_000.0
    followers: list[Follower] = field(default_factory=list[Follower])

    def restart(self) -> None:
        """Restart the follower without its memory."""
        context = self.watched.context
        found = Nodes(
            context.outgoing, context.chains[CHAIN_ID],
            now_s=lambda: self.now_s, chance=lambda: 0.0, limits=self.watched.limits,
        )  # fmt: skip
        self.followers = [
            Follower(
                nodes=found, confirmations=0, database=context.database, holder="tests",
                now_ms=lambda: time.time_ns() // 1_000_000, grace_s=GRACE_S, limits=self.watched.limits,
            )
        ]  # fmt: skip

    async def step(self) -> Step | None:
        """One step with the first available node, as in the watcher; None when the node failed."""
        (follower,) = self.followers
        nodes = follower.nodes
        while (node := nodes.first_awake()) is None:
            self.now_s += nodes.seconds_to_wait() + 0.001
        try:
            step = await follower.step(node)
        except Unreachable as error:
            nodes.failed(node, error.reason)
            return None
        nodes.succeeded(node)
        return step

    async def follow(self) -> None:
        """Step until the follower is at the true head."""
        async with asyncio.timeout(120):
            while await self.next_block() != self.head + 1:
                await self.step()

    @property
    def head(self) -> int:
        return int(self.chain.ask("eth_blockNumber"), 16)

    async def next_block(self) -> int | None:
        row = await self.watched.context.database.fetch_one("SELECT next_block FROM chain_progress")
        return row[0] if row else None


Open = Callable[..., Any]


@pytest.fixture
def lie() -> Lie:
    return Lie()


@pytest.fixture
def liar(chain: LocalChain, lie: Lie) -> Iterator[RpcProxy]:
    with RpcProxy(chain.url, change=lie) as proxy:
        yield proxy


@pytest.fixture
async def opened(
    tmp_path: Path,
    chain: LocalChain,
    settler: Address,
    liar: RpcProxy,
    lie: Lie,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Open]:
    # A second node that is late would not be heard, and then the liar is believed.
    monkeypatch.setattr(node_choice, "_OTHERS_SECONDS_MAX", 60)
    async with AsyncExitStack() as stack:

        async def opened(*more_urls: str, fresh: bool = False, limits: WatchLimits = WATCH_LIMITS) -> World:
            file = chains_file(tmp_path, {CHAIN_ID: (settler, [liar.url, *more_urls])})
            if fresh:  # follow from the newest block on
                file.write_text(
                    "".join(line for line in file.read_text().splitlines(True) if "settler_block" not in line)
                )
            watched = await stack.enter_async_context(
                registry(tmp_path, file, limits=limits, database_url=database_url)
            )
            await watched.context.database.write(lambda tx: take_lease(tx, "tests", 0))
            world = World(watched, lie, chain)
            world.restart()
            return world

        yield opened
