"""Deactivations get numbers in the order of commits, also those of releases that gave them none."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from muniment.errors import DatabaseUnavailable
from muniment.storage.database import Database, Row, Transaction
from muniment.storage.migrate import migrations
from muniment.storage.postgres import engine as postgres_engine
from muniment.storage.postgres.admin import migrate as postgres_migrate
from muniment.storage.postgres.engine import PostgresDatabase
from muniment.storage.sqlite import engine as sqlite_engine, migrate as sqlite_migrate
from muniment.storage.sqlite.engine import SqliteDatabase
from postgres import Cluster

# As the release before adds a deactivation.
INSERT = """INSERT INTO deactivations (signature, signer, protocol, trigger_sigs, created_at_ms, form)
    VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
# More than two batches.
OLD = 2_100
FILLED = "0015_deactivations_numbered.sql"


def row_of(n: int) -> Row:
    """A deactivation: the later its number, the earlier its time, two at the same moment."""
    return n.to_bytes(65), bytes(20), "Mimic", bytes(65), (OLD - n) // 2, None


async def add(database: Database, *numbers: int) -> None:
    async def work(tx: Transaction) -> None:
        for n in numbers:
            await tx.execute(INSERT, row_of(n))

    await database.write(work)


async def in_order(database: Database) -> list[int]:
    rows = await database.fetch("SELECT signature FROM deactivations WHERE seq IS NOT NULL ORDER BY seq")
    return [int.from_bytes(signature) for (signature,) in rows]


def know(monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    """Have the migrations up to those whose number is `last`."""
    for module in (sqlite_engine, sqlite_migrate, postgres_engine, postgres_migrate):
        known = [each for each in migrations(module.__name__.split(".")[2]) if each.name[:4] <= last]
        monkeypatch.setattr(module, "migrations", lambda _, known=known: known)


@pytest.fixture
def postgres_url(cluster: Cluster, tmp_path: Path) -> str:
    return asyncio.run(cluster.create_database(f"numbers-{tmp_path.name}"))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "test.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
async def database(place: Path | str) -> AsyncIterator[Database]:
    made = SqliteDatabase(place) if isinstance(place, Path) else PostgresDatabase(place)
    yield made
    await made.close()


async def test_old_rows_are_numbered_by_their_times_and_new_ones_after_them(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, "0012")
    await database.migrate()
    await add(database, *range(OLD))
    before = await database.fetch("SELECT * FROM deactivations ORDER BY signature")
    monkeypatch.undo()
    await database.migrate()
    await add(database, 5_000, 7)  # one of them is there
    await add(database, 4_000)
    by_time = sorted(range(OLD), key=lambda n: ((OLD - n) // 2, n))
    assert await in_order(database) == [*by_time, 5_000, 4_000]
    after = await database.fetch(
        "SELECT signature, signer, protocol, trigger_sigs, created_at_ms, form FROM deactivations "
        "WHERE created_at_ms >= 0 ORDER BY signature"
    )
    assert after == before
    assert await database.fetch("SELECT count(*) FROM deactivations WHERE seq IS NULL") == [(0,)]


async def test_on_postgresql_rows_are_added_while_old_ones_are_numbered_and_an_interruption_loses_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = PostgresDatabase(postgres_url)
    know(monkeypatch, "0012")
    await database.migrate()
    await add(database, *range(OLD))
    know(monkeypatch, "0014")
    await database.migrate()
    await add(database, 5_000)
    know(monkeypatch, "0015")
    with monkeypatch.context() as patch:  # two hours between any two looks at the clock
        times = itertools.count(0, 7_200)
        patch.setattr(postgres_migrate, "time", SimpleNamespace(monotonic=lambda: next(times), time_ns=time.time_ns))
        with pytest.raises(DatabaseUnavailable, match=f"{FILLED} takes too long; `muniment migrate` goes on"):
            await database.migrate()
    assert 0 < len(await in_order(database)) < OLD  # one batch, and the new row
    await add(database, 6_000)
    know(monkeypatch, "9999")
    assert FILLED in await database.migrate()
    found = await in_order(database)
    assert sorted(found) == [*range(OLD), 5_000, 6_000]
    assert [n for n in found if n < OLD] == sorted(range(OLD), key=lambda n: ((OLD - n) // 2, n))
    await add(database, 7_000)
    assert (await in_order(database))[-1] == 7_000
    await database.close()
