"""A client has one long read at a time, and other clients have theirs meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, LiteralString

import pytest

from applications import wait_for_postgres
from each_row import each_row
from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage import open_database
from muniment.service.storage.client_slots import network_of
from muniment.service.storage.database import Database, DatabaseLimits
from postgres import Cluster

ENDLESS: dict[str, LiteralString] = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "postgres": "SELECT pg_sleep(60)",
}
SECONDS_MAX = 60


@pytest.fixture(params=list(ENDLESS))
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def database(
    engine: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Database]:
    wait_for_postgres(monkeypatch)  # an endless read must not end at the server's limit
    url = "sqlite:///slots.db" if engine == "sqlite" else await cluster.create_database(f"slots-{tmp_path.name}")
    made = open_database(url, data_dir=tmp_path, limits=DatabaseLimits(slow_read_seconds_max=SECONDS_MAX))
    yield made
    await made.close()


async def ended(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("many", "other"), [(["192.0.2.1"] * 5, "192.0.2.2"), (["2001:db8::1", "2001:db8::2:0:0:2"], "2001:db8:0:1::1")]
)
async def test_one_client_leaves_a_reader_to_others(
    database: Database, engine: str, many: list[str], other: str
) -> None:
    tasks = [asyncio.create_task(database.fetch_slow(ENDLESS[engine], client=each)) for each in many]
    try:
        async with asyncio.timeout(SECONDS_MAX / 2):
            for _ in range(3):
                assert await database.fetch_slow("SELECT 1", client=other) == [(1,)]
        assert not any(task.done() for task in tasks)
    finally:
        await ended(tasks)


async def test_a_client_that_leaves_frees_its_reader_and_its_slot(database: Database, engine: str) -> None:
    for _ in range(3):
        clients = ("192.0.2.1", "192.0.2.2", "192.0.2.1")
        tasks = [asyncio.create_task(database.fetch_slow(ENDLESS[engine], client=each)) for each in clients]
        await asyncio.sleep(0.05)
        await ended(tasks)
        async with asyncio.timeout(SECONDS_MAX / 2):
            for client in ("", *clients):
                assert await database.fetch_slow("SELECT 1", client=client) == [(1,)]


async def test_a_failed_read_gives_its_slot_back(database: Database) -> None:
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable):
            await database.fetch_slow("SELECT * FROM no_such", client="192.0.2.1")
    assert await database.fetch_slow("SELECT 1", client="192.0.2.1") == [(1,)]


@each_row(
    ("client", "network"),
    [
        ("192.0.2.1", "192.0.2.1"), ("2001:DB8::1", "2001:db8::/64"), ("2001:db8:0:0:ffff::", "2001:db8::/64"),
        ("2001:db8:0:1::", "2001:db8:0:1::/64"), ("::ffff:192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::/64"),
        ("a socket", "a socket"), ("", ""),
    ],
)  # fmt: skip
def test_addresses_of_one_network_are_one_client(client: str, network: str) -> None:
    assert network_of(client) == network
