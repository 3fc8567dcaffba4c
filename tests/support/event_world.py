"""Triggers that wait for events of a chain that a test makes up, and what a relayer plans for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from chain import SECONDS_MAX
from made_up_chain import BEGAN_S, CHAIN_ID, Change, Json, MadeUpChain, MadeUpNode
from muniment.chains.catalogue import Chain
from muniment.outgoing import Outgoing
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.events.lanes import show_places
from muniment.relayer.events.runs import EventRuns
from muniment.relayer.figures import Figures
from muniment.relayer.journal.entries import Ownership
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.lives.following import Tracked
from muniment.relayer.runner.pinning import Pins, nodes_of
from muniment.relayer.schedule.due import Due, Gap, Plan
from muniment.relayer.settings import RelayerSettings, Served


def contract(number: int) -> Address:
    return Address.parse(f"0x{number:040x}")


def topic(number: int) -> str:
    return f"0x{number:064x}"


def sig_of(number: int) -> Signature:
    return Signature.parse(f"0x{number:064x}{1:064x}1b")


@dataclass
class EventChain(MadeUpChain):
    """A chain that also knows its latest block, and may be begun anew: its blocks are then so much later."""

    later_s: int = 0

    def block(self, number: int, lag: int = 0) -> Json | None:
        block = super().block(number, lag)
        return block and {**block, "timestamp": hex(BEGAN_S + self.later_s + number)}

    def begin_anew(self, head: int) -> None:
        self.later_s += self.head
        self.logs.clear()
        self.fork_at, self.fork, self.head = 0, "anew", head

    def answer(self, method: str, params: list[Any], lag: int = 0) -> Any:
        if method == "eth_getBlockByNumber" and params[0] == "latest":
            params = [hex(self.head - lag), False]
        return super().answer(method, params, lag)


@dataclass
class Heard:
    """What was told of events that are not planned."""

    missed: list[Gap] = field(default_factory=list[Gap])
    told: list[tuple[Due, str, str]] = field(default_factory=list[tuple[Due, str, str]])
    on_tell: Callable[[], object] = lambda: None

    def note(self, gap: Gap, now_ms: int) -> None:  # noqa: ARG002 - as `Telling` has it
        self.missed.append(gap)

    def tell(self, due: Due, code: str, text: str, now_ms: int) -> None:  # noqa: ARG002 - as above
        self.told.append((due, code, text))
        self.on_tell()

    @property
    def codes(self) -> list[tuple[Signature, str]]:
        return [(due.sig, code) for due, code, _ in self.told]


@dataclass
class EventWorld:
    """A relayer's reading of a chain, first with one node. The clock of nodes stands still unless a test moves it."""

    outgoing: Outgoing
    journal: Journal
    chain: EventChain = field(default_factory=EventChain)
    heard: Heard = field(default_factory=Heard)
    figures: Figures = field(default_factory=Figures)
    tracked: dict[Signature, Tracked] = field(default_factory=dict[Signature, Tracked])
    now_s: float = 1_000.0
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    node: MadeUpNode = field(init=False)
    second_nodes: list[MadeUpNode] = field(default_factory=list[MadeUpNode])

    def __post_init__(self) -> None:
        self.node = MadeUpNode(self.chain)
        self.events = self.started()

    @property
    def now_ms(self) -> int:
        return 1_000 * (BEGAN_S + self.chain.later_s + self.chain.head)

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.node.url, *(each.url for each in self.second_nodes))

    def add_node(self, change: Change) -> MadeUpNode:
        """Start anew with a further node."""
        node = MadeUpNode(self.chain, change)
        node.__enter__()
        self.second_nodes.append(node)
        self.events = self.started()
        return node

    def metrics(self) -> str:
        show_places(self.figures, self.events.places())
        return self.figures.text()

    def started(self) -> EventRuns:
        """A process that begins to read the events."""
        chain = Chain(CHAIN_ID, "Made up", rpc_urls=self.urls, confirmations=0)
        nodes = nodes_of(self.outgoing, [chain], now_s=lambda: self.now_s, chance=lambda: 1.0)
        following: Any = SimpleNamespace(
            tracked=self.tracked,
            signer_of=lambda sig: self.tracked[sig].trigger.signer if sig in self.tracked else None,
        )
        registry: Any = None
        events = EventRuns(
            chains={CHAIN_ID: chain}, pins=Pins(nodes=nodes, now_ms=lambda: self.now_ms), registry=registry,
            following=following, journal=self.journal, figures=self.figures, own_ms=lambda: self.now_ms,
            settings=RelayerSettings(registry="http://test", served=Served(None, None, None), **self.settings),
        )  # fmt: skip
        events.planner.telling = self.heard
        return events

    def sign(
        self, number: int, *, signer: int, at: int, topics: Any = (), delta_ms: int = 3_600_000,
        created_ms: int | None = None,
    ) -> Signature:  # fmt: skip
        """A trigger that waits for logs of the contract with the number `at`, from now on or since it was created."""
        sig = sig_of(number)
        config = {"chainId": CHAIN_ID, "contract": contract(at).lower(), "topics": [list(each) for each in topics]}
        trigger: Any = SimpleNamespace(config=config, signer=contract(10_000 + signer))
        plan = Plan(sig=sig, kind=EVENT, created_ms=created_ms or self.now_ms - 500, end_ms=0, delta_ms=delta_ms)
        self.tracked[sig] = Tracked(trigger, plan)
        self.journal.see([Ownership(sig, trigger.signer, b"f")], self.now_ms)
        self.events.see(sig)
        return sig

    def end(self, sig: Signature) -> None:
        del self.tracked[sig]
        self.events.see(sig)

    def log(self, at: int, count: int = 1, *, block: int | None = None, **members: Any) -> None:
        """Logs of a contract in one block, by default a new one."""
        if block is None:
            self.chain.head += 1
        for _ in range(count):
            found: dict[str, Any] = {"address": contract(at).lower(), "topics": [topic(1)], **members}
            self.chain.add(block=self.chain.head if block is None else block, **found)

    async def step(self) -> bool:
        return await self.events.step(CHAIN_ID, self.now_ms)

    async def to_head(self) -> None:
        """Read what is quiet up to the head."""
        while not await self.step():
            pass

    async def others(self) -> None:
        """Read the other lanes up to the head."""
        while not await self.events.step_others(CHAIN_ID, self.now_ms):
            pass

    def planned(self) -> Counter[Signature]:
        """How many runs each trigger has."""
        rows = self.journal._connection.execute(
            "SELECT t.sig, count(*) FROM journal_runs r JOIN journal_triggers t ON t.number = r.trigger "
            "WHERE r.state = 0 GROUP BY r.trigger"
        )
        return Counter({Signature("0x" + sig.hex()): count for sig, count in rows})

    def asked(self) -> list[Json]:
        """The filters that were asked for since the last time."""
        found = [call["params"][0] for calls in self.node.requests for call in calls if call["method"] == "eth_getLogs"]
        self.node.requests.clear()
        return found

    def lanes(self) -> set[str]:
        """The contracts that are read in lanes of their own."""
        return {shape.contract.lower() for shape in self.events._lanes[CHAIN_ID].own}


@pytest.fixture
async def events() -> AsyncIterator[EventWorld]:
    async with Outgoing(allow_private=True, connect_seconds_max=SECONDS_MAX) as outgoing:
        with Journal.in_memory() as journal:
            made = EventWorld(outgoing, journal)
            with made.node:
                yield made
            for node in made.second_nodes:
                node.__exit__()
