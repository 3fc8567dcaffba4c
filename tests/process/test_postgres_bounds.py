"""No statement without a bound: the settings of each session that the engine opens."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from faults import OURS
from muniment.service.storage.postgres import connection as postgres_connection, engine as postgres
from muniment.service.storage.postgres.engine import PostgresDatabase
from patience import POSTGRES_CONNECT_S
from postgres import Cluster

BOUNDS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
# For statements, for long reads, and for writes.
SESSIONS = 2 + postgres.SLOW_SLOTS + 2


@pytest.fixture
def bounds_url(cluster: Cluster) -> str:
    """An empty database."""
    return asyncio.run(cluster.create_database("bounds"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every connection that is opened meanwhile, with the bound of the driver that it was given."""
    monkeypatch.setattr(postgres_connection, "CONNECT_SECONDS_MAX", POSTGRES_CONNECT_S)
    driver: Any = asyncpg
    connect, seen = driver.connect, list[Any]()

    async def noted(*words: Any, **members: Any) -> Any:
        assert 0 < members["timeout"] <= 10
        assert 0 < members["command_timeout"] <= 10
        seen.append(await connect(*words, **members))
        return seen[-1]

    monkeypatch.setattr(asyncpg, "connect", noted)
    return seen


async def test_every_session_has_every_bound(
    bounds_url: str, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = PostgresDatabase(bounds_url)

    async def stay(transaction: Any) -> None:
        while len(opened) < SESSIONS:
            await transaction.fetch("SELECT 1 FROM pg_sleep(0.01)")

    await database.migrate()
    migrating = opened.pop(0)
    assert migrating.is_closed()
    # Each takes a connection of its own: those before it have only begun to open theirs.
    await asyncio.gather(
        *(database.fetch_slow("SELECT 1") for _ in range(postgres.SLOW_SLOTS)),
        *(database.fetch(sql) for sql in ("SELECT 1", "SELECT 2")),
    )
    # A write keeps its own until all are there.
    first = asyncio.create_task(database.write(stay))
    async with asyncio.timeout(60):
        while len(opened) < SESSIONS - 1:
            await asyncio.sleep(0.01)
        await asyncio.gather(first, database.write(stay))
    assert len(opened) == SESSIONS
    for connection in opened:
        rows = await connection.fetch(
            "SELECT name, setting::bigint, unit FROM pg_settings WHERE name = ANY($1)", BOUNDS
        )
        assert {name for name, *_ in rows} == set(BOUNDS)
        assert all(0 < value <= 10_000 and unit == "ms" for _, value, unit in rows)
    monkeypatch.undo()  # the connection of the test has no such bound
    admin = await asyncpg.connect(bounds_url)
    sql = f"SELECT count(*) FROM pg_stat_activity WHERE datname = 'bounds' AND {OURS}"
    async with asyncio.timeout(60):
        while await admin.fetchval(sql) > SESSIONS:  # the one that has migrated is about to end
            await asyncio.sleep(0.02)
    assert await admin.fetchval(sql) == SESSIONS
    await admin.close()
    await database.close()


async def test_migrations_have_bounds_too(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer ones: a migration may rebuild an index over every row."""
    seen: dict[str, str] = {}
    driver: Any = asyncpg
    connect = driver.connect

    async def noted(*words: Any, **members: Any) -> Any:
        connection = await connect(*words, **members)
        seen.update(await connection.fetch("SELECT name, setting FROM pg_settings WHERE name = ANY($1)", BOUNDS))
        return connection

    monkeypatch.setattr(asyncpg, "connect", noted)
    database = PostgresDatabase(cluster.url())
    await database.migrate()
    await database.close()
    assert set(seen) == set(BOUNDS)
    assert all(0 < int(value) <= 3_600_000 for value in seen.values())
