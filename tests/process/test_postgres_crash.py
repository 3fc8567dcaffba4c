"""SIGKILL to the service and to PostgreSQL under load, on both engines; `make soak` does many more rounds."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, deploy
from crashing import kill_again_and_again, on_postgres, on_sqlite
from service import Service

HERE = Path(__file__).parent
ROUNDS = 10


@pytest.mark.long
def test_on_postgres_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    with on_postgres(tmp_path) as site:
        asyncio.run(kill_again_and_again(site, ROUNDS))


@pytest.mark.long
def test_on_sqlite_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    with on_sqlite(tmp_path) as site:
        asyncio.run(kill_again_and_again(site, ROUNDS))


def test_a_client_that_was_not_answered_asks_again_and_gets_the_record(tmp_path: Path, postgres_url: str) -> None:
    """The process ends by SIGKILL between the server's commit and the answer."""
    mark = tmp_path / "die"
    environment = {"MUNIMENT_DATABASE_URL": postgres_url, "DIE_WHEN_THERE_IS": str(mark)}
    dying = Service(tmp_path / "data", program=[str(HERE / "dies_after_commit.py")], environment=environment)
    with dying:
        cid = asyncio.run(_deployed(dying.url))
        mark.touch()
        body = TriggerDraft(cid).signed()
        with pytest.raises(httpx2.TransportError):
            httpx2.post(f"{dying.url}/triggers", json=body)
        assert dying.wait() == -signal.SIGKILL
    with Service(tmp_path / "data", environment=environment | {"DIE_WHEN_THERE_IS": "/nowhere"}) as service:
        (stored,) = ok(httpx2.get(f"{service.url}/triggers")).json()
        again = httpx2.post(f"{service.url}/triggers", json=body)
        assert (again.status_code, again.json()) == (200, stored)
        assert ok(httpx2.get(f"{service.url}/triggers")).json() == [stored]


async def _deployed(url: str) -> str:
    async with httpx2.AsyncClient(base_url=url) as client:
        return await deploy(client)
