"""`make soak`: a relayer at a node with all limits and habits of providers at once; each event runs once, none is lost.

PROVIDER_SECONDS (60) says how long events come, PROVIDER_TRIGGERS (1,010) at how many triggers.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from provider_node import MadeChain, ProviderNode
from relayer_attacks import PING, event_of
from relayer_site import VERDICTS, Site, new_site

SECONDS = float(os.environ.get("PROVIDER_SECONDS", "60"))
# A filter takes a thousand contracts.
TRIGGERS = int(os.environ.get("PROVIDER_TRIGGERS", "1010"))
SECONDS_MAX = 180
# Small plans of providers allow 25 a second, in calls or their worth.
PER_SECOND = 25


def limited(chain: MadeChain, dice: random.Random) -> ProviderNode:
    return ProviderNode(
        chain, calls_max=10, blocks_max=100, addresses_max=1_000, per_second=PER_SECOND, gas_max=10_000_000,
        lists_removed=True, pads_quantities=True, takes_hashes=False, more_bytes=300_000,
        lag=lambda: dice.choice([0, 0, 0, 1, 2]),
        sleep_s=lambda: dice.choice([0.0, 0.05, 0.2]),
        rests=lambda: dice.random() < 0.01,
        fails=lambda _method: dice.random() < 0.01,
        lacks_receipt=lambda name: name.endswith("00"),  # such as those of state that a bridge synchronizes
    )  # fmt: skip


def events_of(site: Site) -> Counter[tuple[str, str, int]]:
    """How often each event has run, by its trigger, its block and its index."""
    found = Counter[tuple[str, str, int]]()
    for run in site.all("/executions"):
        if run["result"] in VERDICTS:
            event = event_of(run)
            found[run["triggerSig"], event.block_hash, event.index] += 1
    return found


def test_each_event_runs_once_at_a_node_with_all_limits(tmp_path: Path) -> None:
    dice, chain = random.Random(20), MadeChain()
    with ExitStack() as stack:
        node = stack.enter_context(limited(chain, dice))
        site = stack.enter_context(new_site(tmp_path, {chain.id: [node.url]}))
        contracts = [f"0x{at + 1:040x}" for at in range(TRIGGERS)]
        # Each hundredth of another wallet: a relayer reads for so many triggers of one.
        sigs = [
            site.sign_event(each, [[PING]], number=2 + at // 100, does="transfer" if at % 10 else "nothing")
            for at, each in enumerate(contracts)
        ]
        stack.enter_context(site.relaying())
        time.sleep(1.1)
        began_s, expected = time.monotonic(), Counter[tuple[str, str, int]]()
        while time.monotonic() < began_s + SECONDS:
            expected += added(chain, dice, contracts, sigs)
            time.sleep(dice.choice([1.2, 2, 3]))
        site.wait_until(lambda: not expected - events_of(site), "an event has not run", SECONDS_MAX)
        seconds = time.monotonic() - began_s
        time.sleep(5)
        rate = node.counts["requests"] / seconds
        print(f"\n{expected.total()} events, {seconds:.0f} s, {rate:.1f} a second, {dict(node.counts)}")
        assert events_of(site) == expected
        assert rate <= PER_SECOND


def added(
    chain: MadeChain, dice: random.Random, contracts: list[str], sigs: list[str]
) -> Counter[tuple[str, str, int]]:
    """Add one to three logs to a new block, or two that are equal in one transaction; the events."""
    block, found = chain.head(0.1) + 1, Counter[tuple[str, str, int]]()
    ending = dice.choice(["00", "01", "02", "03"])
    equal = dice.random() < 0.2
    chosen = [dice.randrange(TRIGGERS)] * 2 if equal else dice.sample(range(TRIGGERS), dice.choice([1, 1, 3]))
    for index, at in enumerate(chosen):
        name = f"0x{block:060x}{0 if equal else index:02x}{ending}"
        chain.add(contracts[at], [PING], f"0x{at:064x}", block=block, transaction=name)
        found[sigs[at], chain.hash(block), index] += 1
    return found
