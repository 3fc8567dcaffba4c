"""An epoch that is renewed while services run, and beside replicas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from answers import ok, target_of
from builders import TriggerDraft, deploy, register
from crashing import Site, on_database, on_sqlite
from in_turn import client_in_turn
from muniment.service.storage.epoch import FRESH_SECONDS
from postgres import Cluster

# Of the time that is promised this much may be the machine's.
BUSY_SECONDS = 60


@pytest.fixture(params=["sqlite", "postgres", "replica"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A service on SQLite, or two on PostgreSQL."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield stack.enter_context(on_sqlite(tmp_path))
            return
        if request.param == "postgres":
            yield stack.enter_context(on_database(tmp_path, request.getfixturevalue("postgres_url")))
            return
        primary = stack.enter_context(Cluster())
        replica = stack.enter_context(primary.replica())
        settings: dict[str, str] = {
            "MUNIMENT_DATABASE_READ_URLS": replica.url(), "MUNIMENT_REPLICA_LAG_S_MAX": "60",
            "MUNIMENT_MIGRATE_AT_START": "true",
        }  # fmt: skip
        yield stack.enter_context(on_database(tmp_path, primary.url(), count=2, **settings))


async def test_every_service_takes_up_another_epoch_within_seconds(site: Site) -> None:
    async with client_in_turn(site.urls) as client:
        cid = await deploy(client)
        for number in range(3):
            await register(client, TriggerDraft(cid, version=f"{number}.0.0"))

        async def link() -> str:
            answer = ok(await client.get("/triggers?sort=1&limit=2"))
            return target_of(answer) or ""

        async def statuses(target: str) -> set[int]:
            answers = await asyncio.gather(*(client.get(target) for _ in range(8)))
            return {answer.status_code for answer in answers}

        before = await link()
        assert await statuses(before) == {200}
        site.command("epoch", "renew")
        deadline = time.monotonic() + FRESH_SECONDS + BUSY_SECONDS
        while (seen := await statuses(before)) != {410}:
            assert seen <= {200, 410}
            assert time.monotonic() < deadline, seen
            await asyncio.sleep(0.1)
        # The service that is asked for a link may have been the first, and the other still be in the epoch before.
        while await statuses(await link()) != {200}:
            assert time.monotonic() < deadline
