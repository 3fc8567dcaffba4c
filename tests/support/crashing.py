"""Rounds of SIGKILL under load, to processes of the service and to the PostgreSQL server."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import statistics
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx2

import warm
from builders import Wallet, deploy
from feed_checks import check_events
from loading import Load
from muniment.service.running.settings import Settings
from muniment.service.storage import open_database
from muniment.service.storage.database import Database
from ports import free_port
from postgres import Cluster
from service import Service, services_of

# Between two kills the load is let work for this long at most.
ROUND_SECONDS_MAX = 0.5
# After the last one clients may go on for so long until enough is written.
SLOW_SECONDS_MAX = 300


@dataclass
class Site:
    """Services of one database, and the directory and the settings for commands."""

    data_dir: Path
    services: list[Service]
    environment: dict[str, str]
    cluster: Cluster | None = None

    @property
    def urls(self) -> list[str]:
        return [service.url for service in self.services]

    def command(self, *words: str) -> str:
        """Output of `muniment WORDS`, which must succeed."""
        done = warm.run(*words, data=self.data_dir, timeout=300, environment=self.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def database(self) -> Database:
        """A second connection to the database."""
        return open_database(
            self.environment.get("MUNIMENT_DATABASE_URL", Settings().database_url), data_dir=self.data_dir
        )

    async def load(self) -> Load:
        """Clients for every process, with a function to make triggers for."""
        async with httpx2.AsyncClient(base_url=self.urls[0]) as client:
            cid = await deploy(client, wallet=Wallet(secrets.randbits(64)))  # each has few nonces in a while
        return Load(self.urls, cid, self.command("operators", "add", f"relayer-{secrets.token_hex(4)}"))


@contextmanager
def on_sqlite(folder: Path) -> Generator[Site]:
    """One process on one file."""
    with Service(folder / "data", port=free_port()) as service:
        yield Site(folder / "data", [service], {})


@contextmanager
def on_postgres(folder: Path, *, config: str = "", count: int = 2) -> Generator[Site]:
    """Services of one server with durable commits."""
    with Cluster(fsync=True, config=config) as cluster:
        url = asyncio.run(cluster.create_database("site"))
        migrated = warm.run("migrate", data=folder / "data1", environment={"MUNIMENT_DATABASE_URL": url})
        assert migrated.returncode == 0, migrated.stderr
        with on_database(folder, url, count=count) as site:
            yield replace(site, cluster=cluster)


@contextmanager
def on_database(folder: Path, url: str, *, count: int = 2, **environment: str) -> Generator[Site]:
    """Services of one PostgreSQL database that has every migration."""
    services = services_of(folder, url, count, **environment)
    with ExitStack() as stack:
        for each in services:
            stack.enter_context(each)
        yield Site(services[0].data_dir, services, services[0].environment)


@dataclass
class Course:
    """Outcome of the rounds: what was killed, and the time until the next acknowledged write."""

    dice: random.Random
    of_services: list[float] = field(default_factory=list[float])
    of_server: list[float] = field(default_factory=list[float])

    async def round(self, site: Site, load: Load) -> None:
        await asyncio.sleep(self.dice.uniform(0, ROUND_SECONDS_MAX))
        if site.cluster is not None and self.dice.random() < 0.6:
            await asyncio.to_thread(site.cluster.kill)
            await asyncio.to_thread(site.cluster.start)
            self.of_server.append(await load.recovery(time.monotonic()))
            return
        service = self.dice.choice(site.services)
        await asyncio.to_thread(service.kill)
        service.launch()
        await asyncio.to_thread(service.wait_until_ready)
        self.of_services.append(await load.recovery(time.monotonic()))


async def kill_again_and_again(site: Site, rounds: int) -> Course:
    """Run rounds under load, then check every promise and verify the stored data."""
    seed = int(os.environ.get("CRASH_SEED") or secrets.randbits(32))
    print(f"CRASH_SEED={seed}")
    course = Course(random.Random(seed))
    began = time.monotonic()
    async with await site.load() as load:
        for _ in range(rounds):
            await course.round(site, load)
        # On a slow disk not much is written between two kills.
        await load.until(lambda: load.is_of_every_kind(10 * rounds), SLOW_SECONDS_MAX)
    seconds = time.monotonic() - began
    await load.check()
    database = site.database()
    events = await check_events(database)
    await database.close()
    said = site.command("verify")
    assert "all signatures and hashes match" in said, said
    print(
        f"{rounds} rounds in {seconds:.0f} s: {len(load.answered_at)} writes acknowledged, {events} events, "
        f"{len(load.answered_at) / seconds:.0f} a second, {load.refused} answers 503, longest {load.longest:.2f} s; "
        f"{_shown('service', course.of_services)}; {_shown('server', course.of_server)}"
    )
    return course


def _shown(name: str, seconds: list[float]) -> str:
    if not seconds:
        return f"{name} never killed"
    times = f"{statistics.median(seconds):.2f} s after it was back, {max(seconds):.2f} at most"
    return f"{name} killed {len(seconds)} times, a write {times}"
