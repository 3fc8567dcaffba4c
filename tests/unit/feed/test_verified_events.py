"""`muniment verify` reads events while a service runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from delivering import Registry, delivering_at
from muniment.operate.verify import check_events


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.programs)])
def database_url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else ""


async def look(registry: Registry, events: int, removed: int) -> int:
    """The number of checked events when the oldest `removed` are removed after the first page."""
    await registry.add(events)
    checked = 0
    async for _ in check_events(registry.context):
        checked += 1
        if checked == 500:
            await registry.remove_oldest(removed)
    return checked


async def test_events_that_are_removed_meanwhile_are_left_out(database_url: str, tmp_path: Path) -> None:
    async with delivering_at(database_url, tmp_path) as registry:
        assert await look(registry, events=1_200, removed=700) == 1_000
