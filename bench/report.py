"""Tables of what was measured, for a person."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import balances
import growth
import intents
import memory
import on_postgres
import on_sqlite
import wrk
from ratios import Ratios
from scale import Scale
from server import CONNECTIONS, Load
from targets import BY_NAME
from traffic import Loads


def show_machine(here: Mapping[str, Any]) -> None:
    print(f"Python {here['python']} at {here['interpreter']}: {here['builtWith']}")
    print(f"A million rounds of a plain loop: {here['calibrationMs']} ms of CPU time", end="; ")
    print(f"{here['cores']} cores, load {here['loadAtStart']} at the start\n", flush=True)


def show_verification(micros: Mapping[str, list[float]]) -> None:
    print("Verifying a signed trigger, CPU microseconds, median of rounds (lowest … highest)")
    for name, values in micros.items():
        print(f"  {name:26} {spread(values, 1)}")


def show_sqlite(found: on_sqlite.Measured, scale: Scale) -> None:
    print(f"\nOver HTTP on SQLite, {scale.triggers:,} triggers, {CONNECTIONS} connections, one process")
    _show_loads(found.loads)
    if missing := wrk.why_not():
        print(f"\nBy wrk: not measured, {missing}")
    else:
        print("\nThe same by wrk: the server has one core, and wrk another")
        _show_loads(found.wrk)
    print(f"  {'a durable insert alone, CPU µs':32} {spread(found.inserts, 1)}")
    print()
    _head()
    for operation, loads in found.figures.items():
        _show_load(operation, "muniment", loads)
    for name, micros in found.bare_upload.items():
        print(f"  {name + ', µs':32} {spread(micros, 0)}")
    print("\nA page of ten, CPU microseconds, in process")
    for name, micros in found.pages.items():
        print(f"  {name:34} {spread(micros, 0)}")
    print(f"\nAs the table grows, CPU microseconds, in process: 1,000, {scale.some_triggers:,}, {scale.triggers:,}")
    for operation, by_size in found.growth.items():
        print(f"  {operation:32}{''.join(f'{spread(by_size[size], 0):>28}' for size in growth.SIZES)}")
    print("\nProcesses on one database")
    _head()
    for operation, by_count in found.processes.items():
        for count, loads in by_count.items():
            _show_load(operation, count, loads)


def show_postgres(found: on_postgres.Measured, triggers: int) -> None:
    print(f"\nOver HTTP on PostgreSQL, {triggers:,} triggers; the CPU time is the server's without PostgreSQL's own")
    _show_loads(found.loads)
    print(f"  {'pgbench, inserts by the clock':48}{'':>26}{spread(found.pgbench, 0):>28}")


def show_memory(found: Mapping[str, list[memory.Resident]]) -> None:
    print(
        "\nResident memory of one process, MiB: ready, at most while modules of 16 MiB are uploaded at once, and after"
    )
    for engine, measured in found.items():
        for each in measured:
            sizes = f"{each.ready:6.0f} {each.peak:8.0f} {each.after:8.0f}"
            print(f"  {engine:12} {each.clients:3} at once {sizes}   in {each.seconds:.1f} s")


def show_starts(seconds: Mapping[str, list[float]]) -> None:
    print("\nStarts, seconds by the clock")
    for name, taken in seconds.items():
        print(f"  {name:38} {spread(taken, 3)}")


def show_balances(readings: Mapping[str, list[balances.Cost]] | None) -> None:
    if readings is None:
        print("\nBalances: not measured, anvil is not there; tests/node/install.py installs it")
        return
    chains = len(balances.CHAIN_IDS)
    print(f"\nBalances of {balances.TOKENS} tokens on each of {chains} chains, milliseconds, median of rounds")
    print(f"  {'':32}{'wall':>28}{'CPU of the reader':>28}")
    ours = readings[balances.MUNIMENT]
    for name, costs in readings.items():
        _show_reading(name, [cost.wall_ms for cost in costs], [cost.cpu_ms for cost in costs], 1)
        if name != balances.MUNIMENT:
            pairs = list(zip(ours, costs, strict=True))
            wall = [our.wall_ms / bare.wall_ms for our, bare in pairs]
            _show_reading(f"  {balances.MUNIMENT} to it", wall, [our.cpu_ms / bare.cpu_ms for our, bare in pairs], 2)


def show_intents(imported: intents.Imported, pages: intents.Micros) -> None:
    rate = imported.lines / imported.seconds
    print(f"\nImporting {imported.lines:,} intents: {imported.seconds:.1f} s, {rate:,.0f} lines a second")
    print(
        f"Reading, CPU microseconds among {intents.FEW:,} and {intents.MANY:,} intents, in process; goal: at most 1.3"
    )
    for name, micros in pages.items():
        few, many = micros["few"], micros["many"]
        ratios = [large / small for small, large in zip(few, many, strict=True)]
        print(f"  {name:32} {spread(few, 0)}   {spread(many, 0)}   ratio {spread(ratios, 2)}")


def show_ratios(ratios: Ratios) -> None:
    print(f"\n{'Ratios, median of rounds (lowest … highest)':66}{'':>24}  target")
    for name, rounds in ratios.items():
        target = BY_NAME.get(name)
        kept = "" if target is None else f"{target}{'' if target.is_met(statistics.median(rounds)) else '   SHORT'}"
        print(f"  {name:64}{spread(rounds, 2):>24}  {kept}")


def spread(values: Iterable[float], digits: int) -> str:
    """The median, and in parentheses the lowest and the highest."""
    given = list(values)
    return f"{statistics.median(given):,.{digits}f} ({min(given):,.{digits}f} … {max(given):,.{digits}f})"


def _show_loads(loads: Loads) -> None:
    _head()
    for operation, by_server in loads.items():
        for name, runs in by_server.items():
            _show_load(operation if name == "muniment" else "", name, runs)


def _head() -> None:
    print(f"  {'':58}{'per server-CPU second':>26}{'per wall second':>28}")


def _show_load(operation: str, name: str, loads: list[Load]) -> None:
    per_cpu, per_wall = [load.per_cpu_second for load in loads], [load.per_wall_second for load in loads]
    print(f"  {operation:32} {name:25}{spread(per_cpu, 0):>26}{spread(per_wall, 0):>28}")


def _show_reading(name: str, wall: list[float], cpu: list[float], digits: int) -> None:
    print(f"  {name:32}{spread(wall, digits):>28}{spread(cpu, digits):>28}")
