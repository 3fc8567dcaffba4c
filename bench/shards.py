"""Which shards each operation touches, for some ways to spread the rows over nodes.

Usage: shards.py [URL]. It sends a request of every operation to the application on PostgreSQL, notes its statements,
and finds for each layout the shards that a router must ask: one where a statement names the value of the shard key,
otherwise all. URL is an empty database with every migration; without it, the program makes a cluster of its own.
The table is in docs/develop/past-one-primary.md, which a test compares.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import httpx2

from muniment.service.app import OPERATIONS, Application, build_context
from muniment.service.running.settings import Settings
from muniment.service.storage import open_database
from muniment.service.storage.epoch import Epochs
from muniment.service.storage.postgres import transaction
from muniment.service.storage.postgres.statements import Insertion, Statements
from shard_requests import cases

SHARDS: Final = 64
# Lines of the page are not longer.
_WIDTH: Final = 120
# One copy on each node: few rows, which change rarely.
_EVERYWHERE: Final = {
    "operators", "epoch", "feed", "webhooks", "time_differences", "forgotten_nonces", "schema_migrations",
}  # fmt: skip
# One node keeps the transparency log: its entries have one order.
_ON_ONE_NODE: Final = {"tlog_epochs", "tlog_cursors", "tlog_tail", "tlog_tiles", "tlog_runs"}
_SAME: Final = {
    "users": "address", "used_nonces": "address", "blocks": "digest", "functions": "digest",
    "function_creators": "creator", "executions": "subject", "audit_entries": "subject", "deactivations": "signer",
    "intent_users": "address", "intent_ops": "seq", "intent_nonces": "trigger_sig",
    "intent_proposals": "intent_seq", "intent_logs": "intent_seq", "runs": "hash", "run_records": "run_seq",
    "events": "seq", "webhook_attempts": "hook", "webhook_dead_letters": "hook",
}  # fmt: skip
_NAME: Final = _SAME | {"triggers": "sig", "intents": "hash"}
# The shard key of each table. The last layout is the first one after four changes: a number says its shard, so that a
# row, and what is joined to it by number, is asked of this shard; each node keeps the time of its newest row; each
# other unique key has a look-up row, in a table that is spread by this key; events are asked for by their subjects.
LAYOUTS: Final = {
    "name": _NAME,
    "owner": _SAME | {"triggers": "signer", "intents": "user_address"},
    "function": _SAME | {"triggers": "function_digest", "intents": "trigger_sig"},
    "number": _SAME | {"triggers": "seq", "intents": "seq", "intent_users": "seq"},
    "name, changed": _NAME | {"": "changed"},
}
_NUMBERS: Final = ("seq", "intent_seq", "function_seq")
_NEWEST: Final = re.compile(r"ORDER BY created_at_ms DESC LIMIT 1")
_BY_NUMBER: Final = re.compile(r"\b(?:seq|\w+_seq)\s*(?:=|IN)\s*\(?\s*\?")
_TABLE: Final = re.compile(r"\b(FROM|JOIN|INTO|UPDATE)\s+(\w+)")
_EQUAL: Final = re.compile(r"\b(?:\w+\.)?(\w+)\s*=\s*$")
_LISTED: Final = re.compile(r"\b(?:\w+\.)?(\w+)\s+IN\s*\([\s?,]*$")
_INSERTED: Final = re.compile(r"INSERT\s+INTO\s+\w+\s*\(([\w\s,]+)\)\s*VALUES")
_COLUMNS: Final = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
_UNIQUE: Final = """SELECT c.conrelid::regclass::text, array_agg(a.attname::text) FROM pg_constraint c
  JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = ANY(c.conkey)
  WHERE c.contype IN ('p', 'u') GROUP BY c.oid, 1"""

Statement = tuple[str, Sequence[object]]


class Schema(NamedTuple):
    """The columns of each table, and the columns of each unique key."""

    columns: dict[str, set[str]]
    unique: list[tuple[str, set[str]]]


class Access(NamedTuple):
    """A table in a statement, and the values that the statement gives for its columns."""

    table: str
    is_insert: bool
    values: dict[str, list[object]]
    # The part of the statement that holds for this table.
    block: str


def accesses(sql: str, parameters: Sequence[object], schema: Schema) -> Iterator[Access]:
    """Each place where a statement names a table, with the values that hold there."""
    for match in _TABLE.finditer(sql):
        if (table := match[2]) not in schema.columns:
            continue
        start, end = _block(sql, match.start())
        values: dict[str, list[object]] = {}
        is_insert = match[1] == "INTO"
        inserted = _INSERTED.match(sql.strip()) if is_insert else None
        names = [name.strip() for name in inserted[1].split(",")] if inserted else []
        for index, place in enumerate(each.start() for each in re.finditer(r"\?", sql)):
            column = names[index % len(names)] if names else _compared(sql, start, place, end)
            if column in schema.columns[table]:
                values.setdefault(column, []).append(parameters[index])
        yield Access(table, is_insert, values, sql[start:end])


def _block(sql: str, place: int) -> tuple[int, int]:
    """The parentheses around a place, or the part of a UNION in which it stands."""
    start, depth = place, 0
    while start > 0 and not (depth == 0 and sql[start - 1] == "("):
        start -= 1
        depth += {")": 1, "(": -1}.get(sql[start], 0)
    end, depth = place, 0
    while end < len(sql) and not (depth == 0 and sql[end] == ")"):
        depth += {"(": 1, ")": -1}.get(sql[end], 0)
        end += 1
    parts = [each.start() for each in re.finditer("UNION ALL", sql[start:end])]
    before = [start + each for each in parts if start + each < place]
    after = [start + each for each in parts if start + each > place]
    return (before[-1] if before else start), (after[0] if after else end)


def _compared(sql: str, start: int, place: int, end: int) -> str:
    """The column that a parameter in this block is compared with, unless it stands in a query inside the block."""
    if not start <= place < end or sql.count("(", start, place) - sql.count(")", start, place) > 1:
        return ""
    if re.match(r"\s*UPDATE\b", sql) and "WHERE" in sql and place < sql.index("WHERE"):
        return ""  # a new value
    before = sql[start:place]
    found = _EQUAL.search(before) or _LISTED.search(before)
    return found[1] if found else ""


def shards_of(statements: Sequence[Statement], layout: dict[str, str], schema: Schema) -> set[int]:
    """The shards that a router asks for these statements."""
    touched, is_near = set[int](), False
    for sql, parameters in statements:
        for access in accesses(sql, parameters, schema):
            if access.table in _EVERYWHERE:
                continue
            if access.table in _ON_ONE_NODE:
                touched.add(0)
                continue
            key = layout[access.table]
            values = None if "" in layout and key.endswith("seq") else access.values.get(key)
            keys = _looked_up(access, layout, schema) if "" in layout else set[int]()
            if values:
                touched |= {_shard(each) for each in values} | (keys if access.is_insert else set())
            elif keys:
                touched |= keys
            elif "" in layout and _is_near(access):
                is_near = True
            else:
                touched |= _new_shard(access, layout)
    return touched or ({0} if is_near else touched)


def _is_near(access: Access) -> bool:
    """Whether the changed layout asks only the shard of the operation's own record."""
    if access.table == "executions" or any(column.endswith("seq") for column in access.values):
        return True
    return bool(_NEWEST.search(access.block) or _BY_NUMBER.search(access.block))


