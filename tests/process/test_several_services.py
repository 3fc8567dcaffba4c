"""Three services of one PostgreSQL database behind nginx with the shipped files, one of which is killed under load."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from builders import TriggerDraft, Wallet, deploy, register
from crashing import on_database
from loading import Load
from shipped_nginx import shipped_nginx

TRIGGERS_MIN = 20
# So many read at a time that each service has some reads when one is killed.
READERS = 24


@asynccontextmanager
async def reading(url: str) -> AsyncGenerator[Counter[int]]:
    """Readers of one address during the block, without a pause; how often they got each status."""
    statuses = Counter[int]()

    async def read(client: httpx2.AsyncClient) -> None:
        while True:
            statuses[(await client.get(url)).status_code] += 1

    async with httpx2.AsyncClient(timeout=60, trust_env=False) as client:
        tasks = [asyncio.create_task(read(client)) for _ in range(READERS)]
        yield statuses
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_main_job_goes_on_through_the_kill_of_a_service_and_no_acknowledged_write_is_lost(
    tmp_path: Path, postgres_url: str
) -> None:
    proxy = tmp_path / "nginx"
    proxy.mkdir()
    with (
        on_database(tmp_path, postgres_url, count=3, MUNIMENT_TRUSTED_PROXIES="127.0.0.1") as site,
        shipped_nginx(proxy, *site.urls) as url,
    ):
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            cid = await deploy(client)
            trigger = await register(client, TriggerDraft(cid, Wallet(61)))
        load = Load([url], cid, site.command("operators", "add", "relayer"), statuses_again=frozenset({502, 503}))
        async with load, reading(f"{url}/triggers/{trigger['sig']}") as statuses:
            await load.until(lambda: load.is_of_every_kind(TRIGGERS_MIN))
            await asyncio.to_thread(site.services[1].kill)
            written, read = len(load.triggers), statuses[200]
            await load.until(lambda: len(load.triggers) > written + TRIGGERS_MIN and statuses[200] > read + READERS)
        assert set(statuses) == {200}, "another service answers what the killed one did not"
        load.urls = [url, site.urls[0], site.urls[2]]
        await load.check()
