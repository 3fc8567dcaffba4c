"""Ratios within one run, the bounds that they should keep, and a list of those missed: `make bench-check`."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import client_list
import console_pages
import feed_fanout
import growth
import verification
from server import Load
from traffic import CREATE, LIST, ONE, Loads

JSON_FILE = Path(__file__).parent / "results" / "last-run.json"
_PEER, _NATIVE = "peer", "peer, native curve"
NEW_TYPES, SEEN_TYPES = "verify, types never seen / bare recovery", "verify / bare recovery"
NEW_VALUES = "verify, values never seen / bare recovery"

# Name of a comparison to the ratio of each round.
Ratios = dict[str, list[float]]


def of_verification(micros: Mapping[str, list[float]]) -> Ratios:
    """Times over the time of the bare recovery."""
    floor = micros[verification.RECOVERY]
    return {
        SEEN_TYPES: _over(micros[verification.VERIFY], floor),
        NEW_TYPES: _over(micros[verification.NEW_TYPES], floor),
        NEW_VALUES: _over(micros[verification.NEW_VALUES], floor),
    }


def of_loads(loads: Loads, engine: str) -> Ratios:
    """Requests per CPU second of the server, over those of each other server."""
    return {
        name_of(operation, engine, other): _over(_rates(by_server["muniment"]), _rates(theirs))
        for operation, by_server in loads.items()
        for other, theirs in by_server.items()
        if other != "muniment"
    }


def name_of(operation: str, engine: str, other: str) -> str:
    """The name of a comparison of two servers."""
    return f"{operation} on {engine} / {other}"


def of_growth(micros: growth.Micros) -> Ratios:
    """Times in larger tables over those in the smallest."""
    return {
        growth_of(operation, size): _over(by_size[size], by_size[growth.FEW])
        for operation, by_size in micros.items()
        for size in (growth.SOME, growth.ALL)
    }


def growth_of(operation: str, size: str) -> str:
    """The name of the cost of an operation in a larger table."""
    return f"{operation}: among {size} / among {growth.FEW}"


def _rates(loads: list[Load]) -> list[float]:
    return [load.per_cpu_second for load in loads]


def _over(ours: list[float], theirs: list[float]) -> list[float]:
    return [our / their for our, their in zip(ours, theirs, strict=True)]


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
    *_at_least(1.15, name_of(ONE, "SQLite", _PEER)),
    *_at_least(1.8, name_of(LIST, "SQLite", _PEER), name_of(LIST, "PostgreSQL", _PEER)),
    *_at_least(11, name_of(CREATE, "SQLite", _PEER)),
    *_at_least(2.9, name_of(CREATE, "SQLite", _NATIVE)),
    *_at_least(1.6, name_of(ONE, "PostgreSQL", _PEER)),
    *_at_least(20, name_of(CREATE, "PostgreSQL", _PEER)),
    *_at_least(5, name_of(CREATE, "PostgreSQL", _NATIVE)),
    *_at_most(1.3, *(growth_of(each, growth.ALL) for each in (growth.PAGE, growth.CREATE, growth.DEACTIVATION))),
    # Milliseconds, the create included.
    *_at_most(60, *(feed_fanout.name_of(engine, across=False) for engine in feed_fanout.ENGINES)),
    *_at_most(300, *(feed_fanout.name_of(engine, across=True) for engine in feed_fanout.ENGINES)),
    *_at_most(1.7, client_list.LEAST),
    *_at_most(15, console_pages.SLOWEST),
]
BY_NAME = {target.name: target for target in TARGETS}


def main() -> None:
    """List missed targets and those not measured; the exit status is 1 if there are any."""
    if not JSON_FILE.exists():
        sys.exit(f"{JSON_FILE.name} not found: run `make bench` first")
    run = json.loads(JSON_FILE.read_bytes())
    if run["machine"]["quick"]:
        print("This was a quick run, which is too short to judge speeds")
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
