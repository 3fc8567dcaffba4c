"""A primary with a lagging replica, and a service that reads from both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from builders import TriggerDraft, Wallet
from muniment.service.storage import open_database
from postgres import Cluster
from service import Service

# This ends a hang.
SECONDS_MAX = 180
VERSIONS = count(1)


@pytest.fixture(scope="module")
def primary() -> Iterator[Cluster]:
    """A server with every migration."""

    async def migrate(url: str) -> None:
        database = open_database(url, data_dir=Path())
        await database.migrate()
        await database.close()

    with Cluster() as started:
        asyncio.run(migrate(started.url()))
        yield started


@pytest.fixture(scope="module")
def own_replica(primary: Cluster) -> Iterator[Cluster]:
    # Replay waits for statements: it would cancel those that read rows which it removes, also the tests' own.
    with primary.replica("max_standby_streaming_delay = -1") as started:
        yield started


@pytest.fixture
async def replica(own_replica: Cluster) -> AsyncIterator[Cluster]:
    """The replica; a test may pause its replay."""
    yield own_replica
    await own_replica.execute("SELECT pg_wal_replay_resume()")


@pytest.fixture
def service(tmp_path: Path, primary: Cluster, replica: Cluster) -> Iterator[Service]:
    """A service whose replica may be ten minutes late."""
    with started(tmp_path, primary, replica) as made:
        yield made


def started(tmp_path: Path, primary: Cluster, *replicas: Cluster, lag_s_max: int = 600) -> Service:
    settings = {
        "MUNIMENT_DATABASE_URL": primary.url(),
        "MUNIMENT_DATABASE_READ_URLS": ",".join(each.url() for each in replicas),
        "MUNIMENT_REPLICA_LAG_S_MAX": str(lag_s_max),
    }  # fmt: skip
    return Service(tmp_path / "data", environment=settings)


@asynccontextmanager
async def a_client(service: Service) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=service.url) as client:
        yield client


def new_draft(cid: str, wallet: Wallet) -> TriggerDraft:
    return TriggerDraft(cid, wallet=wallet, version=f"1.0.{next(VERSIONS)}")


async def sigs_seen(client: httpx2.AsyncClient) -> list[str]:
    response = await client.get("/triggers", params={"limit": 100})
    assert response.status_code == 200, response.text
    return [trigger["sig"] for trigger in response.json()]


async def until_served_by(replica: Cluster, client: httpx2.AsyncClient) -> None:
    """Wait until two lists were read there."""
    driver: Any = asyncpg
    connection = await driver.connect(replica.url())
    try:
        async with asyncio.timeout(SECONDS_MAX):
            served = 0
            while served < 2:  # on a busy machine an answer may come too late, and the primary is asked instead
                served += await _is_served(connection, client)
    finally:
        await connection.close()


async def standing_still(replica: Cluster, client: httpx2.AsyncClient) -> AsyncGenerator[None]:
    """Turns in which lists are read from the replica, whose replay is then paused; at most ten.

    A service whose replica gets a new connection, or answers late, in a pause reads from the primary until the pause
    ends. So a test leaves the loop in a turn that showed what it waits for.
    """
    for _ in range(10):
        await until_served_by(replica, client)
        await replica.execute("SELECT pg_wal_replay_pause()")
        yield
        await replica.execute("SELECT pg_wal_replay_resume()")
    pytest.fail("the replica was read in none of ten pauses")


async def _is_served(connection: Any, client: httpx2.AsyncClient) -> bool:
    """Whether a list is read from the server of a connection."""
    before = await connection.fetchval("SELECT clock_timestamp()::text")
    await sigs_seen(client)
    rows = await connection.fetch("SELECT query_start::text, query FROM pg_stat_activity WHERE query LIKE '%triggers%'")
    return any(began > before for began, query in rows if "pg_stat_activity" not in query)


async def sees(client: httpx2.AsyncClient, sig: str) -> bool:
    return sig in await sigs_seen(client)


async def until(condition: Callable[[], Awaitable[bool]], *, holds: bool = True) -> None:
    """Wait until the condition holds: a service with few requests still reads from the primary."""
    async with asyncio.timeout(SECONDS_MAX):
        while await condition() is not holds:
            await asyncio.sleep(0.05)  # what is waited for takes seconds
