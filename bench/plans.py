"""The plan of every hot statement on PostgreSQL, and the cost of pages as tables grow, for docs/develop/query-plans.md.

It makes a cluster of its own and throws it away: 30 GB of disk and a quarter of an hour for ten million triggers.
`--triggers 1000000` is enough to see the plans.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, LiteralString

import asyncpg

from many_triggers import MS_BETWEEN, NOW_MS, SEQ_BETWEEN, SIGNERS, load
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.ipfs.cid import BundleCid, cid_v0
from muniment.service.http.paging import Cursor, cursor_after
from muniment.service.resources.intents import listing
from muniment.service.resources.intents.queries import IntentQuery
from muniment.service.resources.intents.store import mark_expired
from muniment.service.resources.triggers import store
from muniment.service.resources.triggers.listing import TriggerQuery, search
from muniment.service.resources.triggers.store import NewRow
from muniment.service.storage.postgres.connection import SESSION
from muniment.service.storage.postgres.engine import PostgresDatabase
from muniment.service.storage.postgres.statements import Statements
from muniment.service.storage.postgres.subset import fetch_some

# What sessions of the service tell the planner.
PLANNER: Final = {name: value for name, value in SESSION.items() if name == "jit" or name.startswith("enable_")}
SIZES: Final = (1_000, 100_000, 1_000_000)
# Callers in one statement, where they travel together.
TOGETHER: Final = 16
ROUNDS: Final = 30
# More rows than this read, sorted or thrown away in one plan, and it is no walk along an index.
ROWS_MAX: Final = 3_000

Statement = tuple[str, Sequence[object]]
Case = tuple[str, Callable[[Any, int, int], Awaitable[object]]]


def hash_of(what: str, number: int) -> bytes:
    return hashlib.sha256(f"{what}{number}".encode()).digest()


def sig_of(number: int) -> Signature:
    return Signature(f"0x{(hash_of('r', number) + hash_of('s', number)).hex()}1b")


def address_of(what: str, number: int) -> Address:
    return Address.from_raw(hash_of(what, number)[:20])


def triggers_listed(what: str, query: Callable[[int, int], dict[str, Any]]) -> Case:
    """A listing; `query` is given the number of rows and a number that differs between callers."""
    return what, lambda database, rows, n: search(database, TriggerQuery(**query(rows, n)), lambda: NOW_MS)


def intents_listed(what: str, query: Callable[[int, int], dict[str, Any]]) -> Case:
    return what, lambda database, rows, n: listing.search(
        database, IntentQuery(**query(rows, n)), Moment(NOW_MS, 3_600)
    )


def signer(number: int) -> Address:
    return address_of("signer", number)


def function(number: int) -> BundleCid:
    return BundleCid.parse(str(cid_v0(hash_of("function", number))))


def new_row(n: int) -> NewRow:
    return NewRow(sig_of(-1 - n).raw, signer(n + 1).raw, hash_of("new", n), hash_of("function", 1), "Mimic", 0, NOW_MS,
                  lambda _: "." * 1_200)  # fmt: skip


def at(rows: int, n: int) -> Cursor:
    return Cursor(cursor_after("triggers", (rows // 2 + n) * SEQ_BETWEEN, None).decode())


DAY = 86_400_000
TRIGGERS: Final[list[Case]] = [
    ("GET /triggers/{sig}", lambda db, rows, n: store.find(db, sig_of(rows // 2 + n))),
    ("the consent of a signer (POST /triggers)",
     lambda db, rows, n: store.find_consent(db, signer(1 + n).raw, hash_of("digest", rows // 2 + n))),
    triggers_listed("newest", lambda _, __: {}),
    triggers_listed("of the signer with most", lambda _, n: {"signer": signer(1 + n)}),
    triggers_listed("of a signer with few", lambda _, n: {"signer": signer(SIGNERS // 2 + n)}),
    triggers_listed("of a function", lambda _, n: {"function_cid": function(1 + n)}),
    triggers_listed("of a signer and a function", lambda _, n: {"signer": signer(2 + n), "function_cid": function(3)}),
    triggers_listed("active", lambda _, __: {"active": True}),
    triggers_listed("not active", lambda _, __: {"active": False}),
    triggers_listed("active, of a signer", lambda _, n: {"active": True, "signer": signer(1 + n)}),
    triggers_listed("created in the last day", lambda _, n: {"created_after": NOW_MS - DAY + n}),
    triggers_listed("created before the middle",
                    lambda rows, n: {"created_before": NOW_MS - rows * MS_BETWEEN // 2 + n}),
    triggers_listed("created in a day in the middle, of a signer", lambda rows, n: {
        "created_before": NOW_MS - rows * MS_BETWEEN // 2, "created_after": NOW_MS - rows * MS_BETWEEN // 2 - DAY,
        "signer": signer(1 + n)}),
    triggers_listed("after a cursor, newest first", lambda rows, n: {"cursor": at(rows, n)}),
    triggers_listed("after a cursor, oldest first", lambda rows, n: {"cursor": at(rows, n), "sort": 1}),
    triggers_listed("of a signer after a cursor, oldest first",
                    lambda rows, n: {"signer": signer(1 + n), "cursor": at(rows, n), "sort": 1}),
    triggers_listed("100 by signature", lambda _, n: {
        "sigs": [sig_of(k * 7 + n + 1) for k in range(100)], "limit": 100}),
    triggers_listed("newest, offset 1,000", lambda _, __: {"offset": 1_000}),
    ("store a trigger", lambda db, _, n: store.insert(db, new_row(n))),
    ("deactivate a trigger", lambda db, rows, n: store.deactivate(
        db, sig_of(rows // 2 + n).raw, f'"{"." * 1_398}"', NOW_MS)),
    ("mark those that have ended", lambda db, _, __: store.mark_ended(db, NOW_MS)),
]  # fmt: skip
INTENTS: Final[list[Case]] = [
    intents_listed("newest intents", lambda _, __: {}),
    intents_listed("intents of a user", lambda _, n: {"user": signer(1 + n)}),
    intents_listed("intents of a settler", lambda _, n: {"settler": address_of("settler", 1 + n % 5)}),
    intents_listed("intents of a trigger", lambda _, n: {"config_sig": sig_of(1 + n)}),
    intents_listed("submitted intents", lambda _, __: {"status": "submitted"}),
    intents_listed("expired intents", lambda _, __: {"status": "expired"}),
    intents_listed("succeeded intents of a user", lambda _, n: {"user": signer(1 + n), "status": "succeeded"}),
    ("mark those that have expired", lambda db, _, __: mark_expired(db, Moment(NOW_MS, 3_600))),
    intents_listed("intents after a cursor, oldest first", lambda rows, n: {"cursor": at(rows, n), "sort": 1}),
]


class Recorder:
    """A database, or a transaction, that notes each statement; what has no answer yet is asked."""

    plans_as_written = PostgresDatabase.plans_as_written
    times_differ_ms = PostgresDatabase.times_differ_ms
    for_update = " FOR UPDATE"

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.seen: list[Statement] = []

    async def fetch(self, sql: LiteralString, parameters: Sequence[object] = ()) -> list[Any]:
        """All rows."""
        self.seen.append((sql, parameters))
        return await self._database.fetch(sql, parameters) if "FOR UPDATE" not in sql else []

    async def fetch_one(self, sql: LiteralString, parameters: Sequence[object] = ()) -> Any:
        """The first row."""
        rows = await self.fetch(sql, parameters)
        return rows[0] if rows else None

    async def fetch_some(
        self, sql: LiteralString, parameters: Sequence[object], *, rows_max: int, bytes_max: int
    ) -> tuple[list[Any], int]:
        """The first rows."""
        return await fetch_some(self.fetch, sql, parameters, rows_max=rows_max, bytes_max=bytes_max)

    async def fetch_slow(self, sql: LiteralString, parameters: Sequence[object] = (), *, client: str = "") -> list[Any]:
        """All rows."""
        del client
        return await self.fetch(sql, parameters)

    async def execute(self, sql: LiteralString, parameters: Sequence[object] = ()) -> int:
        """As if one row was changed."""
        self.seen.append((sql, parameters))
        return 1


async def recorded(database: PostgresDatabase, case: Case, rows: int, n: int) -> list[Statement]:
    recorder = Recorder(database)
    await case[1](recorder, rows, n)
    return recorder.seen


async def explain(url: str, cases: list[Case], table: str) -> None:
    """Print each statement's plan, alone and together with its like."""
    database = PostgresDatabase(url)
    connection: Any = await asyncpg.connect(url, statement_cache_size=0, server_settings=PLANNER)
    rows = await connection.fetchval(f"SELECT count(*) FROM {table}")
    statements = Statements()
    for case in cases:
        told: set[str] = set()
        asked = [await recorded(database, case, rows, n) for n in range(TOGETHER)]
        for index, (sql, parameters) in enumerate(asked[0]):
            statement, values = statements.find(sql, parameters)
            if statement.single in told:
                continue
            told.add(statement.single)
            alone = await plan(connection, statement.single, values)
            number = "" if index == 0 else f" ({index + 1})"
            print(f"\n### {case[0]}{number}\n\n```sql\n{shown(statement.single)}\n```\n")
            print(f"```\n{trimmed(alone)}\n```\n")
            times = [f"alone {milliseconds(alone)}"]
            generic = await plan(connection, statement.single, values, generic=True)
            times.append(f"with a plan for any values {milliseconds(generic)}")
            if statement.parameter_count and sql.lstrip().startswith("SELECT") and "FOR UPDATE" not in sql:
                prepared = await connection.prepare(statement.single)
                together = statement.learn_types([each.name for each in prepared.get_parameters()])
                likes = [statements.find(*each[index])[1] for each in asked if len(each) > index
                         and statements.find(*each[index])[0] is statement]  # fmt: skip
                of_many = await plan(connection, together, [list(each) for each in zip(*likes, strict=True)])
                times.append(f"{len(likes)} together {milliseconds(of_many)}")
                if is_bad(of_many):
                    print(f"LOOK, together:\n```\n{trimmed(of_many)}\n```\n")
            if is_bad(alone) or is_bad(generic):
                print(f"LOOK:\n```\n{trimmed(generic)}\n```\n")
            print("; ".join(times))
    await connection.close()
    await database.close()


