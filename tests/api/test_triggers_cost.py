"""The cost of a listing in the database: an index leads to the page, however many other rows there are."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from typing import Any, LiteralString

import httpx2
import pytest
import pytest_asyncio
from standing_world import Standing, standing_registry

from answers import cursor_at, ok
from conftest import NOW_MS
from muniment.protocol.ipfs.cid import cid_v0
from muniment.service.resources.triggers.store import mark_ended
from muniment.service.storage.sqlite.engine import SqliteDatabase

# What PostgreSQL does is told by EXPLAIN, in a test of its engine. All tests read the same rows.
pytestmark = pytest.mark.asyncio(loop_scope="module")

ROWS = 20_000
SIGNERS, FUNCTIONS = 5, 4
STEPS_COUNTED = 100
# A page costs a hundred rows of some dozen steps; a walk over a tenth of the rows would cost three times as much.
STEPS_MAX = 15_000

# A third never ends, a third ends in a year, a third has ended and was settled.
FILL = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
  INSERT INTO triggers (sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record, live)
  SELECT CAST(printf('%065d', i) AS BLOB), CAST(printf('%020d', i % ?) AS BLOB), CAST(printf('%032d', i) AS BLOB),
         CAST(printf('%032d', i / 7 % ?) AS BLOB), 'Mimic',
         CASE i % 3 WHEN 0 THEN 0 WHEN 1 THEN 50 ELSE ? END, i, '{}', i % 3 != 1 FROM n"""

FILTERS = {
    "sigs": ",".join(f"0x{number:064x}{'1' * 64}1b" for number in range(1, 21)),
    "signer": "0x" + (b"%020d" % 3).hex(),
    "functionCid": str(cid_v0(b"%032d" % 2)),
    "active": "true",
    "createdAfter": str(ROWS // 2),
    "createdBefore": str(ROWS // 2),
    "cursor": str(cursor_at("triggers", ROWS // 2)),
}
QUERIES = [
    {name: FILTERS[name] for name in names} | ({"active": "false"} if is_ended else {})
    for count in range(len(FILTERS) + 1)
    for names in itertools.combinations(FILTERS, count)
    for is_ended in ([False, True] if "active" in names else [False])
]


@contextmanager
def steps(connection: sqlite3.Connection) -> Generator[Callable[[], int]]:
    """Counts the steps of SQLite's virtual machine, by hundreds."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += STEPS_COUNTED
        return 0

    connection.set_progress_handler(count, STEPS_COUNTED)
    try:
        yield lambda: counted
    finally:
        connection.set_progress_handler(None, 0)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite"])
async def standing(request: pytest.FixtureRequest) -> AsyncIterator[Standing]:
    async with standing_registry(request, spoils_events=True) as made:
        await made.context.database.write(lambda tx: tx.execute(FILL, (ROWS, SIGNERS, FUNCTIONS, NOW_MS * 2)))
        yield made


@pytest.fixture
def client(standing: Standing) -> httpx2.AsyncClient:
    return standing.client


@pytest.fixture
def database(standing: Standing) -> SqliteDatabase:
    assert isinstance(standing.context.database, SqliteDatabase)
    return standing.context.database


@pytest.mark.parametrize("sort", [1, -1])
async def test_no_filter_walks_over_rows_that_it_does_not_show(
    client: httpx2.AsyncClient, database: SqliteDatabase, sort: int
) -> None:
    costs: dict[str, int] = {}
    for query in QUERIES:
        with steps(database._view._connection) as counted:
            response = await client.get("/triggers", params={**query, "sort": sort, "limit": 100})
        ok(response)
        costs[f"{list(query)} {query.get('active')}"] = counted()
    assert {name: cost for name, cost in costs.items() if cost >= STEPS_MAX} == {}


@pytest.mark.parametrize(
    ("sort", "bound", "cursor"), [(-1, "createdBefore", ROWS // 10), (1, "createdAfter", ROWS * 9 // 10)]
)
async def test_a_page_far_after_a_bound_on_the_time_costs_no_walk_from_there(
    client: httpx2.AsyncClient, database: SqliteDatabase, sort: int, bound: str, cursor: int
) -> None:
    params = {"sort": sort, bound: ROWS // 2, "cursor": cursor_at("triggers", cursor)}
    with steps(database._view._connection) as counted:
        page: list[Any] = ok(await client.get("/triggers", params=params)).json()
    assert len(page) == 10
    assert counted() < STEPS_MAX


async def test_a_sweep_looks_only_at_triggers_that_have_ended(database: SqliteDatabase) -> None:
    with steps(database._writer._connection) as counted:
        assert await database.write(lambda tx: mark_ended(tx, NOW_MS)) == 0
    assert counted() < STEPS_COUNTED * 3


async def test_the_triggers_of_a_signer_for_a_function_are_found_by_both(
    client: httpx2.AsyncClient, database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[LiteralString, Any]] = []
    fetch_some = SqliteDatabase.fetch_some

    async def listen(self: SqliteDatabase, sql: LiteralString, parameters: Any, **bounds: int) -> Any:
        asked.append((sql, parameters))
        return await fetch_some(self, sql, parameters, **bounds)

    monkeypatch.setattr(SqliteDatabase, "fetch_some", listen)
    for more in ({}, {"active": "true"}, {"active": "false"}):
        query = {"signer": FILTERS["signer"], "functionCid": FILTERS["functionCid"], **more}
        assert len(ok(await client.get("/triggers", params=query)).json()) == 10
        (sql, parameters) = asked.pop()
        plan = "\n".join(row[3] for row in await database.fetch(f"EXPLAIN QUERY PLAN {sql}", parameters))
        assert "triggers_by_signer_and_function (signer=? AND function_digest=? AND live=?)" in plan, plan


async def test_a_trigger_that_ended_since_the_last_sweep_is_no_longer_active(
    client: httpx2.AsyncClient, database: SqliteDatabase
) -> None:
    update = "UPDATE triggers SET live = ?, end_date_ms = ? WHERE seq % 3 = 1 AND seq > ?"
    await database.write(lambda tx: tx.execute(update, (1, NOW_MS, ROWS - 30)))
    page: list[Any] = ok(await client.get("/triggers?active=false&limit=100&offset=6600")).json()
    assert len(page) == len(range(1, ROWS + 1, 3)) - 6600
    with steps(database._view._connection) as counted:
        assert len(ok(await client.get("/triggers?active=false&limit=100")).json()) == 100
    assert counted() < STEPS_MAX
    await database.write(lambda tx: tx.execute(update, (0, 50, ROWS - 30)))  # as the others find it


@pytest.mark.parametrize("sort", [1, -1])
async def test_an_offset_without_a_filter_counts_entries_of_an_index_and_reads_no_row_on_its_way(
    client: httpx2.AsyncClient, database: SqliteDatabase, sort: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[LiteralString, Any]] = []
    fetch = SqliteDatabase.fetch_slow

    async def listen(self: SqliteDatabase, sql: LiteralString, parameters: Any = (), *, client: str) -> Any:
        asked.append((sql, parameters))
        return await fetch(self, sql, parameters, client=client)

    monkeypatch.setattr(SqliteDatabase, "fetch_slow", listen)
    page: list[Any] = ok(await client.get(f"/triggers?sort={sort}&offset={ROWS - 5}")).json()
    assert len(page) == 5
    ((sql, parameters),) = asked
    plan = [row[3] for row in await database.fetch(f"EXPLAIN QUERY PLAN {sql}", parameters)]
    walks = [step for step in plan if " triggers" in step]
    assert walks
    assert all("USING COVERING INDEX" in step for step in walks)
