"""A primary with a lagging replica, a service that reads from both, and new clients."""

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

# This ends a hang: to be sure of a process takes many reads.
SECONDS_MAX = 180
CLIENTS = count(1)
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
    """The replica, up to date; a test may delay its replay."""
    yield own_replica
    await own_replica.execute("SELECT pg_wal_replay_resume()")
    await delayed(own_replica, 0)


@pytest.fixture
def service(tmp_path: Path, primary: Cluster, replica: Cluster) -> Iterator[Service]:
    """A process behind a proxy that names the client. The replica may serve at any lag."""
    with started(tmp_path, primary, replica, MUNIMENT_TRUSTED_PROXIES="127.0.0.0/8") as made:
        yield made


def started(tmp_path: Path, primary: Cluster, replica: Cluster, /, **environment: str) -> Service:
    settings = {
        "MUNIMENT_DATABASE_URL": primary.url(), "MUNIMENT_DATABASE_READ_URLS": replica.url(),
        "MUNIMENT_REPLICA_LAG_S_MAX": "600", **environment,
    }  # fmt: skip
    return Service(tmp_path / "data", environment=settings)


@asynccontextmanager
async def a_client(service: Service) -> AsyncGenerator[httpx2.AsyncClient]:
    """A new client, with a new connection for each request."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    headers = {"x-forwarded-for": f"203.0.113.{next(CLIENTS)}"}
    async with httpx2.AsyncClient(base_url=service.url, limits=limits, headers=headers) as client:
        yield client


async def delayed(replica: Cluster, seconds: int) -> None:
    """Delay the replay of commits by so long."""
    await replica.execute(f"ALTER SYSTEM SET recovery_min_apply_delay = '{seconds}s'")
    await replica.execute("SELECT pg_reload_conf()")


def new_draft(cid: str, wallet: Wallet) -> TriggerDraft:
    return TriggerDraft(cid, wallet=wallet, version=f"1.0.{next(VERSIONS)}")


async def sigs_seen(client: httpx2.AsyncClient) -> list[str]:
    response = await client.get("/triggers", params={"limit": 100})
    assert response.status_code == 200, response.text
    return [trigger["sig"] for trigger in response.json()]


async def until_served_by(replica: Cluster, *clients: httpx2.AsyncClient, times: int = 20) -> None:
    """Wait until so many reads were answered there: after twenty each process most likely knows it."""
    driver: Any = asyncpg
    connection = await driver.connect(replica.url())
    try:
        async with asyncio.timeout(SECONDS_MAX):
            for client in clients:
                served = 0
                while served < times:  # on a busy machine an answer may come too late, and the primary is asked instead
                    served += await _is_served(connection, client)
    finally:
        await connection.close()


async def standing_still(replica: Cluster, *clients: httpx2.AsyncClient, times: int = 20) -> AsyncGenerator[None]:
    """Turns in which these clients are served by the replica, whose replay is then paused; at most ten.

    A process whose replica gets a new connection, or answers late, in a pause reads from the primary until the pause
    ends. So a test leaves the loop in a turn that showed what it waits for.
    """
    for _ in range(10):
        await until_served_by(replica, *clients, times=times)
        await replica.execute("SELECT pg_wal_replay_pause()")
        yield
        await replica.execute("SELECT pg_wal_replay_resume()")
    pytest.fail("the replica was read in none of ten pauses")


async def _is_served(connection: Any, client: httpx2.AsyncClient) -> bool:
    """Whether a read of this client goes to the server of a connection."""
    before = await connection.fetchval("SELECT clock_timestamp()::text")
    await sigs_seen(client)
    rows = await connection.fetch("SELECT query_start::text, query FROM pg_stat_activity WHERE query LIKE '%triggers%'")
    return any(began > before for began, query in rows if "pg_stat_activity" not in query)


async def sees(client: httpx2.AsyncClient, sig: str) -> bool:
    return sig in await sigs_seen(client)


async def until(condition: Callable[[], Awaitable[bool]], *, holds: bool = True) -> None:
    """Wait until the condition holds: a process with few requests still reads from the primary."""
    async with asyncio.timeout(SECONDS_MAX):
        while await condition() is not holds:
            await asyncio.sleep(0.05)  # what is waited for takes seconds