_NUMBERS = itertools.count()


async def plan(connection: Any, sql: str, values: Sequence[object], *, generic: bool = False) -> list[str]:
    """The plan of a second execution, undone afterwards."""
    await connection.execute(f"SET plan_cache_mode = {'force_generic_plan' if generic else 'force_custom_plan'}")
    asked = f"asked{next(_NUMBERS)}"
    types = [each.name for each in (await connection.prepare(sql)).get_parameters()]
    literals = ", ".join(literal(value, kind) for value, kind in zip(values, types, strict=True))
    of_types = f"({', '.join(map(array, types))})" if types else ""
    await connection.execute(f"PREPARE {asked}{of_types} AS {sql}")
    lines: list[Any] = []
    for _ in range(3):
        transaction = connection.transaction()
        await transaction.start()
        lines = await connection.fetch(
            f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) EXECUTE {asked}{f'({literals})' if types else ''}"
        )
        await transaction.rollback()
    return [line for (line,) in lines]


def array(kind: str) -> str:
    return kind if not kind.endswith("]") and not kind.startswith("_") else kind.strip("_[]") + "[]"


def literal(value: object, kind: str) -> str:
    if isinstance(value, list):
        return f"ARRAY[{', '.join(literal(each, '') for each in value)}]::{array(kind)}"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea"
    return str(value) if isinstance(value, int) else f"'{value}'"


