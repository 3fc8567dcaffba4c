"""What the console's pages cost among a million intents, on SQLite. Also runs alone: `console_pages.py [--intents N]`.

A demo makes a registry with a day of sample data; its intents, of both generations and every status, are copied by SQL
under other hashes, spread over thirty days. The records are real ones, so that a page has something to say. The pages
are asked for in process, one after the other, and their time is the CPU time of the process. It takes a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from in_process import get, unlimited
from muniment.service.app import Application, build_context

INTENTS: Final = 1_000_000
INTENTS_QUICK: Final = 20_000
SLOWEST: Final = "the console's slowest page: p95 in ms"
ROUNDS: Final = 60
_MONTH_MS: Final = 30 * 86_400_000
_DEMO_SECONDS_MAX: Final = 120


def sampled(data: Path) -> None:
    """A registry with a day of sample data in `data`."""
    command = [sys.executable, "-m", "muniment", "demo", "--data-dir", str(data), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as demo:
        assert demo.stdout is not None
        until = time.monotonic() + _DEMO_SECONDS_MAX
        for line in demo.stdout:
            assert time.monotonic() < until, line
            if "Ctrl-C" in line:
                break
        demo.terminate()


def spread(database: Path, count: int) -> None:
    """Copy the intents until there are `count`; the newest rows are the original ones."""
    with closing(sqlite3.connect(database)) as connection:
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-500000", "foreign_keys=OFF"):
            connection.execute(f"PRAGMA {pragma}")
        ((highest, there),) = connection.execute("SELECT max(seq), count(*) FROM intents")
        copies = max(count // there - 1, 0)
        made = connection.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE tbl_name = 'intents' AND sql NOT LIKE 'CREATE TABLE%'"
        ).fetchall()
        for kind, name, _ in made:
            connection.execute(f"DROP {kind} {name}")
        for table in ("intents", "intent_users", "intent_ops", "intent_proposals", "intent_logs"):
            column = "intent_seq" if table in {"intent_proposals", "intent_logs"} else "seq"
            connection.execute(f"UPDATE {table} SET {column} = {column} + ?", (highest * copies,))
        names: list[str] = [row[1] for row in connection.execute("PRAGMA table_info(intents)")]
        changed: dict[str, str] = {
            "seq": f"seq - {highest} * n", "hash": "CAST(randomblob(32) AS BLOB)",
            "created_at_ms": f"created_at_ms - {_MONTH_MS // max(copies, 1)} * n",
        }  # fmt: skip
        numbers = f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {copies})"
        connection.execute(
            f"{numbers} INSERT INTO intents ({', '.join(names)}) SELECT "
            f"{', '.join(changed.get(each, each) for each in names)} FROM numbers CROSS JOIN intents"
        )
        for table in ("intent_users", "intent_ops"):
            (key,) = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] != "seq"]
            connection.execute(
                f"{numbers} INSERT INTO {table} ({key}, seq) SELECT {key}, seq - {highest} * n "
                f"FROM numbers CROSS JOIN {table}"
            )
        for _, _, sql in made:
            connection.execute(sql)
        connection.execute("ANALYZE")
        connection.commit()


async def pages(app: Application) -> dict[str, str]:
    """The address of each kind of page."""
    _, listed = await get(app, "/intents?limit=1&generation=all")
    intent: dict[str, Any] = json.loads(listed)[0]
    _, active = await get(app, "/triggers?active=true&limit=1")
    trigger: dict[str, Any] = json.loads(active)[0]
    _, first = await get(app, "/console/intents")
    later = re.search(rb'href="([^"]*cursor=[^"]*)"', first)
    assert later
    return {
        "overview": "/console", "intents": "/console/intents",
        "intents, a later page": "/console/intents" + later[1].decode().replace("&amp;", "&"),
        "intents that failed": "/console/intents?status=failed", "of a user": f"/console/addresses/{trigger['signer']}",
        "an intent": f"/console/intents/{intent['hash']}", "triggers": "/console/triggers",
        "a trigger": f"/console/triggers/{trigger['sig']}", "functions": "/console/functions", "runs": "/console/runs",
        "an owner": f"/console/account?address={trigger['signer']}",
        "a form": f"/console/triggers/new?functionCid={trigger['functionCid']}",
    }  # fmt: skip


def measure(intents: int) -> dict[str, list[float]]:
    """CPU milliseconds of each page among so many intents, by round."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        sampled(data)
        spread(data / "muniment.db", intents)
        return asyncio.run(_measured(data))


def of_pages(found: dict[str, list[float]]) -> dict[str, list[float]]:
    """The 95th percentile of the slowest page."""
    return {SLOWEST: [max(map(p95, found.values()))]}


def p95(spent: list[float]) -> float:
    return statistics.quantiles(spent, n=20)[-1]


def show(found: dict[str, list[float]], intents: int) -> None:
    """Print the median and the 95th percentile of each page."""
    print(f"\nCPU milliseconds of a page among {intents:,} intents: median, p95")
    for name, spent in found.items():
        print(f"  {name:24}{statistics.median(spent):8.1f}{p95(spent):8.1f}")


async def _measured(data: Path) -> dict[str, list[float]]:
    """CPU milliseconds of each page, by round; two rounds warm up."""
    context = build_context(unlimited(data))
    app = Application(context)
    found: dict[str, list[float]] = {}
    async with app.lifespan():
        for name, target in (await pages(app)).items():
            spent: list[float] = []
            for _ in range(ROUNDS + 2):
                began = time.process_time_ns()
                await get(app, target)
                spent.append((time.process_time_ns() - began) / 1e6)
            found[name] = sorted(spent[2:])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--intents", type=int, default=INTENTS)
    count = parser.parse_args().intents
    show(measure(count), count)
