"""The ratios that count: what was measured against what it was measured with, round by round, under a name each."""

from __future__ import annotations

from collections.abc import Mapping

import growth
import memory
import on_postgres
import on_sqlite
import pages
import verification
from server import Load
from traffic import CREATE, Loads

# Name of a comparison to the ratio of each round.
Ratios = dict[str, list[float]]

NEW_TYPES, SEEN_TYPES = "verify, types never seen / bare recovery", "verify / bare recovery"
NEW_VALUES = "verify, values never seen / bare recovery"
CREATE_ALONE = "POST /triggers / (recovery + insert alone)"
OWN_COST = "a single read's own cost in the server, µs"
PGBENCH = "POST /triggers on PostgreSQL / pgbench"
PAIR_PGBENCH = "POST /triggers on PostgreSQL, two processes / pgbench"
PAIR = "POST /triggers on PostgreSQL, two processes / one, by wall"


def name_of(operation: str, engine: str, other: str) -> str:
    """The name of a comparison of two servers."""
    return f"{operation} on {engine} / {other}"


def of_verification(micros: Mapping[str, list[float]]) -> Ratios:
    """Times over the time of the bare recovery."""
    floor = micros[verification.RECOVERY]
    return {
        SEEN_TYPES: _over(micros[verification.VERIFY], floor),
        NEW_TYPES: _over(micros[verification.NEW_TYPES], floor),
        NEW_VALUES: _over(micros[verification.NEW_VALUES], floor),
    }


def of_sqlite(found: on_sqlite.Measured, recovery_micros: float) -> Ratios:
    """Rates over the others' rates, times of pages over the first page of few, rates of two processes over one's."""
    ratios = _of_loads(found.loads | found.wrk, "SQLite")
    create_micros = [1e6 / load.per_cpu_second for load in found.loads[CREATE]["muniment"]]
    ratios[CREATE_ALONE] = _over(create_micros, [recovery_micros + each for each in found.inserts])
    for page in (pages.FIRST, pages.MIDDLE, pages.LAST):
        ratios[f"page: {page} / {pages.FIRST_OF_FEW}"] = _over(found.pages[page], found.pages[pages.FIRST_OF_FEW])
    name = f"page: {pages.OF_SIGNER} / {pages.OF_SIGNER_OF_FEW}"
    ratios[name] = _over(found.pages[pages.OF_SIGNER], found.pages[pages.OF_SIGNER_OF_FEW])
    for operation, by_count in found.processes.items():
        one, two = by_count["1"], by_count["2"]
        ratios[two_processes(operation, by="wall")] = _over(
            [load.per_wall_second for load in two], [load.per_wall_second for load in one]
        )
        ratios[two_processes(operation, by="CPU")] = _over(
            [load.requests / load.busiest_seconds for load in two], [load.per_cpu_second for load in one]
        )
    return ratios


def of_growth(micros: growth.Micros) -> Ratios:
    """Times in larger tables over those in the smallest."""
    return {
        growth_of(operation, size): _over(by_size[size], by_size[growth.FEW])
        for operation, by_size in micros.items()
        for size in (growth.SOME, growth.ALL)
    }


def growth_of(operation: str, size: str) -> str:
    """The name of what an operation costs in a larger table."""
    return f"{operation}: among {size} / among {growth.FEW}"


def of_memory(found: Mapping[str, list[memory.Resident]]) -> Ratios:
    """What the uploads of the most clients add to a process, over what they upload."""
    most = {engine: max(measured, key=lambda each: each.clients) for engine, measured in found.items()}
    return {memory_of(engine, each.clients): [each.share] for engine, each in most.items()}


def memory_of(engine: str, clients: int) -> str:
    """The name of what many uploads at once add to a process."""
    return f"memory that {clients} uploads of 16 MiB add on {engine} / their bytes"


def of_starts(seconds: Mapping[str, list[float]]) -> Ratios:
    """Seconds, as they are: nothing else starts beside these to be compared with."""
    return {start_of(name): each for name, each in seconds.items()}


def start_of(name: str) -> str:
    """The name of what a start takes."""
    return f"{name}, seconds"


def two_processes(operation: str, *, by: str) -> str:
    """By `wall` the load generator takes its part of the cores; by `CPU` it is set aside."""
    return f"{operation}, two processes / one, by {by}"


def of_postgres(found: on_postgres.Measured) -> Ratios:
    """Rates per CPU second of the server, without PostgreSQL's own, over the peers'; by the clock over pgbench's."""
    ratios = _of_loads(found.loads, "PostgreSQL")
    beside = found.loads[CREATE][on_postgres.BESIDE_PGBENCH]
    one = [load.per_wall_second for load in beside]
    two = [load.per_wall_second for load in found.loads[CREATE][on_postgres.TWO_PROCESSES]]
    ratios[PGBENCH] = _over(one, found.pgbench)
    ratios[PAIR_PGBENCH] = _over(two, found.pgbench)
    ratios[PAIR] = _over(two, one)
    return ratios


def _of_loads(loads: Loads, engine: str) -> Ratios:
    ratios: Ratios = {}
    for operation, by_server in loads.items():
        for other, theirs in by_server.items():
            if not other.startswith("muniment"):
                ratios[name_of(operation, engine, other)] = _over(_rates(by_server["muniment"]), _rates(theirs))
    return ratios


def _rates(loads: list[Load]) -> list[float]:
    return [load.per_cpu_second for load in loads]


def _over(ours: list[float], theirs: list[float]) -> list[float]:
    return [our / their for our, their in zip(ours, theirs, strict=True)]
