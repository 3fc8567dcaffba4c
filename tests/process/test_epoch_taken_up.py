"""An epoch that is renewed while processes serve, and beside replicas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, deploy, register
from crashing import Site
from muniment.service.storage.epoch import FRESH_SECONDS
from postgres import Cluster
from service import Service

# Of the time that is promised this much may be the machine's.
BUSY_SECONDS = 60


@pytest.fixture(params=["sqlite", "postgres", "replica"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A service with two processes."""
    with ExitStack() as stack:
        environment = dict[str, str]()
        if request.param == "postgres":
            environment = {"MUNIMENT_DATABASE_URL": request.getfixturevalue("postgres_url")}
        if request.param == "replica":
            primary = stack.enter_context(Cluster())
            replica = stack.enter_context(primary.replica())
            environment = {
                "MUNIMENT_DATABASE_URL": primary.url(), "MUNIMENT_DATABASE_READ_URLS": replica.url(),
                "MUNIMENT_REPLICA_LAG_S_MAX": "60",
            }  # fmt: skip
        made = Site(tmp_path / "data", [Service(tmp_path / "data", workers=2, environment=environment)], environment)
        if environment:
            made.command("migrate")
        stack.enter_context(made.services[0])
        yield made


async def test_every_process_takes_up_another_epoch_within_seconds(site: Site) -> None:
    """Each request comes over a new connection, which the kernel gives to either process."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    async with httpx2.AsyncClient(base_url=site.urls[0], limits=limits) as client:
        cid = await deploy(client)
        for number in range(3):
            await register(client, TriggerDraft(cid, version=f"{number}.0.0"))

        async def link() -> str:
            answer = ok(await client.get("/triggers?sort=1&limit=2"))
            return answer.headers["link"].partition(">")[0][1:]

        async def statuses(target: str) -> set[int]:
            answers = await asyncio.gather(*(client.get(target) for _ in range(40)))
            return {answer.status_code for answer in answers}

        before = await link()
        assert await statuses(before) == {200}
        site.command("epoch", "renew")
        deadline = time.monotonic() + FRESH_SECONDS + BUSY_SECONDS
        while (seen := await statuses(before)) != {410}:
            assert seen <= {200, 410}
            assert time.monotonic() < deadline, seen
            await asyncio.sleep(0.1)
        # Either process may have answered all of them: the other one may still be in the epoch before.
        while await statuses(await link()) != {200}:
            assert time.monotonic() < deadline
