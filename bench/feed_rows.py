"""The time of a page of the change feed among ten thousand and among ten million events, in process on both engines.

Usage: feed_rows.py [--quick]; with --quick a million are many.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import asyncpg

from muniment.service.resources.feed.events import EVERYTHING, EventFilter
from muniment.service.resources.feed.reading import newest, read_slice, remove_old
from muniment.service.storage import open_database
from muniment.service.storage.database import Database

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_postgres: Any = import_module("postgres")

FEW: Final = 10_000
MANY: Final = 10_000_000
MANY_QUICK: Final = 1_000_000
_PAGE: Final = 100
_TIMES: Final = 200
_NOW_MS: Final = 1_795_000_000_000
# Creates of triggers by a hundred thousand signers, in the size that such events have.
_FACTS: Final = '{"signer":"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed","endDate":1795000000}'
_SQLITE: Final = """
INSERT INTO events (seq, at_ms, kind, subject, owners, origin, facts)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
SELECT i, ?, 1, randomblob(65), CAST(printf('%020d', abs(random()) % 100000) AS BLOB), randomblob(32), ? FROM n"""
_POSTGRES: Final = """
INSERT INTO events (seq, at_ms, kind, subject, owners, origin, facts)
SELECT i, $2::bigint, 1, sha256(int8send(i)) || sha256(int8send(-i)) || '\\x1b'::bytea,
       convert_to(lpad(floor(random() * 100000)::text, 20, '0'), 'UTF8'), sha256(int8send(i)), $3
FROM generate_series(1, $1::bigint) i"""


async def _time(name: str, work: Callable[[], Awaitable[object]], times: int = _TIMES) -> None:
    """Print the median milliseconds of a call."""
    took: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        await work()
        took.append(time.perf_counter() - begun)
    print(f"    {name:60}{1_000 * statistics.median(took):8.2f}")


async def _measure(database: Database, rows: int) -> None:
    rare = EventFilter(owners=frozenset({b"%020d" % 7}))
    print(f"  {rows:,} events")
    await _time("the first page", lambda: read_slice(database, 0, EVERYTHING, _PAGE))
    await _time("a page in the middle", lambda: read_slice(database, rows // 2, EVERYTHING, _PAGE))
    await _time("the last page", lambda: read_slice(database, rows - _PAGE, EVERYTHING, _PAGE))
    await _time(
        "a page for one of 100,000 signers, in the middle", lambda: read_slice(database, rows // 2, rare, _PAGE)
    )
    await _time("the position of who begins", lambda: newest(database))
    late_ms = _NOW_MS + 10**10
    await _time("a sweep of 500 old events", lambda: database.write(lambda tx: remove_old(tx, late_ms, 30)), 15)


async def _on_sqlite(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "muniment.db"
        database = open_database(f"sqlite:///{path}", data_dir=Path(folder))
        await database.migrate()
        with closing(sqlite3.connect(path)) as direct, direct:
            direct.execute(_SQLITE, (rows, _NOW_MS, _FACTS))
        await _measure(database, rows)
        await database.close()


async def _on_postgres(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder, _postgres.Cluster() as cluster:
        url = await cluster.create_database("feed")
        database = open_database(url, data_dir=Path(folder))
        await database.migrate()
        driver: Any = asyncpg
        direct = await driver.connect(url)
        await direct.execute(_POSTGRES, rows, _NOW_MS, _FACTS, timeout=3_600)
        await direct.execute("VACUUM ANALYZE events")
        await direct.close()
        await _measure(database, rows)
        await database.close()


def main() -> None:
    """Measure both engines, few and many."""
    many = MANY_QUICK if "--quick" in sys.argv[1:] else MANY
    print("A page of a hundred events, in milliseconds")
    for engine, work in (("SQLite", _on_sqlite), ("PostgreSQL", _on_postgres)):
        print(f"  {engine}")
        for rows in (FEW, many):
            asyncio.run(work(rows))


if __name__ == "__main__":
    main()
