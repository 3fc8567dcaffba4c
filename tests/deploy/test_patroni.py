"""The Patroni file: two nodes, the service in front, and the primary lost again and again under load.

`make ha-test` runs HA_ROUNDS rounds (20) and prints a table, which `docs/run/high-availability.md` sums up.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from programs import installed

from answers import target_of
from builders import deploy
from crashing import Site
from loading import ANSWER_SECONDS_MAX, Load, listed
from patroni import PatroniCluster, patroni_cluster
from patroni_node import Programs
from service import services_of

ROUNDS = int(os.environ.get("HA_ROUNDS", "5"))
# After this time no further round begins.
SECONDS_MAX = float(os.environ.get("HA_SECONDS", "3600"))
# From the first commit of the new primary to the first write that the service acknowledges.
WRITE_SECONDS_MAX = 10.0
# The load's rest after each answer: the servers, Patroni and etcd share the cores with it.
REST_SECONDS = 0.05
KINDS = tuple(
    os.environ.get("HA_KINDS", "killed,paused,cut off,cut off from its standby and etcd,switched over").split(",")
)


@dataclass
class Course:
    """For each kind of loss: seconds until the new primary commits, and from then until the service acknowledges."""

    until_primary: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    until_service: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def note(self, kind: str, primary: float, service: float) -> None:
        self.until_primary.setdefault(kind, []).append(primary)
        self.until_service.setdefault(kind, []).append(service)
        sys.stdout.write(f"{kind}: {primary:.1f} s until the new primary commits, {service:.1f} s more\n")
        sys.stdout.flush()

    def table(self) -> str:
        lines = ["| primary | rounds | new primary commits after (median, most) | service acknowledges after it |"]
        lines.append("|---|---|---|---|")
        for kind, primary in self.until_primary.items():
            times = (
                f"{statistics.median(each):.1f} s, {max(each):.1f} s" for each in (primary, self.until_service[kind])
            )
            lines.append(f"| {kind} | {len(primary)} | {' | '.join(times)} |")
        return "\n".join(lines)


def programs() -> Programs:
    """The programs, where all of them are installed."""
    (found,) = [Path(os.environ["PG_BIN"])] if "PG_BIN" in os.environ else [installed_postgres()]
    return Programs(installed("patroni"), installed("patronictl"), installed("etcd"), found)


def installed_postgres() -> Path:
    """The directory of PostgreSQL's programs, of the newest release that the system has."""
    releases = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parent.name))
    return releases[-1] if releases else installed("pg_ctl").parent


@asynccontextmanager
async def following(urls: list[str], target: str) -> AsyncGenerator[list[str]]:
    """The names that a client sees that follows a listing, each page from another process."""
    seen: list[str] = []

    async def follow(target: str) -> None:
        async with httpx2.AsyncClient(timeout=ANSWER_SECONDS_MAX, trust_env=False) as client:
            for url in itertools.cycle(urls):
                response = await client.get(url + target)
                await asyncio.sleep(REST_SECONDS)
                if response.status_code == 503:
                    assert int(response.headers["retry-after"]) > 0
                    continue
                assert response.status_code == 200, response.text
                seen.extend(row.get("sig") or row["hash"] for row in response.json())
                target = target_of(response) or target

    task = asyncio.create_task(follow(target))
    try:
        yield seen
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def lose_primary(cluster: PatroniCluster, kind: str, load: Load) -> tuple[float, float]:
    """Lose the primary in this way; seconds until the other node commits, and until the service then acknowledges."""
    old, new = cluster.primary, cluster.standby
    began = time.monotonic()
    switching = None
    if kind == "killed":
        old.kill()
    elif kind == "paused":
        old.pause()
    elif kind == "switched over":
        switching = asyncio.create_task(asyncio.to_thread(cluster.switch_over))
    else:
        old.cut(from_clients=kind == "cut off")
    led = await cluster.until_it_takes_writes(new)
    acknowledged = await load.recovery(led)
    if switching is not None:
        await switching
    return led - began, acknowledged


async def bring_back(cluster: PatroniCluster, kind: str) -> None:
    """Let the old primary return, and wait until it follows the new one."""
    old = cluster.primary
    if kind == "killed":
        old.start()
    elif kind == "paused":
        await asyncio.to_thread(old.resume)
    else:
        old.heal()
    await cluster.until_whole()
    assert cluster.primary is not old, "the old primary leads again"


async def test_no_acknowledged_write_is_lost_and_no_follower_misses_a_row(tmp_path: Path) -> None:
    course = Course()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(patroni_cluster(programs()))
        services = services_of(tmp_path, cluster.url, MUNIMENT_LOG_LEVEL="error")
        site = Site(services[0].data_dir, services, services[0].environment)
        await asyncio.to_thread(site.command, "migrate")  # beside this loop, which serves the proxies
        for service in services:
            await asyncio.to_thread(service.start)
            stack.push_async_callback(asyncio.to_thread, service.stop)
        async with httpx2.AsyncClient(base_url=site.urls[0], trust_env=False) as client:
            cid = await deploy(client)
        key = await asyncio.to_thread(site.command, "operators", "add", "relayer")
        load = Load(site.urls, cid, key, rest_seconds=REST_SECONDS)
        triggers = await stack.enter_async_context(following(site.urls, "/triggers?limit=100&sort=1"))
        intents = await stack.enter_async_context(following(site.urls, "/intents?limit=100&sort=1"))
        began = time.monotonic()
        async with load:
            for kind in itertools.islice(itertools.cycle(KINDS), ROUNDS):
                if time.monotonic() - began > SECONDS_MAX:
                    break
                await load.until(lambda: load.is_of_every_kind(20))
                primary, service = await lose_primary(cluster, kind, load)
                course.note(kind, primary, service)
                await bring_back(cluster, kind)
        await load.check()
        for path, seen in (("/triggers", triggers), ("/intents", intents)):
            rows = [each.get("sig") or each["hash"] async for each in listed(site.urls[0], f"{path}?limit=100&sort=1")]
            async with asyncio.timeout(60):
                while len(seen) < len(rows):
                    await asyncio.sleep(0.05)
            assert seen == rows
        assert "all signatures and hashes match" in await asyncio.to_thread(site.command, "verify")
    sys.stdout.write(
        f"{course.table()}\n{len(load.triggers)} triggers and {len(load.intents)} intents acknowledged and found, "
        f"{len(load.answered_at)} writes, {load.refused} answers 503, {len(cluster.copied)} nodes copied anew\n"
    )
    assert max(itertools.chain(*course.until_service.values())) <= WRITE_SECONDS_MAX
