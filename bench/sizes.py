"""Bytes of a row and of each of its index entries on PostgreSQL: what docs/develop/past-one-primary.md multiplies.

Usage: sizes.py [ROWS], 10,000 unless it is said. It loads so many triggers and intents, each intent with a proposal,
three log lines and five entries of the audit log; then a third more with all indexes in place, as a running service
adds them. The bytes of these later rows count, because an index that grows is less full than one that was just built.
"""

from __future__ import annotations

import asyncio
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import asyncpg

import many_triggers
from muniment.service.storage import open_database

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_postgres: Any = import_module("postgres")

ROWS: Final = 10_000  # a transaction numbers at most 65,536 rows, and an intent has five entries of the audit log
# Rows of each table for an intent: records of proposals and logs as the tests' builders make them.
_PARTS: Final = {
    "intent_proposals": """INSERT INTO intent_proposals (intent_seq, n, hash, status, record)
        SELECT seq, 1, sha256(hash), 'created', rpad('{', 700, '.') FROM intents WHERE seq > $1 ORDER BY seq""",
    "intent_logs": """INSERT INTO intent_logs (intent_seq, n, identity, record)
        SELECT seq, n, sha256(hash || int8send(n)), rpad('{', 120, '.')
        FROM intents, generate_series(1, 3) n WHERE seq > $1 ORDER BY seq, n""",
    "audit_entries": """INSERT INTO audit_entries (at_ms, operator, action, subject)
        SELECT created_at_ms, 'relayer', 'append log', hash
        FROM intents, generate_series(1, 5) n WHERE seq > $1 ORDER BY seq, n""",
}
_SIZES: Final = """SELECT c.relname::text, 'table', pg_table_size(c.oid), c.relname::text
  FROM pg_class c WHERE c.relkind = 'r' AND c.relname = ANY($1)
  UNION ALL SELECT i.indexrelid::regclass::text, 'index', pg_relation_size(i.indexrelid), c.relname::text
  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relname = ANY($1)"""
_TABLES: Final = ["triggers", "intents", *_PARTS]

Sizes = dict[tuple[str, str, str], int]


async def _sizes(connection: Any) -> Sizes:
    rows = await connection.fetch(_SIZES, _TABLES)
    return {(table, kind, name): size for name, kind, size, table in rows}


async def measure(url: str, count: int) -> None:
    """Print bytes per row, and the time of a vacuum of each table."""
    database = open_database(url, data_dir=Path())
    await database.migrate()
    await database.close()
    driver: Any = asyncpg
    connection = await driver.connect(url)
    await connection.execute("SET maintenance_work_mem = '256MB'; SET jit = off")
    await many_triggers.prepare(connection)
    before, last = Sizes(), 0
    for first, end in ((1, count), (count + 1, count + count // 3)):
        before = await _sizes(connection)
        for table, statement in (("triggers", many_triggers.TRIGGERS_SQL), ("intents", many_triggers.INTENTS_SQL)):
            await many_triggers.add(connection, statement, first, end, end)
            print(f"  {table}: {end:,}", flush=True)
        for statement in _PARTS.values():
            await connection.execute(statement.replace("$1", str(last)))
        last = await connection.fetchval("SELECT max(seq) FROM intents")
    await _show(connection, before, count // 3)
    await connection.close()


async def _show(connection: Any, before: Sizes, added: int) -> None:
    per_row = {"intent_logs": 3, "audit_entries": 5}
    after = await _sizes(connection)
    for table in _TABLES:
        rows = added * per_row.get(table, 1)
        began = time.monotonic()
        await connection.execute(f"VACUUM {table}", timeout=600)
        took = time.monotonic() - began
        mine = {key: (size - before[key]) / rows for key, size in after.items() if key[0] == table}
        in_indexes = sum(size for (_, kind, _), size in mine.items() if kind == "index")
        row = mine[table, "table", table]
        print(f"{table}: {row:,.0f} bytes a row, {in_indexes:,.0f} in indexes; vacuum {took:.1f} s")
        for (_, kind, name), size in sorted(mine.items(), key=lambda each: -each[1]):
            if kind == "index":
                print(f"  {name}: {size:,.0f}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with _postgres.Cluster(config="shared_buffers = 256MB") as cluster:
        url = asyncio.run(cluster.create_database("sizes"))
        asyncio.run(measure(url, count))


if __name__ == "__main__":
    main()
