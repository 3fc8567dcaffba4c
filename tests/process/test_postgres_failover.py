"""The primary is lost and its replica takes over: with synchronous replication no acknowledged write is lost."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

import httpx2
import pytest

from builders import TriggerDraft, deploy
from crashing import Site, on_postgres
from loading import Load, listed, until_it_is_ready
from postgres import Cluster
from service import Service

# So many triggers are written before the primary goes, and so many more after the link to its replica is cut.
TRIGGERS_MIN = 20


@asynccontextmanager
async def two_servers(folder: Path, *, synchronous: bool) -> AsyncGenerator[tuple[Site, Cluster]]:
    """A service process over a primary and its replica, which it knows both."""
    async with AsyncExitStack() as stack:
        primary = stack.enter_context(Cluster(fsync=True))
        made = await primary.create_database("site")
        replica = stack.enter_context(primary.replica())
        if synchronous:  # only now: before there is a replica no commit would end
            await primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'replica'")
            await primary.execute("SELECT pg_reload_conf()")
        both = made.replace(f":{primary.port}/", f":{primary.port},127.0.0.1:{replica.port}/")
        url = f"{both}?target_session_attrs=read-write"
        site = Site(folder / "data", [], {"MUNIMENT_DATABASE_URL": url}, primary)
        site.command("migrate")
        site.services.append(stack.enter_context(Service(folder / "data", environment=site.environment)))
        yield site, replica


async def fail_over(site: Site, load: Load, replica: Cluster) -> float:
    """Lose the primary under load; seconds until the promoted replica has taken a write through the same process."""
    assert site.cluster is not None
    await load.until(lambda: load.is_of_every_kind(TRIGGERS_MIN))
    await asyncio.to_thread(site.cluster.kill)
    await asyncio.to_thread(replica.promote)
    return await load.recovery(time.monotonic())


@pytest.mark.long
async def test_with_a_synchronous_replica_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    async with two_servers(tmp_path, synchronous=True) as (site, replica):
        async with await site.load() as load:
            await fail_over(site, load, replica)
        await load.check()


@pytest.mark.long
async def test_with_an_asynchronous_replica_only_writes_that_it_had_not_received_are_lost(tmp_path: Path) -> None:
    async with two_servers(tmp_path, synchronous=False) as (site, replica):
        assert site.cluster is not None
        async with await site.load() as load:
            await load.until(lambda: load.is_of_every_kind(TRIGGERS_MIN))
            safe = set(load.triggers)
            ((position,),) = await site.cluster.execute("SELECT pg_current_wal_flush_lsn()::text")
            received = f"SELECT 1 FROM pg_stat_wal_receiver WHERE flushed_lsn >= '{position}'"
            while not await replica.execute(received):
                await asyncio.sleep(0.01)
            await replica.execute("ALTER SYSTEM SET primary_conninfo = ''")  # the link is cut, and the primary goes on
            await replica.execute("SELECT pg_reload_conf()")
            while await replica.execute("SELECT 1 FROM pg_stat_wal_receiver"):
                await asyncio.sleep(0.01)
            cut = len(load.triggers)
            await load.until(lambda: len(load.triggers) > cut + TRIGGERS_MIN)
        await asyncio.to_thread(site.cluster.kill)
        await asyncio.to_thread(replica.promote)
        async with httpx2.AsyncClient(base_url=site.urls[0]) as client:
            await until_it_is_ready(client)
        kept = {each["sig"] async for each in listed(site.urls[0], "/triggers?limit=100&sort=1")}
        lost = set(load.triggers) - kept
        assert safe <= kept
        assert lost
        sys.stdout.write(f"{len(lost)} of {len(load.triggers)} acknowledged triggers were lost by a cut\n")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with on_postgres(tmp_path, count=1) as made:
        yield made


@pytest.mark.long
async def test_a_write_that_no_standby_has_confirmed_is_unknown_and_nobody_sees_it(site: Site) -> None:
    assert site.cluster is not None
    async with httpx2.AsyncClient(base_url=site.urls[0], timeout=60, trust_env=False) as client:
        cid = await deploy(client)
        await site.cluster.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
        await site.cluster.execute("SELECT pg_reload_conf()")
        acknowledged = list[str]()  # before the server's checkpointer has read the configuration
        drafts = (TriggerDraft(cid, version=f"1.0.{number}") for number in count())
        while (response := await client.post("/triggers", json=next(drafts).signed())).status_code == 200:
            acknowledged.append(response.json()["sig"])
        assert response.status_code == 503
        assert "read the record" in response.json()["detail"]
        # The service has dropped the connection, and must not have cancelled the wait: the row would be shown, and
        # a failover could take it back after a client had moved its cursor past it.
        await asyncio.sleep(1)
        assert [each["sig"] async for each in listed(site.urls[0], "/triggers?limit=100&sort=1")] == acknowledged
        assert await site.cluster.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
