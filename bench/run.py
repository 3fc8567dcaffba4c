"""All benchmarks: `run.py [--quick]`. Ratios within one run are what counts; see README.md beside this file."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from typing import Any

import balances
import intents
import memory
import on_postgres
import on_sqlite
import peer
import ratios
import report
import startup
import verification
from scale import FULL, QUICK
from targets import JSON_FILE


def main() -> None:
    scale = QUICK if "--quick" in sys.argv[1:] else FULL
    started, load = time.monotonic(), os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} at the start\n", flush=True)
    if not peer.is_installed():
        print("The peer is not installed, so nothing is compared with it\n")
    micros = verification.measure()
    report.show_verification(micros)
    on_one_file = on_sqlite.measure(scale)
    report.show_sqlite(on_one_file, scale)
    on_a_cluster = on_postgres.measure(scale)
    report.show_postgres(on_a_cluster, scale.rows_on_postgres + scale.registered)
    resident, starts = memory.measure(scale), startup.measure(scale)
    report.show_memory(resident)
    report.show_starts(starts)
    found = {
        **ratios.of_verification(micros),
        **ratios.of_sqlite(on_one_file, statistics.median(micros[verification.RECOVERY])),
        **ratios.of_postgres(on_a_cluster),
        **ratios.of_growth(on_one_file.growth),
        **ratios.of_memory(resident),
        **ratios.of_starts(starts),
    }
    rest: dict[str, Any] = {}
    if not scale.is_quick:
        rest["balances"] = balances.measure()
        report.show_balances(rest["balances"])
        rest["imports"], rest["intents"] = intents.measure()
        report.show_intents(rest["imports"], rest["intents"])
    report.show_ratios(found)
    machine = {
        "python": platform.python_version(), "cores": os.cpu_count(), "loadAtStart": load, "quick": scale.is_quick,
        "seconds": round(time.monotonic() - started),
    }  # fmt: skip
    kept = {
        "machine": machine, "ratios": found, "verification": micros, "sqlite": on_one_file, "postgresql": on_a_cluster,
        "memory": resident, "starts": starts, **rest,
    }  # fmt: skip
    JSON_FILE.write_text(json.dumps(kept, indent=1, default=vars), "utf-8")
    print(f"\nEvery round is in {JSON_FILE.name}; {machine['seconds']} s, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
