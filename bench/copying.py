"""How fast `muniment database copy` takes a registry from one database to another, and in how much memory.

Usage: copying.py [TRIGGERS], a million unless it is said. Both databases and the command share this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import many_triggers
from muniment.service.storage import open_database

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_postgres: Any = import_module("postgres")

TRIGGERS: Final = 1_000_000


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else TRIGGERS
    with tempfile.TemporaryDirectory() as folder, _postgres.Cluster(fsync=True) as cluster:
        full, empty = asyncio.run(_databases(cluster, count))
        for source, target in (
            (full, "sqlite:///one.db"),
            ("sqlite:///one.db", empty),
            ("sqlite:///one.db", "sqlite:///two.db"),
        ):
            _copy(source, target, folder)


async def _databases(cluster: Any, count: int) -> tuple[str, str]:
    """One with so many triggers, and one with none."""
    full, empty = [await cluster.create_database(name) for name in ("full", "empty")]
    await many_triggers.load(full, triggers=count)
    database = open_database(empty, data_dir=Path())
    await database.migrate()
    await database.close()
    return full, empty


def _copy(source: str, target: str, folder: str) -> None:
    command = [sys.executable, "-m", "muniment", "database", "copy", source, target, "--json", "--data-dir", folder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout
    told = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0
    engines = " to ".join(url.partition(":")[0] for url in (source, target))
    rate = told["rows"] / told["seconds"]
    peak = usage.ru_maxrss // 1024
    print(f"{engines}: {told['rows']:,} rows in {told['seconds']:.0f} s, {rate:,.0f} rows/s, {peak} MiB at most")


if __name__ == "__main__":
    main()
