"""What was promised, as ratios within one run, and whether the last run kept it: `targets.py` (`make bench-check`)."""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import client_list
import feed_fanout
import growth
import memory
import overload
import pages
import startup
import wrk
from ratios import (
    CREATE_ALONE,
    NEW_TYPES,
    OWN_COST,
    PGBENCH,
    SEEN_TYPES,
    growth_of,
    memory_of,
    name_of,
    start_of,
    two_processes,
)
from traffic import CREATE, LIST, ONE

JSON_FILE = Path(__file__).parent / "last-run.json"
_PEER, _NATIVE, _BARE = "peer", "peer, native curve", "bare"


@dataclass(frozen=True)
class Target:
    """A bound for the median of a comparison's rounds."""

    name: str
    bound: float
    is_lower: bool

    def is_met(self, median: float) -> bool:
        """Whether `median` is on the right side."""
        return median >= self.bound if self.is_lower else median <= self.bound

    def __str__(self) -> str:
        """The bound as it is written."""
        return f"{'≥' if self.is_lower else '≤'} {self.bound:g}"


def _at_least(bound: float, *names: str) -> list[Target]:
    return [Target(name, bound, is_lower=True) for name in names]


def _at_most(bound: float, *names: str) -> list[Target]:
    return [Target(name, bound, is_lower=False) for name in names]


TARGETS = [
    *_at_most(1.7, SEEN_TYPES),
    *_at_most(4, NEW_TYPES),
    *_at_least(1.1, name_of(ONE, "SQLite", _PEER)),
    *_at_least(0.9, name_of(wrk.ONE, "SQLite", _PEER)),
    *_at_least(1.8, name_of(LIST, "SQLite", _PEER), name_of(LIST, "PostgreSQL", _PEER)),
    *_at_least(15, name_of(CREATE, "SQLite", _PEER)),
    *_at_least(3.5, name_of(CREATE, "SQLite", _NATIVE)),
    *_at_least(0.55, name_of(ONE, "SQLite", _BARE)),
    *_at_least(0.5, name_of(LIST, "SQLite", _BARE)),
    *_at_most(2.5, CREATE_ALONE),
    *_at_least(1.6, name_of(ONE, "PostgreSQL", _PEER)),
    *_at_least(20, name_of(CREATE, "PostgreSQL", _PEER)),
    *_at_least(0.5, PGBENCH),
    *_at_most(1.3, *(f"page: {page} / {pages.FIRST_OF_FEW}" for page in (pages.FIRST, pages.MIDDLE, pages.LAST))),
    *_at_least(1.6, *(two_processes(operation, by="CPU") for operation in (ONE, LIST))),
    *_at_most(1.3, *(growth_of(each, growth.ALL) for each in (growth.PAGE, growth.CREATE, growth.DEACTIVATION))),
    # 64 times half a MiB that waits in memory or is read ahead, and one module at a time twice while it is checked,
    # with 30 MiB of validator: 94 of 1,024 MiB.
    *_at_most(0.1, *(memory_of(engine, 64) for engine in (memory.SQLITE, memory.POSTGRESQL))),
    *_at_most(1, start_of(startup.SERVE)),
    *_at_most(0.15, start_of(startup.HELP)),
    # Microseconds of CPU time: a way of answers that wait for nothing, with ids, CORS headers and limits.
    *_at_most(5.5, OWN_COST),
    *_at_most(250, overload.FIRST_P99),
    *_at_most(3, overload.HALF_LOAD),
    *_at_most(2, overload.FLOOD_P50),
    *_at_most(5, overload.FLOOD_P99, overload.ACCEPTED_P99, overload.STOPPED_P99),
    *_at_least(0.8, overload.GOODPUT),
    # Milliseconds, the create included.
    *_at_most(100, *(feed_fanout.name_of(engine, across=False) for engine in feed_fanout.ENGINES)),
    *_at_most(300, *(feed_fanout.name_of(engine, across=True) for engine in feed_fanout.ENGINES)),
    *_at_most(1.5, client_list.LEAST),
    *_at_most(0, overload.FIRST_MISSING, overload.LOST, overload.DESCRIPTORS),
]
BY_NAME = {target.name: target for target in TARGETS}


def main() -> None:
    """List what falls short of its target, or was not measured; the exit status says whether there is any."""
    if not JSON_FILE.exists():
        sys.exit(f"{JSON_FILE.name} is not there: run `make bench` first")
    run = json.loads(JSON_FILE.read_bytes())
    if run["machine"]["quick"]:
        print("This was a quick run: too little for a judgement")
    short = 0
    for target in TARGETS:
        rounds = run["ratios"].get(target.name)
        if rounds is None:
            print(f"not measured   {target.name}   target {target}")
        elif not target.is_met(median := statistics.median(rounds)):
            print(f"falls short    {target.name}   {median:.3g}, target {target}")
        else:
            continue
        short += 1
    print(f"{len(TARGETS) - short} of {len(TARGETS)} targets are met")
    sys.exit(1 if short else 0)


if __name__ == "__main__":
    main()
