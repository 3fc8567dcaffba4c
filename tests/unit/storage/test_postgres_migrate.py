"""Migrations of a PostgreSQL database that others are using."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from applications import wait_for_postgres
from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.database import Row, Transaction
from muniment.service.storage.migrate import Migration, migrations
from muniment.service.storage.postgres.admin import migrate as postgres_migrate
from muniment.service.storage.postgres.engine import PostgresDatabase
from muniment.service.storage.postgres.slot import Connector
from postgres import Cluster

KNOWN = migrations("postgres")
INDEX = Migration("9002_index.sql", "-- for notes\nCREATE INDEX CONCURRENTLY users_by_name ON users (name);\n")
COLUMN = Migration("9001_column.sql", "ALTER TABLE users ADD COLUMN note text;\n")
SECONDS_MAX = 60.0


@pytest.fixture
def url(cluster: Cluster, tmp_path: Path) -> str:
    return asyncio.run(cluster.create_database(f"migrate-{tmp_path.name}"))


@pytest.fixture
async def database(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresDatabase]:
    wait_for_postgres(monkeypatch)
    made = PostgresDatabase(url)
    await made.migrate()
    yield made
    await made.close()


@pytest.fixture
def also(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Adds migrations to those that this process knows."""
    return lambda *more: monkeypatch.setattr(postgres_migrate, "migrations", lambda _: [*KNOWN, *more])


@pytest.fixture
async def session(url: str) -> AsyncIterator[Any]:
    """Somebody else's connection."""
    driver: Any = asyncpg
    made = await driver.connect(url)
    yield made
    await made.close()


@pytest.mark.long
async def test_a_table_in_use_is_changed_between_the_transactions_of_others(
    database: PostgresDatabase, url: str, session: Any, also: Callable[..., None]
) -> None:
    also(COLUMN)
    held = session.transaction()
    await held.start()
    await session.execute("SELECT count(*) FROM users")  # a dump, say: it keeps the table as it is
    other = PostgresDatabase(url)
    migrating = asyncio.create_task(other.migrate())
    deadline = time.monotonic() + 3 * postgres_migrate.TABLE_WAIT_SECONDS_MAX
    while time.monotonic() < deadline:  # readers after it wait for a second at most, and are never refused
        await database.fetch("SELECT name FROM users LIMIT 1")
        await asyncio.sleep(0.05)
    assert not migrating.done()
    await held.rollback()
    assert await asyncio.wait_for(migrating, SECONDS_MAX) == [COLUMN.name]
    await other.close()


async def test_an_index_is_built_outside_of_a_transaction_while_others_write(
    database: PostgresDatabase, session: Any, also: Callable[..., None]
) -> None:
    also(INDEX)
    assert await database.migrate() == [INDEX.name]
    assert await session.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = 'users_by_name'::regclass")
    assert await database.migrate() == []


async def test_a_build_that_was_interrupted_begins_again(
    database: PostgresDatabase, session: Any, also: Callable[..., None]
) -> None:
    await session.execute("CREATE INDEX users_by_name ON users (address)")  # what is left over, and of no use
    also(INDEX)
    assert await database.migrate() == [INDEX.name]
    assert "(name)" in await session.fetchval("SELECT pg_get_indexdef('users_by_name'::regclass)")


@pytest.mark.usefixtures("database")
async def test_a_process_that_waits_to_migrate_does_not_block_the_migration(
    url: str, session: Any, also: Callable[..., None]
) -> None:
    """An index that is built concurrently waits for every statement that began before it."""
    also(COLUMN, INDEX)
    held = session.transaction()
    await held.start()
    await session.execute("UPDATE users SET name = name WHERE false")
    others = [PostgresDatabase(url) for _ in range(3)]
    migrating = [asyncio.create_task(each.migrate()) for each in others]
    await asyncio.sleep(0.5)
    await held.rollback()
    applied = await asyncio.wait_for(asyncio.gather(*migrating), SECONDS_MAX)
    assert sorted(applied) == [[], [], [COLUMN.name, INDEX.name]]
    for each in others:
        await each.close()


async def test_a_write_whose_prepared_statement_has_other_columns_since_a_migration_is_done_again(
    database: PostgresDatabase, also: Callable[..., None]
) -> None:
    """PostgreSQL refuses that statement once (SQLSTATE 0A000), and with it the whole transaction."""
    tries: list[str] = []

    async def written(name: str) -> tuple[object, ...]:
        async def add(transaction: Transaction) -> list[Row]:
            tries.append(name)
            values = (name.encode().ljust(20), name)
            await transaction.execute("INSERT INTO users (address, name, created_at_ms) VALUES (?, ?, 1)", values)
            return await transaction.fetch("SELECT * FROM users WHERE name = ?", (name,))

        (row,) = await database.write(add)
        return row

    columns = await written("before")
    also(COLUMN)
    assert await database.migrate() == [COLUMN.name]
    assert (await written("after"))[len(columns) :] == (None,)
    assert tries == ["before", "after", "after"]
    assert await database.fetch("SELECT name FROM users ORDER BY name") == [("after",), ("before",)]


async def test_migrations_before_a_failing_one_stay(database: PostgresDatabase, also: Callable[..., None]) -> None:
    bad = Migration("9003_bad.sql", "CREATE TABLE bad (a text);\nCREATE TABLE bad (a text);\n")
    also(COLUMN, bad)
    with pytest.raises(DatabaseUnavailable, match="already exists"):
        await database.migrate()
    assert await database.fetch("SELECT to_regclass('bad')::text") == [(None,)]
    also(COLUMN, INDEX)
    assert await database.migrate() == [INDEX.name]


async def test_a_process_that_waits_too_long_to_migrate_says_so(
    session: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_migrate, "_milliseconds", lambda _: "60000")  # of a statement, not of the wait
    await session.execute("SELECT pg_advisory_lock($1)", postgres_migrate._LOCK_NAME)  # pyright: ignore[reportPrivateUsage] - another release's
    with pytest.raises(DatabaseUnavailable, match="another process"):
        await postgres_migrate.migrate(Connector(url), seconds_max=0.3)