def shown(sql: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"IN \(\$1, .*?\)", "IN ($1, …)", sql)).strip()


_LEFT_OUT = re.compile(r"Planning|Execution Time|Sort Method|Sort Key|Group Key|Batches|Heap Fetches|Heap Blocks")


def trimmed(lines: list[str]) -> str:
    """A plan without what says nothing here; of the pages read only the sum."""
    kept: list[str] = []
    is_summed = False
    for line in lines:
        if _LEFT_OUT.search(line) or ("Buffers:" in line and is_summed):
            continue
        is_summed = is_summed or "Buffers:" in line
        short = re.sub(r"actual time=[\d.]+\.\.([\d.]+) rows", r"\1 ms, rows", line)
        kept.append(re.sub(r"'\\x[0-9a-f]{9,}'", r"'\\x…'", short)[:150])
    return "\n".join(kept)


def milliseconds(lines: list[str]) -> str:
    return f"{float(next(line for line in lines if 'Execution Time' in line).split()[-2]):.2f} ms"


def is_bad(lines: list[str]) -> bool:
    """Whether rows are read that are not shown."""
    if any("Seq Scan" in line for line in lines):
        return True
    for line in lines:
        if (removed := re.search(r"Rows Removed by .*?: (\d+)", line)) and int(removed[1]) > ROWS_MAX:
            return True
        if (seen := re.search(r"rows=(\d+) loops=(\d+)", line)) and int(seen[1]) * int(seen[2]) > ROWS_MAX * TOGETHER:
            return True
    return False


async def costs(urls: dict[int, str], cases: list[Case]) -> None:
    """Print what a call of the store costs in microseconds of wall time, one after the other, at each size."""
    print(f"\n| | {' | '.join(f'{size:,}' for size in urls)} |\n|---|{'---|' * len(urls)}")
    databases = {size: PostgresDatabase(url) for size, url in urls.items()}
    for case in cases:
        medians: list[str] = []
        for size, database in databases.items():
            spent: list[float] = []
            for n in range(ROUNDS):
                began = time.perf_counter()
                await case[1](database, size, n % TOGETHER)
                spent.append((time.perf_counter() - began) * 1e6)
            medians.append(f"{statistics.median(spent):,.0f}")
        print(f"| {case[0]} | {' | '.join(medians)} |", flush=True)
    for database in databases.values():
        await database.close()


def reads(cases: list[Case]) -> list[Case]:
    return [case for case in cases if not case[0].startswith(("store", "deactivate", "mark"))]


async def run(sizes: Sequence[int]) -> None:
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
    make_cluster: Any = import_module("postgres").Cluster  # by name: type checking of this folder does not see it

    with make_cluster(
        config="shared_buffers = 1GB\nmax_wal_size = 8GB\nwal_level = minimal\nmax_wal_senders = 0"
    ) as cluster:
        urls: dict[int, str] = {}
        for size in sizes:
            urls[size] = await cluster.create_database(f"rows{size}")
            await load(urls[size], triggers=size, intents=min(size, 1_000_000))
        await explain(urls[max(urls)], TRIGGERS, "triggers")
        await explain(urls[max(urls)], INTENTS, "intents")
        await costs(urls, reads(TRIGGERS + INTENTS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triggers", type=int, default=10_000_000)
    largest = parser.parse_args().triggers
    asyncio.run(run([*(size for size in SIZES if size < largest), largest]))
