"""What pages of runs cost among a thousand and a million runs, in milliseconds.

On SQLite that is a call of the store, on PostgreSQL the time of the server for all statements of a page: what a call
takes there besides depends on what else the machine does.

It fills databases of its own by SQL and throws them away: 3 GB of disk and some minutes. `--runs 100000` is quicker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import asyncpg

from muniment.service.http.paging import Cursor, cursor_after
from muniment.service.resources.runs import store
from muniment.service.resources.runs.listing import search
from muniment.service.resources.runs.queries import RunQuery
from muniment.service.running.settings import Settings
from muniment.service.storage import open_database
from muniment.service.storage.database import Database
from muniment.service.storage.postgres.engine import PostgresDatabase
from muniment.service.storage.postgres.statements import Statements
from plans import PLANNER, Recorder, array, literal

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_many: Any = import_module("many_runs")
_postgres: Any = import_module("postgres")

Call = Callable[[Any], Awaitable[object]]
FEW: Final = 1_000
ROUNDS: Final = 100
_ROWS_PER_WRITE: Final = 5_000
_CONFIG: Final = "shared_buffers = 1GB\nmax_wal_size = 8GB\nwal_level = minimal\nmax_wal_senders = 0"


def queries(rows: int) -> dict[str, dict[str, Any]]:
    """The queries to measure. Each finds a full page, but the trigger with few has five of a thousand runs."""
    middle = Cursor(cursor_after("runs", rows // 2, None).decode())
    trigger, relayer = _many.sig_of(1), _many.RELAYERS[1]
    return {
        "newest": {},
        "of a trigger with half of the runs": {"trigger_sig": trigger},
        "of a trigger with few": {"trigger_sig": _many.sig_of(50)},
        "of a relayer with a tenth": {"relayer": relayer},
        "of a result": {"result": "intents"},
        "of a trigger and a result": {"trigger_sig": trigger, "result": "nothing"},
        "of a trigger and a relayer": {"trigger_sig": trigger, "relayer": _many.RELAYERS[0]},
        "of all three": {"trigger_sig": trigger, "relayer": _many.RELAYERS[0], "result": "nothing"},
        "created in the newer half": {"created_after": _many.time_of(rows // 2)},
        "after a cursor, newest first": {"cursor": middle},
        "of a trigger after a cursor, oldest first": {"trigger_sig": trigger, "cursor": middle, "sort": 1},
        "a hundred": {"limit": 100},
        "the newest of ten triggers": {"trigger_sigs": [_many.sig_of(n) for n in range(1, 11)], "latest": "1"},
    }


def calls(rows: int) -> dict[str, Call]:
    """The calls to measure, each of a database, by their names."""
    asked = {name: RunQuery(**query) for name, query in queries(rows).items()}
    return {
        **{name: lambda database, each=each: search(database, each) for name, each in asked.items()},
        "GET /executions/{hash}": lambda database: store.find(database, b"%032d" % (rows // 2)),
    }


async def costs(database: Database, rows: int) -> dict[str, float]:
    """The quickest of each call in milliseconds, by its name: other work on the machine only adds."""
    return {name: await _quickest(database, call) for name, call in calls(rows).items()}


async def server_costs(url: str, database: PostgresDatabase, rows: int) -> dict[str, float]:
    """The time of the server for the statements of each call, the quickest of each statement, without its planning.

    Most statements have one plan for all values. Where the planner takes another one for rare values, it plans anew
    each time, which takes some 0.2 ms at any number of rows.
    """
    connection: Any = await asyncpg.connect(url, statement_cache_size=0, server_settings=PLANNER)
    statements, found = Statements(), dict[str, float]()
    for name, call in calls(rows).items():
        recorder = Recorder(database)
        assert await call(recorder)
        found[name] = sum([await _server_ms(connection, *statements.find(*each)) for each in recorder.seen])
    await connection.close()
    return found


async def _server_ms(connection: Any, statement: Any, values: Sequence[object]) -> float:
    types = [each.name for each in (await connection.prepare(statement.single)).get_parameters()]
    given = ", ".join(literal(value, kind) for value, kind in zip(values, types, strict=True))
    named = f"({', '.join(map(array, types))})" if types else ""
    await connection.execute(f"PREPARE asked{named} AS {statement.single}")
    execute = f"EXECUTE asked({given})" if types else "EXECUTE asked"
    spent: list[float] = []
    for _ in range(ROUNDS):
        ((text,),) = await connection.fetch(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {execute}")
        (told,) = json.loads(text)
        spent.append(told["Execution Time"])
    await connection.execute("DEALLOCATE asked")
    return min(spent)


async def _quickest(database: Database, call: Call) -> float:
    spent: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        assert await call(database)
        spent.append((time.perf_counter() - began) * 1_000)
    return min(spent)


async def measured(url: str, folder: Path, rows: int) -> dict[str, float]:
    """The costs in a database at `url` that is filled with `rows`."""
    database = open_database(url, data_dir=folder)
    await database.migrate()
    await database.write(_many.begin)
    for first in range(1, rows + 1, _ROWS_PER_WRITE):
        await database.write(lambda tx, first=first: _many.add(tx, first, min(first + _ROWS_PER_WRITE - 1, rows)))
    await _analyze(url, database)
    if isinstance(database, PostgresDatabase):
        found = await server_costs(url, database, rows)
    else:
        found = await costs(database, rows)
    await database.close()
    return found


async def _analyze(url: str, database: Database) -> None:
    """Let the planner know the rows; on PostgreSQL without the time limit of a write."""
    if not database.is_shared:
        await database.write(lambda tx: tx.execute("ANALYZE"))
        return
    connection = await asyncpg.connect(url)
    await connection.execute("ANALYZE")
    await connection.close()


async def run(rows: int) -> None:
    """Measure and print a table for each engine."""
    with tempfile.TemporaryDirectory() as name, _postgres.Cluster(config=_CONFIG) as cluster:
        for engine in ("SQLite", "PostgreSQL"):
            found: list[dict[str, float]] = []
            for count in (FEW, rows):
                url = Settings().database_url
                if engine == "PostgreSQL":
                    url = await cluster.create_database(f"runs{count}")
                found.append(await measured(url, Path(tempfile.mkdtemp(dir=name)), count))
            print(f"\n| runs, {engine} | {FEW:,} | {rows:,} | ratio |\n|---|---|---|---|")
            for each, few in found[0].items():
                many = found[1][each]
                print(f"| {each} | {few:.2f} | {many:.2f} | {many / few:.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    asyncio.run(run(parser.parse_args().runs))
