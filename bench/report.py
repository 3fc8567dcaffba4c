"""Tables of a run, for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import growth
import on_sqlite
from server import CONNECTIONS
from targets import BY_NAME, Ratios
from traffic import Loads, Scale


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
    print(f"\nAs the table grows, CPU microseconds, in process: 1,000, {scale.some_triggers:,}, {scale.triggers:,}")
    for operation, by_size in found.growth.items():
        print(f"  {operation:32}{''.join(f'{spread(by_size[size], 0):>28}' for size in growth.SIZES)}")


def show_postgres(loads: Loads, triggers: int) -> None:
    print(f"\nOver HTTP on PostgreSQL, {triggers:,} triggers; the CPU time is the server's without PostgreSQL's own")
    _show_loads(loads)


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
    print(f"  {'':58}{'per server-CPU second':>26}{'per wall second':>28}")
    for operation, by_server in loads.items():
        for name, runs in by_server.items():
            shown = operation if name == "muniment" else ""
            per_cpu, per_wall = [run.per_cpu_second for run in runs], [run.per_wall_second for run in runs]
            print(f"  {shown:32} {name:25}{spread(per_cpu, 0):>26}{spread(per_wall, 0):>28}")
