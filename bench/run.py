"""All benchmarks of `make bench`: `run.py [--quick]`. Compare ratios within one run; see README.md beside this file."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import sysconfig
import time
from typing import Any

import client_list
import console_pages
import feed_fanout
import on_postgres
import on_sqlite
import relaying
import report
import targets
import verification
from server import has_peer
from traffic import FULL, QUICK

_LOOPS, _ROUNDS = 1_000_000, 7


def main() -> None:
    scale = QUICK if "--quick" in sys.argv[1:] else FULL
    started, here = time.monotonic(), _describe()
    report.show_machine(here)
    if not has_peer():
        print("The peer is not installed, so it is left out\n")
    micros = verification.measure()
    report.show_verification(micros)
    on_file = on_sqlite.measure(scale)
    report.show_sqlite(on_file, scale)
    on_cluster = on_postgres.measure(scale)
    report.show_postgres(on_cluster, scale.rows_on_postgres + scale.registered)
    fanout = feed_fanout.measure(scale)
    at_client = client_list.measure()
    client_list.show(at_client)
    intents = console_pages.INTENTS_QUICK if scale.is_quick else console_pages.INTENTS
    in_console = console_pages.measure(intents)
    console_pages.show(in_console, intents)
    relayed = relaying.measure(relaying.TRIGGERS_QUICK if scale.is_quick else relaying.TRIGGERS)
    relaying.show(relayed)
    found = {
        **targets.of_verification(micros),
        **targets.of_loads(on_file.loads, "SQLite"),
        **targets.of_loads(on_cluster, "PostgreSQL"),
        **targets.of_growth(on_file.growth),
        **fanout,
        **client_list.of_client(at_client),
        **console_pages.of_pages(in_console),
        **relaying.of_relayer(relayed),
    }
    report.show_ratios(found)
    here |= {"quick": scale.is_quick, "seconds": round(time.monotonic() - started)}
    kept = {
        "machine": here, "ratios": found, "verification": micros, "sqlite": on_file, "postgresql": on_cluster,
        "client": at_client, "console": in_console, "relayer": relayed._asdict(),
    }  # fmt: skip
    targets.JSON_FILE.write_text(json.dumps(kept, indent=1, default=vars), "utf-8")
    print(
        f"\nEvery round is in {targets.JSON_FILE.name}; {here['seconds']} s, load {os.getloadavg()[0]:.1f} at the end"
    )


def _describe() -> dict[str, Any]:
    """The machine and its Python."""
    return {
        "interpreter": sys.executable,
        "python": platform.python_version(),
        "builtWith": _built_with(),
        "calibrationMs": round(_calibration_ms(), 1),
        "cores": len(os.sched_getaffinity(0)),
        "loadAtStart": round(os.getloadavg()[0], 2),
    }


def _built_with() -> str:
    """The compiler's last -O, and whether the configuration has --enable-optimizations.

    Debian optimises by other means, which only the calibration loop shows.
    """
    levels = re.findall(r"-O\S*", str(sysconfig.get_config_var("PY_CFLAGS") or ""))
    configured = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    by_profile = "with" if "--enable-optimizations" in configured else "without"
    return f"{levels[-1] if levels else 'no -O'}, configured {by_profile} --enable-optimizations"


def _calibration_ms() -> float:
    """CPU milliseconds of a million rounds of a plain loop; the lowest of seven."""
    return min(_loop_ms() for _ in range(_ROUNDS))


def _loop_ms() -> float:
    started, total = time.process_time_ns(), 0
    for number in range(_LOOPS):
        total = (total * 31 + number) & 0xFFFF
    return (time.process_time_ns() - started) / 1e6


if __name__ == "__main__":
    main()
