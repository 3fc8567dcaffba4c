"""`make soak`: a relayer at nodes with all limits and habits of providers at once; each event runs once, none is lost.

One chain has one node, which counts logs in transactions and gives a call less gas than it asks for. Another has four:
two give less gas, one of these takes no hash of a block (EIP-1898). So two can answer any call.

PROVIDER_SECONDS (60) says how long events come, PROVIDER_TRIGGERS (1,010) at how many triggers of each chain,
PROVIDER_CALLS (25) how many calls a second a node takes, PROVIDER_RESTART after how many seconds the relayer ends and
starts again (600, or half the test).
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from muniment.protocol.runs.payloads import EventPayload
from provider_node import THIRSTY, Json, MadeChain, ProviderNode
from relayer_attacks import PING, event_of
from relayer_site import VERDICTS, Site, new_site

SECONDS = float(os.environ.get("PROVIDER_SECONDS", "60"))
# A filter takes a thousand contracts.
TRIGGERS = int(os.environ.get("PROVIDER_TRIGGERS", "1010"))
# After a restart, and after nodes were away, more blocks are read at once than nodes take.
RESTART_SECONDS = float(os.environ.get("PROVIDER_RESTART", min(600, SECONDS / 2)))
SHOWN_SECONDS = 300
AWAY_SECONDS, AWAY_EACH_SECONDS = 120, 600
SECONDS_MAX = 300
# Small plans of providers allow 25 a second, in calls or their worth.
PER_SECOND = int(os.environ.get("PROVIDER_CALLS", "25"))
REQUESTS_MAX = 25
OF_ONE, OF_FOUR = 31_337, 31_339
# What the functions of ten triggers do, and of which result their runs are.
DOES = ["transfer", "balance", "balance", *["nothing"] * 7]
RESULTS = {"transfer": "intents", "balance": "nothing", "nothing": "nothing"}
# What a node counts of each limit that it has.
LIMITS = [
    "batches refused", "ranges refused", "filters full", "status 429", "-32005", "-32603", "removed listed", "lagging",
    "dropped", "slow", "large answers", "eth_call", "out of gas",
]  # fmt: skip
# A trigger, and block, index and data of an event.
Event = tuple[str, str, int, str]
BEGAN_S = time.monotonic()


def is_away() -> bool:
    """Whether all nodes are away: in a long test, two minutes of ten."""
    return (
        SECONDS >= AWAY_EACH_SECONDS
        and (time.monotonic() - BEGAN_S) % AWAY_EACH_SECONDS > AWAY_EACH_SECONDS - AWAY_SECONDS
    )


def limited(
    chain: MadeChain, dice: random.Random, *, gas_max: int | None = None, takes_hashes: bool = True,
    counts_in_transactions: bool = False,
) -> ProviderNode:  # fmt: skip
    """A node that also fails now and then, each way once for certain."""
    requests, quotas, calls = count(), count(), count()
    return ProviderNode(
        chain, calls_max=10, blocks_max=100, addresses_max=1_000, per_second=PER_SECOND,
        lists_removed=True, pads_quantities=True, more_bytes=300_000,
        lag=lambda: dice.choice([0, 0, 0, 1, 2]),
        sleep_s=lambda: dice.choice([0.0, 0.05, 0.2]),
        rests=lambda: is_away() or next(requests) == 20 or dice.random() < 0.01,
        limits=lambda: next(quotas) in {10, 30} or dice.random() < 0.01,
        fails=lambda _method: next(calls) == 50 or dice.random() < 0.01,
        lacks_receipt=lambda name: name.endswith("00"),  # such as those of state that a bridge synchronizes
        gas_max=gas_max, takes_hashes=takes_hashes, counts_in_transactions=counts_in_transactions,
    )  # fmt: skip


@dataclass
class Course:
    """A chain with its nodes, the triggers of its contracts, and their events."""

    site: Site
    chain: MadeChain
    nodes: list[ProviderNode]
    dice: random.Random
    contracts: list[str] = field(default_factory=list[str])
    sigs: list[str] = field(default_factory=list[str])
    events: Counter[Event] = field(default_factory=Counter[Event])
    newest: int = 0

    @property
    def has_one(self) -> bool:
        return len(self.nodes) == 1

    def sign(self) -> None:
        """A trigger of each contract. Each hundredth of another wallet: a relayer reads for so many of one."""
        for at in range(TRIGGERS):
            contract, does = f"0x{at + 1:040x}", DOES[at % len(DOES)]
            # The second balance needs much gas, which no single node that gives less can answer.
            token = THIRSTY if at % len(DOES) == 2 and not self.has_one else "0x" + "70" * 20
            sig = self.site.sign_event(
                contract, [[PING]], number=2 + at // 100 + self.chain.id % 100 * 100, does=does, chain=self.chain.id,
                **({"chainId": self.chain.id, "token": token, "above": "8"} if does == "balance" else {}),
            )  # fmt: skip
            self.contracts.append(contract)
            self.sigs.append(sig)

    def add(self) -> None:
        """Add one to three logs to a new block, or two that are equal in one transaction."""
        # Each block has the logs of one call, so that their indexes are known.
        block = self.newest = max(self.chain.head(0.1), self.newest) + 1
        ending = self.dice.choice(["00", "01", "02", "03"])
        equal = bool(self.events) and self.dice.random() < 0.2
        chosen = self.dice.sample(range(TRIGGERS), self.dice.choice([1, 1, 3]))
        if not self.events:
            chosen = [1]  # whose function asks a contract
        elif equal:
            chosen = [self.dice.randrange(TRIGGERS)] * 2
        for place, at in enumerate(chosen):
            name = f"0x{block:060x}{0 if equal else place:02x}{ending}"
            data = f"0x{at:064x}"
            self.chain.add(self.contracts[at], [PING], data, block=block, transaction=name)
            index = 0 if self.has_one and not equal else place
            self.events[self.sigs[at], self.chain.hash(block), index, data] += 1

    def counts(self) -> Counter[str]:
        return sum((node.counts for node in self.nodes), Counter[str]())


def runs_of(site: Site) -> list[tuple[Event, Json]]:
    """The runs that are no notes, with their events."""
    found: list[tuple[Event, Json]] = []
    for run in site.all("/executions"):
        if run["result"] in VERDICTS:
            event: EventPayload = event_of(run)
            found.append(((run["triggerSig"], event.block_hash, event.index, event.data), run))
    return found


@contextmanager
def courses(directory: Path) -> Generator[list[Course]]:
    dice = random.Random(20)
    one, four = MadeChain(OF_ONE), MadeChain(OF_FOUR)
    with ExitStack() as stack:
        nodes = {
            one: [limited(one, dice, counts_in_transactions=True, gas_max=10_000_000)],
            four: [
                limited(four, dice, takes_hashes=False, gas_max=10_000_000),
                limited(four, dice, gas_max=10_000_000),
                limited(four, dice),
                limited(four, dice),
            ],
        }
        for each in [node for those in nodes.values() for node in those]:
            stack.enter_context(each)
        listed = {chain.id: [node.url for node in those] for chain, those in nodes.items()}
        site = stack.enter_context(new_site(directory, listed))
        yield [Course(site, chain, those, dice) for chain, those in nodes.items()]


def test_each_event_runs_once_at_nodes_with_all_limits(tmp_path: Path) -> None:
    with courses(tmp_path) as made:
        site, dice = made[0].site, made[0].dice
        for each in made:
            each.sign()
        time.sleep(1.1)
        began_s = time.monotonic()
        while (left_s := began_s + SECONDS - time.monotonic()) > 0:
            until = time.monotonic() + min(RESTART_SECONDS, left_s)
            with site.relaying():
                shown_s = time.monotonic()
                while time.monotonic() < until:
                    dice.choice(made).add()
                    time.sleep(dice.choice([0.6, 1, 1.5]))
                    if time.monotonic() > shown_s + SHOWN_SECONDS:
                        shown_s = time.monotonic()
                        show(made, shown_s - began_s)
                show(made, time.monotonic() - began_s)
        with site.relaying():
            wait_for_all(made)
            time.sleep(5)
            check(made, time.monotonic() - began_s)


def wait_for_all(made: list[Course]) -> None:
    """Wait until each event has run."""
    events = sum((each.events for each in made), Counter[Event]())
    until, left = time.monotonic() + SECONDS_MAX, events
    while left := events - Counter(event for event, _ in runs_of(made[0].site)):
        assert time.monotonic() < until, (len(left), left.most_common(5), made[0].site.log()[-3_000:])
        time.sleep(3)


def show(made: list[Course], seconds: float) -> None:
    """Print what came and went."""
    ran = Counter(event for event, _ in runs_of(made[0].site))
    for each in made:
        counts, rates = each.counts(), [f"{node.counts['requests'] / seconds:.1f}" for node in each.nodes]
        print(
            f"\n{time.strftime('%H:%M:%S')} chain {each.chain.id}: {each.events.total()} events, "
            f"{(each.events - ran).total()} have not run, {seconds:.0f} s, "
            f"requests a second {rates}, {dict(sorted(counts.items()))}",
            flush=True,
        )  # fmt: skip


def check(made: list[Course], seconds: float) -> None:
    """Each event has one run, with the result that it must have; each limit was met; requests are few."""
    show(made, seconds)
    runs = runs_of(made[0].site)
    assert Counter(event for event, _ in runs) == sum((each.events for each in made), Counter[Event]())
    results = {
        sig: RESULTS[DOES[at % len(DOES)]] for each in made for at, sig in enumerate(each.sigs)
    }  # fmt: skip
    assert [run for event, run in runs if run["result"] != results[event[0]]] == []
    assert {line for _, run in runs for line in run["logs"]} >= {"[Info] balance 7"}
    for each in made:
        counts = each.counts()
        limits = LIMITS if each.has_one else [*LIMITS, "hashes refused"]
        assert [limit for limit in limits if not counts[limit]] == []
        assert all(node.counts["requests"] / seconds <= REQUESTS_MAX for node in each.nodes)
