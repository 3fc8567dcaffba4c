"""What a long read takes is charged to the client that asked for it, after it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, LiteralString

import httpx2
import pytest
from trigger_world import check_refusal

from muniment.service.app import Application
from muniment.service.running.limits.costs import LONG_READ_NS_FREE, UNIT_NS
from muniment.service.running.settings import Settings
from without_server import InProcess

# A million steps, which take any engine far longer than what is free.
LONG: Final[LiteralString] = (
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000000) "
    "SELECT max(n) FROM numbers"
)


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return Settings(
        data_dir=tmp_path / "data", database_url=database_url, log_level="error", rate_limit_client="100/1000s"
    )


def of(app: Application, address: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=InProcess(app, address), base_url="http://test")


async def test_the_client_of_a_long_read_pays_for_it(app: Application) -> None:
    database = app.context.database
    async with of(app, "192.0.2.1") as long, of(app, "192.0.2.2") as other:
        assert (await long.get("/triggers")).status_code == 200
        assert await database.fetch_slow(LONG) == [(1_000_000,)]  # of the service itself
        assert (await long.get("/triggers")).status_code == 200
        assert await database.fetch_slow(LONG, client="192.0.2.1") == [(1_000_000,)]
        check_refusal(await long.get("/triggers"), 429, "rate-limited")
        assert (await other.get("/triggers")).status_code == 200


async def test_a_read_as_long_as_a_page_at_the_largest_offset_is_free(app: Application) -> None:
    owe = app.admission.owe_long_read
    async with of(app, "192.0.2.1") as client:
        for _ in range(1_000):
            owe("192.0.2.1", LONG_READ_NS_FREE + UNIT_NS - 1)
        assert (await client.get("/triggers")).status_code == 200
        owe("192.0.2.1", LONG_READ_NS_FREE + 100 * UNIT_NS)
        check_refusal(await client.get("/triggers"), 429, "rate-limited")
