"""All benchmarks: `run.py`. Ratios within one run are what counts; see README.md beside this file."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict
from pathlib import Path

import balances
import endpoints
import intents
import verification
from server import CONNECTIONS, Load

JSON_FILE = Path(__file__).parent / "last-run.json"


def main() -> None:
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n")
    micros = verification.measure()
    _print_verification(micros)
    loads = endpoints.measure()
    _print_endpoints(loads)
    readings = balances.measure()
    _print_balances(readings)
    imported, pages = intents.measure()
    _print_intents(imported, pages)
    kept = {
        "verification": micros, "endpoints": loads, "balances": readings, "imports": imported, "intents": pages,
    }  # fmt: skip
    JSON_FILE.write_text(json.dumps(kept, indent=1, default=asdict), "utf-8")
    print(f"\nEvery round is in {JSON_FILE.name}; load {os.getloadavg()[0]:.1f} at the end")


def _print_intents(imported: intents.Imported, pages: intents.Micros) -> None:
    rate = imported.lines / imported.seconds
    print(f"\nImporting {imported.lines:,} intents: {imported.seconds:.1f} s, {rate:,.0f} lines a second")
    print(
        f"Reading, microseconds among {intents.FEW:,} and {intents.MANY:,} intents, in process; goal: ratio at most 1.3"
    )
    for name, micros in pages.items():
        few, many = micros["few"], micros["many"]
        ratios = [large / small for small, large in zip(few, many, strict=True)]
        print(f"  {name:32} {_spread(few, 0)}   {_spread(many, 0)}   ratio {_spread(ratios, 2)}")
    print()


def _print_verification(micros: dict[str, list[float]]) -> None:
    verify, bare = micros["verify"], micros["bare recovery"]
    ratios = [ours / floor for ours, floor in zip(verify, bare, strict=True)]
    print("Verifying a signed trigger, CPU microseconds, median of rounds (fastest … slowest)")
    for name, values in micros.items():
        print(f"  {name:16} {_spread(values, 1)}")
    print(f"  {'ratio':16} {_spread(ratios, 2)}   goal: at most 2\n")


def _print_endpoints(loads: endpoints.Loads) -> None:
    print(f"Over HTTP, {CONNECTIONS} connections, one process, median of rounds (lowest … highest)")
    print(f"  {'':42}{'per server-CPU second':>28}{'per wall second':>28}")
    for operation, by_server in loads.items():
        rates = {name: _rates(runs) for name, runs in by_server.items()}
        for name, by_time in rates.items():
            _print_row(operation if name == "muniment" else "", name, by_time, 0)
        ratios = [
            [ours / bare for ours, bare in zip(*pair, strict=True)]
            for pair in zip(rates["muniment"], rates["bare"], strict=True)
        ]
        _print_row("", "ratio", ratios, 2)


def _rates(runs: list[Load]) -> list[list[float]]:
    """Requests per server-CPU second, and per wall second, by round."""
    return [[run.requests / run.cpu_seconds for run in runs], [run.requests / run.wall_seconds for run in runs]]


def _print_row(operation: str, name: str, by_time: list[list[float]], digits: int) -> None:
    per_cpu, per_wall = (_spread(values, digits) for values in by_time)
    print(f"  {operation:32} {name:9}{per_cpu:>28}{per_wall:>28}")


def _print_balances(readings: dict[str, list[balances.Cost]] | None) -> None:
    if readings is None:
        print("\nBalances: not measured, anvil is not there; tests/node/install.py installs it")
        return
    chains = len(balances.CHAIN_IDS)
    print(f"\nBalances of {balances.TOKENS} tokens on each of {chains} chains, milliseconds, median of rounds")
    print(f"  {'':32}{'wall':>28}{'CPU of the reader':>28}")
    ours = readings[balances.MUNIMENT]
    for name, costs in readings.items():
        _print_reading(name, [cost.wall_ms for cost in costs], [cost.cpu_ms for cost in costs], 1)
        if name != balances.MUNIMENT:
            pairs = list(zip(ours, costs, strict=True))
            wall = [our.wall_ms / bare.wall_ms for our, bare in pairs]
            _print_reading(f"  {balances.MUNIMENT} to it", wall, [our.cpu_ms / bare.cpu_ms for our, bare in pairs], 2)


def _print_reading(name: str, wall: list[float], cpu: list[float], digits: int) -> None:
    print(f"  {name:32}{_spread(wall, digits):>28}{_spread(cpu, digits):>28}")


def _spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} … {max(values):,.{digits}f})"


if __name__ == "__main__":
    main()
