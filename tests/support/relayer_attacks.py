"""What strangers and nodes do to a relayer, and how long an honest event waits beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muniment.protocol.runs.payloads import EventPayload, read_payload
from provider_node import Json, MadeChain, ProviderNode
from relayer_site import Site, new_site, recorded_s

PING = "0xca6e822df923f741dfe968d15d80a18abd25bd1e748bcb9ad81fea5bbb7386af"
HONEST, OTHER, BUSY = ("0x" + each * 20 for each in ("a1", "b2", "c3"))
# The data of logs that no chain has.
INVENTED = "0xbad0"
SILENT_CHAIN = 31_338
# A line or a metric must name the cause of what an owner feels within this time.
NAMED_SECONDS_MAX = 60
_EVENT = 1


@dataclass
class World:
    """A relayer with nodes of a made-up chain, and an honest wallet's trigger of events."""

    site: Site
    chain: MadeChain
    nodes: list[ProviderNode]
    sig: str = ""
    # The triggers of the attack, and the number of their events.
    others: list[str] = field(default_factory=list[str])
    events: int = 0

    def add_honest(self) -> int:
        """Make an event that the honest trigger waits for; its block."""
        return int(self.chain.add(HONEST, [PING])["blockNumber"], 16)

    def seconds_to_run(self, block: int, seconds_max: float) -> float:
        """From when the block was there until the run of its event was recorded; infinite if it is not in that time."""
        until = time.monotonic() + seconds_max
        while not (found := [each for at, each in self.runs(self.sig) if block_of(at) == block]):
            if time.monotonic() > until:
                return float("inf")
            time.sleep(0.2)
        return recorded_s(found[0]) - self.chain.time_s(block)

    def runs(self, sig: str) -> list[tuple[EventPayload, Json]]:
        """The runs of a trigger of events that are no notes, with their events."""
        return [(event_of(each), each) for each in self.site.runs(sig)]

    def check(self) -> None:
        """No event ran twice, and none that a single node invented."""
        for sig in (self.sig, *self.others):
            events = [at for at, _ in self.runs(sig)]
            assert not [at for at in events if at.data == INVENTED], self.site.log()
            assert len({(at.block_hash, at.index) for at in events}) == len(events), self.site.log()


def event_of(run: Json) -> EventPayload:
    event = read_payload(_EVENT, bytes.fromhex(run["triggerData"][2:]))
    assert isinstance(event, EventPayload)
    return event


def block_of(event: EventPayload) -> int:
    """The number of a block of a made-up chain."""
    return int(event.block_hash[-16:], 16)


@contextmanager
def world(
    directory: Path, count: int, *, has_silent: bool = True, is_timed: bool = False, **limits: Any
) -> Generator[World]:
    """A relayer that reads `count` nodes, which have these limits, and has run one event.

    With `has_silent` it has a chain more, whose node does not answer: it starts later then. `is_timed`: see `Site`.
    """
    chain = MadeChain()
    with ExitStack() as stack:
        nodes = [stack.enter_context(ProviderNode(chain, **limits)) for _ in range(count)]
        listed = {chain.id: [each.url for each in nodes]}
        if has_silent:
            silent = stack.enter_context(ProviderNode(MadeChain(SILENT_CHAIN), sleep_s=lambda: 600.0))
            listed[SILENT_CHAIN] = [silent.url]
        site = stack.enter_context(new_site(directory, listed))
        site.is_timed = is_timed
        made = World(site, chain, nodes)
        made.sig = site.sign_event(HONEST, [[PING]])
        stack.enter_context(site.relaying())
        time.sleep(1.1)  # an event in the second of the registration is too early
        assert made.seconds_to_run(made.add_honest(), 120) < float("inf"), site.log()
        yield made


@dataclass(frozen=True)
class Attack:
    """An attack on a relayer with so many nodes: `begin` returns once it is at work."""

    name: str
    nodes: int
    cause: str
    begin: Callable[[World, int], None]
    # How much of it there is: events, triggers or seconds; and how much in a short test.
    size: int = 0
    short: int = 0
    # Whether the nodes differ about the stranger's events, so that none may run.
    is_disputed: bool = False


