"""A service with streams on either engine, and helpers of its tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from answers import ok, target_of
from crashing import Site
from event_stream import EventStream
from feed_writing import OWNER, add_events, execute_all
from service import Service

HASTY = str(Path(__file__).parents[1] / "process" / "hasty.py")
PACE = {"BEAT_SECONDS": "1", "READ_SECONDS": "5"}
# What `remove_old` does: all events but the newest go.
_REMOVE = [
    "UPDATE feed SET floor_seq = (SELECT max(seq) FROM events) - 1",
    "DELETE FROM events WHERE seq <= (SELECT floor_seq FROM feed)",
]

Start: TypeAlias = Callable[..., Site]
Connect: TypeAlias = Callable[..., Awaitable[EventStream]]


@pytest.fixture(params=["sqlite", "postgres"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Start a service on an empty database with further settings."""
    postgres = dict[str, str]()
    if request.param == "postgres":
        postgres["MUNIMENT_DATABASE_URL"] = request.getfixturevalue("postgres_url")
    with ExitStack() as stack:

        def started(**settings: str) -> Site:
            environment = {**PACE, **postgres, **settings}
            service = Service(tmp_path / "data", program=[HASTY], environment=environment)
            return Site(tmp_path / "data", [stack.enter_context(service)], environment)

        yield started


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Open streams, which are closed at the end."""
    opened: list[EventStream] = []

    async def connected(url: str, query: str = "", **given: Any) -> EventStream:
        opened.append(await EventStream.open(url, query, **given))
        return opened[-1]

    yield connected
    for stream in opened:
        await stream.close()


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as made:
        yield made


async def add(site: Site, count: int, owner: bytes = OWNER) -> None:
    """Add events as another process does."""
    await add_events(site.data_dir, site.environment.get("MUNIMENT_DATABASE_URL", ""), count, owner)


async def remove(site: Site) -> None:
    """Remove all events except the newest, as the sweep does."""
    await execute_all(site.data_dir, site.environment.get("MUNIMENT_DATABASE_URL", ""), _REMOVE)


async def gauge(client: httpx2.AsyncClient, url: str, name: str) -> float:
    lines = ok(await client.get(f"{url}/metrics")).text.splitlines()
    return float(next(line.partition(" ")[2] for line in lines if line.startswith(f"muniment_{name} ")))


async def until_gauge(client: httpx2.AsyncClient, url: str, name: str, value: float, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while await gauge(client, url, name) != value:
            await asyncio.sleep(0.1)


async def ids_after(url: str, cursor: str) -> list[str]:
    """Ids of every event after a position, page by page."""
    found: list[str] = []
    async with httpx2.AsyncClient(base_url=url) as client:
        target = f"/events?limit=500&cursor={cursor}"
        while True:
            answer = ok(await client.get(target))
            found += [each["id"] for each in answer.json()]
            if answer.headers["x-caught-up"] == "true":
                return found
            target = target_of(answer) or ""