def _looked_up(access: Access, layout: dict[str, str], schema: Schema) -> set[int]:
    """The shards of the look-up rows of the unique keys that a statement names whole."""
    keys = [sorted(key) for table, key in schema.unique if table == access.table and layout[table] not in key]
    whole = [key for key in keys if key != ["seq"] and all(column in access.values for column in key)]
    return {_shard(tuple(access.values[column][0] for column in key)) for key in whole}


def _new_shard(access: Access, layout: dict[str, str]) -> set[int]:
    """A new row has its number only from the database: it goes to one shard. Every other statement asks all."""
    if access.is_insert and layout[access.table] == "seq":
        return {_shard(tuple(map(str, access.values.values())))}
    return set(range(SHARDS))


def _shard(value: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(value).encode()).digest()[:4]) % SHARDS


def checks_of(statements: Sequence[Statement], layout: dict[str, str], schema: Schema) -> int:
    """How many unique keys of inserted rows lack the shard key: each is a question to all shards.

    The key `seq` alone does not count: its numbers are given once.
    """
    inserted = {
        access.table for sql, values in statements for access in accesses(sql, values, schema) if access.is_insert
    }
    return sum(
        layout[table] not in key for table, key in schema.unique if table in inserted - _EVERYWHERE and key != {"seq"}
    )


