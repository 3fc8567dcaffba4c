"""Lists from a real streaming replica that lags, dies or stands still; records and credentials from the primary."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from answers import ok
from builders import Bundle, Wallet, api_key_of, deploy, log_in, register
from postgres import Cluster
from replicas_world import (
    a_client,
    new_draft,
    own_replica,
    primary,
    replica,
    sees,
    service,
    sigs_seen,
    standing_still,
    started,
    until,
    until_served_by,
)
from scraped import Scraped
from service import Service

__all__ = ["own_replica", "primary", "replica", "service"]  # the fixtures

# A replica that does not answer is waited for once, for a second; the rest is for a busy machine.
SLOWEST_SECONDS_MAX = 20


async def test_a_list_is_as_late_as_the_replica_and_a_record_is_not(service: Service, replica: Cluster) -> None:
    async with a_client(service) as client:
        cid, trigger = "", dict[str, Any]()
        async for _ in standing_still(replica, client):
            cid = await deploy(client, Bundle(name=f"After {cid}"))
            trigger = await register(client, new_draft(cid, Wallet(1)))
            if not await sees(client, trigger["sig"]):
                break
        sig = trigger["sig"]
        assert ok(await client.get(f"/triggers/{sig}")).json() == trigger
        assert ok(await client.get(f"/functions/{cid}")).json()["CID"] == cid
        assert (await client.get(f"/functions/{cid}/manifest")).status_code == 200
        body = {"triggerSigs": [sig], "signature": Wallet(1).sign_deactivation([sig])}
        assert (await client.post("/triggers/deactivate", json=body)).status_code == 204
        assert "deactivateSig" in ok(await client.get(f"/triggers/{sig}")).json()
        await replica.execute("SELECT pg_wal_replay_resume()")
        await until(lambda: sees(client, sig))
        await until_served_by(replica, client)
        assert await sees(client, sig)


async def test_metrics_show_the_lag_of_the_replica_and_its_reads(
    tmp_path: Path, primary: Cluster, replica: Cluster
) -> None:
    async def lag_s() -> float | None:
        async with httpx2.AsyncClient(base_url=service.url) as monitor:
            found = Scraped(ok(await monitor.get("/metrics")).text)
        assert (found.value("database_query_duration_seconds_count", kind="read", target="replica-1") or 0) > 0
        return found.value("replica_lag_seconds", replica="1")

    async def is_late(seconds: float) -> bool:
        return (await lag_s() or 0) > seconds

    async def read() -> None:
        while True:
            await sigs_seen(client)
            await asyncio.sleep(0.2)

    with started(tmp_path, primary, replica) as service:
        async with a_client(service) as client, asyncio.TaskGroup() as group:
            await until_served_by(replica, client)
            reads = group.create_task(read())  # two seconds without a reader, and the lag is not known
            await until(lambda: is_late(2), holds=False)
            await replica.execute("SELECT pg_wal_replay_pause()")
            await register(client, new_draft(await deploy(client), Wallet(2)))
            await until(lambda: is_late(2))
            await replica.execute("SELECT pg_wal_replay_resume()")
            await until(lambda: is_late(2), holds=False)
            reads.cancel()


async def test_credentials_are_never_read_from_a_replica(service: Service, replica: Cluster) -> None:
    async with a_client(service) as owner, a_client(service) as thief:
        token = await log_in(owner, Wallet(4))
        stolen = await api_key_of(owner, Wallet(4))
        await until_served_by(replica, thief)
        await replica.execute("SELECT pg_wal_replay_pause()")
        rotated = await owner.post(
            "/users/api-key/rotate", json={"graceSeconds": 0}, headers={"x-auth-token": token}
        )  # fmt: skip
        assert rotated.status_code == 200
        for _ in range(6):
            answer = await thief.post("/functions", files=Bundle().files, headers={"x-api-key": stolen})
            assert answer.status_code == 403


@pytest.mark.timed
async def test_a_replica_that_is_too_far_behind_is_not_used(tmp_path: Path, primary: Cluster, replica: Cluster) -> None:
    with started(tmp_path, primary, replica, lag_s_max=3) as service:
        async with a_client(service) as client:
            cid = await deploy(client)
            await until_served_by(replica, client)
            await replica.execute("SELECT pg_wal_replay_pause()")
            trigger = await register(client, new_draft(cid, Wallet(6)))
            await asyncio.sleep(5)  # it is too late by then
            assert await sees(client, trigger["sig"])
            await replica.execute("SELECT pg_wal_replay_resume()")
            await until_served_by(replica, client)


@pytest.mark.timed
@pytest.mark.parametrize("how", ["killed", "standing still"])
async def test_a_replica_that_fails_is_done_without_and_used_again(
    service: Service, replica: Cluster, how: str
) -> None:
    async with a_client(service) as client:
        await until_served_by(replica, client)
        slowest = 0.0
        reads = asyncio.create_task(reading(client, 3))
        await asyncio.sleep(0.3)
        replica.kill() if how == "killed" else replica.pause()
        slowest = await reads
        assert slowest < SLOWEST_SECONDS_MAX
        await until(lambda: counts_errors(client))  # the alert MunimentReplicaGone counts on it
        replica.start() if how == "killed" else replica.resume()
        await until_served_by(replica, client)


async def counts_errors(client: httpx2.AsyncClient) -> bool:
    """Read once more; whether the metrics have errors of the replica."""
    await sigs_seen(client)
    async with httpx2.AsyncClient(base_url=client.base_url) as monitor:
        found = Scraped(ok(await monitor.get("/metrics")).text)
    return (found.value("database_errors_total", kind="read", target="replica-1") or 0) > 0


async def reading(client: httpx2.AsyncClient, seconds: float) -> float:
    """Read for a while, long listings too; how long the slowest took. None may fail."""
    end = time.monotonic() + seconds
    times: list[float] = []

    async def some(parameters: dict[str, Any]) -> None:
        while (began := time.monotonic()) < end:
            response = await client.get("/triggers", params=parameters)
            assert response.status_code == 200, response.text
            times.append(time.monotonic() - began)

    await asyncio.gather(some({}), some({"sort": 1}), some({"offset": 5_000}), some({"active": "true"}))
    return max(times)


async def test_a_read_url_that_leads_to_no_replica_changes_nothing(tmp_path: Path, primary: Cluster) -> None:
    with started(tmp_path, primary, primary) as service:
        async with a_client(service) as writer:
            trigger = await register(writer, new_draft(await deploy(writer), Wallet(7)))
            assert trigger["sig"] in await sigs_seen(writer)
    with pytest.raises(asyncpg.PostgresError):
        await primary.execute("SELECT pg_wal_replay_resume()")  # it is none
