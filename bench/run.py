"""All benchmarks: `run.py [--quick]`. Ratios within one run are what counts; see README.md beside this file."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import balances
import client_list
import feed_fanout
import intents
import limits
import machine
import memory
import on_postgres
import on_sqlite
import overload
import peer
import ratios
import report
import startup
import verification
from scale import FULL, QUICK
from targets import JSON_FILE


def main() -> None:
    scale = QUICK if "--quick" in sys.argv[1:] else FULL
    started, here = time.monotonic(), machine.describe()
    report.show_machine(here)
    if not peer.is_installed():
        print("The peer is not installed, so nothing is compared with it\n")
    micros = verification.measure()
    report.show_verification(micros)
    limits.show(limits.measure_charges(), limits.measure_costs())
    on_one_file = on_sqlite.measure(scale)
    report.show_sqlite(on_one_file, scale)
    on_a_cluster = on_postgres.measure(scale)
    report.show_postgres(on_a_cluster, scale.rows_on_postgres + scale.registered)
    resident, starts = memory.measure(scale), startup.measure(scale)
    report.show_memory(resident)
    report.show_starts(starts)
    print("\nBeside strangers, with the limits that hold by default")
    strangers = overload.measure(scale)
    fanout = feed_fanout.measure(scale)
    at_client = client_list.measure()
    client_list.show(at_client)
    found = {
        **ratios.of_verification(micros),
        **ratios.of_sqlite(on_one_file, statistics.median(micros[verification.RECOVERY])),
        **ratios.of_postgres(on_a_cluster),
        **ratios.of_growth(on_one_file.growth),
        **ratios.of_memory(resident),
        **ratios.of_starts(starts),
        **strangers,
        **fanout,
        **client_list.of_client(at_client),
        **_own_cost(),
    }
    rest: dict[str, Any] = {}
    if not scale.is_quick:
        rest["balances"] = balances.measure()
        report.show_balances(rest["balances"])
        rest["imports"], rest["intents"] = intents.measure()
        report.show_intents(rest["imports"], rest["intents"])
    report.show_ratios(found)
    here |= {"quick": scale.is_quick, "seconds": round(time.monotonic() - started)}
    kept = {
        "machine": here, "ratios": found, "verification": micros, "sqlite": on_one_file, "postgresql": on_a_cluster,
        "memory": resident, "starts": starts, "client": at_client, **rest,
    }  # fmt: skip
    JSON_FILE.write_text(json.dumps(kept, indent=1, default=vars), "utf-8")
    print(f"\nEvery round is in {JSON_FILE.name}; {here['seconds']} s, load {os.getloadavg()[0]:.1f} at the end")


def _own_cost() -> ratios.Ratios:
    """What a request costs in the server without the kernel, where `request_cost.py` measures it."""
    if find_spec("request_cost") is None:
        return {}
    return import_module("request_cost").measure()


if __name__ == "__main__":
    main()