async def measure(url: str) -> str:
    """The table, as the page has it."""
    recorded = await _record(url)
    # The first reads the memory of processes alone. A stream never ends in a process; it reads what GET /events reads.
    # To resume a webhook needs a receiver that answered; it reads and writes what a replay does.
    left_out = {"GET /metrics", "GET /events/stream", "POST /webhooks/{id}/resume"}
    operations = {f"{each.method} {each.path}" for each in OPERATIONS} - left_out
    missing = operations - {re.split(r"[?,]", name)[0] for name in recorded}
    assert not missing, f"operations without a request: {missing}"
    schema = await _schema(url)
    lines = [f"| operation | statements | {' | '.join(LAYOUTS)} |", "|---|---|" + "---|" * len(LAYOUTS)]
    for name, statements in recorded.items():
        cells = [_cell(statements, layout, schema) for layout in LAYOUTS.values()]
        if any(cell != "0" for cell in cells):
            lines.append(f"| `{name}` | {len(statements)} | {' | '.join(cells)} |")
    without = sorted(
        re.split("[?,]", name)[0] for name, sent in recorded.items() if not shards_of(sent, LAYOUTS["name"], schema)
    )
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(without))
    return "\n".join([*lines, "", *textwrap.wrap(f"No shard: {names}.", _WIDTH, break_on_hyphens=False)])


def _cell(statements: Sequence[Statement], layout: dict[str, str], schema: Schema) -> str:
    count = len(shards_of(statements, layout, schema))
    checks = 0 if "" in layout else checks_of(statements, layout, schema)
    shown = "all" if count == SHARDS else str(count)
    return f"{shown}, {checks} unique" if checks else shown


async def _record(url: str) -> dict[str, list[Statement]]:
    """The statements of a request of each operation."""
    seen: list[Statement] = []
    find = Statements.find

    def found(self: Statements, sql: str, parameters: Sequence[object]) -> Any:
        seen.append((sql, parameters))
        return find(self, sql, parameters)

    insert_batch: Any = transaction.insert_batch

    async def inserted(connection: Any, insertion: Insertion, rows: Sequence[Sequence[object]]) -> Any:
        seen.extend((re.sub(r"\$\d+", "?", insertion.single), row) for row in rows)
        return await insert_batch(connection, insertion, rows)

    recorded: dict[str, list[Statement]] = {}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            data_dir=Path(folder), database_url=url, blocks_url="database:", log_level="error",
            rate_limit_client="off", rate_limit_login="off", rate_limit_owner="off", rate_limit_stop="off",
            tlog_name="bench.example.org", tlog_key="11" * 32,
        )  # fmt: skip
        # The same intents as in the tests, whose deadlines are of this time.
        context = build_context(settings, now_ms=lambda: 1_795_204_080_000)
        # Which request reads the epoch again does not depend on how much time has passed.
        app = Application(replace(context, epochs=Epochs(context.database, seconds=lambda: 0.0)))
        transport = import_module("without_server").InProcess(app)
        # The two places that the statements of a store pass.
        Statements.find = found
        transaction.insert_batch = inserted
        async with httpx2.AsyncClient(transport=transport, base_url="http://bench") as client:
            async for name, request in cases(client, app.context):
                seen.clear()
                answer = await request
                assert answer.status_code in {200, 204, 303}, (name, answer.status_code, answer.text)
                recorded[name] = [*seen]
        Statements.find = find
        transaction.insert_batch = insert_batch
        await app.context.database.close()
    return recorded


async def _schema(url: str) -> Schema:
    driver: Any = asyncpg
    connection = await driver.connect(url)
    columns: dict[str, set[str]] = {}
    for table, column in await connection.fetch(_COLUMNS):
        columns.setdefault(table, set()).add(column)
    unique = [(table, set(names)) for table, names in await connection.fetch(_UNIQUE)]
    await connection.close()
    return Schema(columns, unique)


async def _migrated(cluster: Any) -> str:
    url: str = await cluster.create_database("shards")
    database = open_database(url, data_dir=Path())
    await database.migrate()
    await database.close()
    return url


def main() -> None:
    if len(sys.argv) > 1:
        print(asyncio.run(measure(sys.argv[1])))
        return
    with import_module("postgres").Cluster() as cluster:
        print(asyncio.run(measure(asyncio.run(_migrated(cluster)))))


if __name__ == "__main__":
    main()
