"""One process of the service over its own PostgreSQL, which tests of a module may break and must repair."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from typing import Any

import asyncpg
import httpx2
import pytest

from builders import TriggerDraft, Wallet, deploy
from crashing import Site, on_postgres
from loading import ANSWER_SECONDS_MAX, until_it_is_ready

# Another one for each trigger, in whichever test of the process.
VERSIONS = count()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with on_postgres(tmp_path_factory.mktemp("site"), config="max_connections = 30", count=1) as made:
        yield made


@pytest.fixture(scope="module")
def operator_key(site: Site) -> str:
    return site.command("operators", "add", "relayer")


@pytest.fixture
async def caller(site: Site) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=site.urls[0], timeout=ANSWER_SECONDS_MAX, trust_env=False) as made:
        await until_it_is_ready(made)
        yield made


@pytest.fixture(scope="module")
def site_cid(site: Site) -> str:
    """CID of a function for triggers."""

    async def deployed() -> str:
        async with httpx2.AsyncClient(base_url=site.urls[0]) as client:
            return await deploy(client)

    return asyncio.run(deployed())


@pytest.fixture
async def admin(site: Site) -> AsyncIterator[Any]:
    """A session of another user of the server."""
    driver: Any = asyncpg
    connection = await driver.connect(site.environment["MUNIMENT_DATABASE_URL"])
    yield connection
    connection.terminate()


@pytest.fixture
def draft(site_cid: str) -> Callable[[], TriggerDraft]:
    """A new trigger each time."""
    return lambda: TriggerDraft(site_cid, Wallet(6), version=f"1.0.{next(VERSIONS)}")