def _events(world: World, does: str, count: int, wallets: int = 1, **given: Any) -> None:
    """So many triggers on one contract, which has six events; a hundred are of each of `wallets`."""
    world.others = [
        world.site.sign_event(OTHER, [[PING]], number=100 + at // 100 % wallets, does=does, **given)
        for at in range(count)
    ]
    time.sleep(1.1)
    first = world.chain.head() + 2
    for at in range(6):
        world.chain.add(OTHER, [PING], f"0x{at:064x}", block=first + at)
    world.events = 6 * count
    _pass(world, first + 7)


def _resting(wallets: int) -> Callable[[World, int], None]:
    """Their function is stopped each time, so that they rest."""
    return lambda world, count: _events(world, "unknown_import", count, wallets)


def _without_result(wallets: int) -> Callable[[World, int], None]:
    """Their function asks a chain whose node does not answer."""
    return lambda world, count: _events(world, "balance", count, wallets, chainId=SILENT_CHAIN, above="8")


def _without_hashes(world: World, count: int) -> None:
    """Their function asks a contract at the node with the events, which takes no hash of a block (EIP-1898)."""
    world.nodes[0].takes_hashes = False
    _events(world, "balance", count, chainId=world.chain.id, above="8")


def _busy(world: World, count: int) -> None:
    """So many triggers on a contract with 20 logs a second, for two minutes."""
    world.others = [world.site.sign_event(BUSY, [[PING]], number=3, does="nothing") for _ in range(count)]
    time.sleep(1.1)
    first, blocks = world.chain.head() + 2, 120 if count == BUSY_TRIGGERS else 10
    for at in range(20 * blocks):
        world.chain.add(BUSY, [PING], f"0x{at:064x}", block=first + at // 20)
    world.events = 20 * blocks * count
    _pass(world, first + blocks // 4)


def _shapes(world: World, count: int) -> None:
    """So many triggers, each with a contract and a topic of its own, of which each tenth has an event."""
    for at in range(count):
        contract, topic = f"0x{at + 1:040x}", f"0x{at + 1:064x}"
        world.others.append(world.site.sign_event(contract, [[topic], [PING]], number=4, does="nothing"))
    time.sleep(1.1)
    first = world.chain.head() + 2
    for at in range(0, count, 10):
        world.chain.add(f"0x{at + 1:040x}", [f"0x{at + 1:064x}", PING], block=first + at % 5)
    world.events = count // 10
    _pass(world, first + 5)


def _pass(world: World, block: int) -> None:
    world.site.wait_until(lambda: world.chain.head() >= block, "the clock stands still")


def _nodes(**quirks: Any) -> Callable[[World, int], None]:
    """The first node changes; a stranger's trigger has an event in each of the next blocks."""

    def begin(world: World, _: int) -> None:
        world.others = [world.site.sign_event(OTHER, [[PING]], number=2, does="nothing")]
        for name, value in quirks.items():
            setattr(world.nodes[0], name, value)
        for at in range(world.chain.head() + 2, world.chain.head() + 62):
            world.chain.add(OTHER, [PING], block=at)
        _pass(world, world.chain.head() + 4)

    return begin


def _inventing(*, has_receipts: bool) -> Callable[[World, int], None]:
    """The first node has further logs in the next blocks, also of the honest trigger."""

    def begin(world: World, _: int) -> None:
        _nodes(has_invented_receipts=has_receipts)(world, 0)
        elsewhere = MadeChain(world.chain.id)
        first = world.chain.head() + 1
        world.nodes[0].invents = [
            elsewhere.add(contract, [PING], INVENTED, block=at)
            for at in range(first, first + 60)
            for contract in (HONEST, OTHER)
        ]
        _pass(world, first + 4)

    return begin


def is_other(log: Json) -> bool:
    return log["address"] == OTHER


BUSY_TRIGGERS = 200
_NODE = r"node failed|a node refuses|node_failures|differ|disputed|do without a node|resting"
_MANY = r"too-busy|run-cap|skipped|too many|max"
ATTACKS = [
    *(
        Attack(f"600 triggers of {wallets} that {name}", 1, cause, begin(wallets), 600, 600)
        for wallets in (1, 6)
        for name, cause, begin in [
            ("rest", r"rests|resting|stopped", _resting),
            ("have no result", r"no result|incomplete|too-busy|has to wait", _without_result),
        ]
    ),
    Attack("calls without EIP-1898", 1, r"EIP-1898", _without_hashes, 100, 100),
    Attack("200 triggers on a busy contract", 1, _MANY, _busy, BUSY_TRIGGERS, 40),
    Attack("300 shapes", 1, _MANY + r"|shape|lane", _shapes, 300, 100),
    *(
        Attack(f"{count} nodes, one {name}", count, _NODE, begin, is_disputed=(count, name) == (2, "omits"))
        for count, name, begin in [
            (2, "invents with receipts", _inventing(has_receipts=True)),
            (2, "invents", _inventing(has_receipts=False)),
            (2, "omits from lists", _nodes(omits=is_other, has_receipts_of_all=True)),
            (2, "omits", _nodes(omits=is_other)),
            (3, "invents with receipts", _inventing(has_receipts=True)),
            (3, "invents", _inventing(has_receipts=False)),
            (3, "omits", _nodes(omits=lambda _log: True)),
            (3, "lags", _nodes(lag=lambda: 30)),
            (3, "limits", _nodes(calls_max=1, blocks_max=1, addresses_max=1, per_second=2)),
            (3, "rests", _nodes(rests=lambda: True)),
            (3, "is slow", _nodes(sleep_s=lambda: 6.0)),
            (3, "has other hashes", _nodes(says_other_hash=True)),
            (3, "has other times", _nodes(says_other_time=True)),
            (3, "answers 9 MB", _nodes(more_bytes=9_000_000)),
        ]
    ),
]
