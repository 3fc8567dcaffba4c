"""Releases side by side: the next migrations come while this release serves, and this release waits for its own."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, Wallet, api_key_of, deploy
from loading import until_it_is_ready
from muniment.service.running.settings import Settings
from muniment.service.storage import migrate, open_database
from muniment.service.storage.database import Database
from muniment.service.storage.migrate import Migration, migrations
from muniment.service.storage.postgres.admin import migrate as postgres_migrate
from muniment.service.storage.sqlite import migrate as sqlite_migrate
from postgres import Cluster
from service import Service, services_of

SECONDS_MAX = 300
# Rounds of every client before the migrations, and again after them.
ROUNDS = 6
TABLES = ("triggers", "users", "used_nonces", "functions", "function_creators", "intents")
COLUMNS = "".join(
    f"ALTER TABLE {table} ADD COLUMN note text;\nALTER TABLE {table} ADD COLUMN rank integer NOT NULL DEFAULT 0;\n"
    for table in TABLES
)
NEXT = {
    "postgres": [
        Migration("9001_next.sql", f"CREATE TABLE notes (note text PRIMARY KEY);\n{COLUMNS}"),
        Migration("9002_index.sql", "CREATE INDEX CONCURRENTLY triggers_by_note ON triggers (note, seq);\n"),
    ],
    "sqlite": [
        Migration("9001_next.sql", f"CREATE TABLE notes (note TEXT PRIMARY KEY) STRICT;\n{COLUMNS}"),
        Migration("9002_index.sql", "CREATE INDEX triggers_by_note ON triggers (note, seq);\n"),
    ],
}
Level = Callable[[list[Migration]], None]


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def url(engine: str, cluster: Cluster, tmp_path: Path) -> str:
    """The URL of an empty database without any migration."""
    if engine == "sqlite":
        return Settings().database_url
    return asyncio.run(cluster.create_database(f"migrating-{tmp_path.name}"))


@pytest.fixture
def level(engine: str, monkeypatch: pytest.MonkeyPatch) -> Level:
    """Sets which migrations this process knows, as if it were of another release."""

    def set_level(known: list[Migration]) -> None:
        for module in (migrate, sqlite_migrate if engine == "sqlite" else postgres_migrate):
            monkeypatch.setattr(module, "migrations", lambda _: known)

    return set_level


@pytest.fixture
def started(tmp_path: Path, url: str) -> Iterator[Callable[[str], Service]]:
    """Starts services on the database, which do not migrate it."""
    environment = {"MUNIMENT_DATABASE_URL": url, "MUNIMENT_MIGRATE_AT_START": "false"}
    with ExitStack() as stack:

        def start(until: str) -> Service:
            service = Service(tmp_path / "data", environment=environment)
            stack.callback(lambda: service.process and service.stop())
            return service.start() if until == "ready" else service.launch_and_listen()

        yield start


def opened(url: str, tmp_path: Path) -> Database:
    return open_database(url, data_dir=tmp_path / "data")


async def migrated(url: str, tmp_path: Path) -> list[str]:
    database = opened(url, tmp_path)
    names = await database.migrate()
    await database.close()
    return names


class Clients:
    """A few clients that ask one thing after the other, and what they were answered."""

    def __init__(self, client: httpx2.AsyncClient, cid: str) -> None:
        self.client, self.cid = client, cid
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.rounds = [0] * 3
        self.tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.tasks = [asyncio.create_task(self.run(number)) for number in range(len(self.rounds))]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def run(self, number: int) -> None:
        wallet = Wallet(60 + number)
        for n in itertools.count():
            draft = TriggerDraft(self.cid, wallet, version=f"{n}.0.0").signed()
            await self.ask("POST", "/triggers", json=draft)
            for path in (
                f"/triggers/{draft['sig']}", "/triggers", "/triggers?sort=1", f"/triggers?signer={wallet.address}",
                f"/triggers?functionCid={self.cid}&active=false&offset=1", f"/triggers?sigs={draft['sig']}",
                "/intents", "/functions", f"/functions/{self.cid}", "/triggers?active=true&createdAfter=1",
            ):  # fmt: skip
                await self.ask("GET", path)
            await self.log_in(Wallet(1000 + n * len(self.rounds) + number))
            self.rounds[number] = n + 1

    async def ask(self, method: str, path: str, **options: object) -> httpx2.Response:
        answer = await self.client.request(method, path, **options)  # pyright: ignore[reportArgumentType] - some of its own options
        self.statuses[f"{method} {path.partition('?')[0][:12]}", answer.status_code] += 1
        return answer

    async def log_in(self, wallet: Wallet) -> None:
        """Log in for the first time: it writes a profile and a nonce."""
        nonce = (await self.ask("POST", "/users/nonce", json={"address": wallet.address})).json()["nonce"]
        login = {"address": wallet.address, "signature": wallet.sign_text(nonce)}
        await self.ask("POST", "/users/authenticate", json=login)

    async def until(self, rounds: int) -> None:
        """Wait until every client has done so many rounds more."""
        goal = [done + rounds for done in self.rounds]
        async with asyncio.timeout(SECONDS_MAX):
            while any(done < due for done, due in zip(self.rounds, goal, strict=True)):
                for task in self.tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.02)


@pytest.mark.long
async def test_no_request_fails_while_the_next_release_migrates(
    engine: str, url: str, level: Level, started: Callable[[str], Service], tmp_path: Path
) -> None:
    await migrated(url, tmp_path)
    service = started("ready")
    async with httpx2.AsyncClient(base_url=service.url) as client:
        async with Clients(client, await deploy(client)) as clients:
            await clients.until(ROUNDS)
            level([*migrations(engine), *NEXT[engine]])
            assert await migrated(url, tmp_path) == ["9001_next.sql", "9002_index.sql"]
            await clients.until(ROUNDS)
        assert {status for _, status in clients.statuses} == {200}, clients.statuses
        await until_it_is_ready(client)
        await api_key_of(client, Wallet(99))
    service.stop()
    later = started("ready")  # this release, started on the newer level
    listed = httpx2.get(f"{later.url}/triggers")
    assert (listed.status_code, len(listed.json())) == (200, 10)


async def test_without_any_migration_nothing_is_served_and_nothing_crashes(
    url: str, started: Callable[[str], Service], tmp_path: Path
) -> None:
    service = started("listening")
    async with httpx2.AsyncClient(base_url=service.url) as client:
        for path in ("/triggers", "/functions", "/intents", "/readyz"):
            assert (await client.get(path)).status_code == 503, path
        body = TriggerDraft("Qm" + "a" * 44).signed()
        assert (await client.post("/triggers", json=body)).status_code in {400, 503}
        await migrated(url, tmp_path)
        await until_it_is_ready(client)  # it sees what another process has done within 50 ms
        cid = await deploy(client)
        assert (await client.post("/triggers", json=TriggerDraft(cid).signed())).status_code == 200


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_of_two_services_that_migrate_at_start_both_serve(engine: str, url: str, tmp_path: Path) -> None:
    both = services_of(tmp_path, url, MUNIMENT_MIGRATE_AT_START="true")
    try:
        for service in both:
            service.launch()
        for service in both:
            service.wait_until_ready()
            assert ok(httpx2.get(f"{service.url}/triggers")).json() == []
    finally:
        for service in both:
            service.stop()
    database = opened(url, tmp_path)

    async def names() -> list[str]:
        rows = await database.fetch("SELECT name FROM schema_migrations ORDER BY name")
        await database.close()
        return [name for (name,) in rows]

    assert asyncio.run(names()) == [each.name for each in migrations(engine)]
