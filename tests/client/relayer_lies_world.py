"""A registry with a transparency log, a proxy before it that lies, and what a relayer follows of it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from facades_world import QUICK, bundle, draft, plain_http, signer
from lies import telling

from builders import cron
from middle import Middle, before
from muniment.client import AsyncRegistry, Bundle, Registry
from muniment.protocol.evm.signature import Signature
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.lives.following import Following
from muniment.relayer.lives.logged_ends import LoggedEnds
from muniment.relayer.settings import Served
from service import Service

ANY = Served(None, None, None)


@dataclass
class World:
    """A registry, the proxy before it, and an owner of triggers."""

    middle: Middle
    owner: Registry
    bundle: Bundle
    cid: str
    other_cid: str
    http: httpx2.Client
    directory: Path
    count: int = 0

    def sign(self, **members: Any) -> Signature:
        """A new active trigger."""
        self.count += 1
        given = {"config": cron(schedule="* * * * *"), "version": f"{self.count}.0.0", **members}
        return self.owner.triggers.create(draft(self.cid, **given)).sig

    def truth(self, sig: str) -> Any:
        return self.http.get(f"{self.middle.behind}/triggers/{sig}").json()

    def journal_path(self) -> Path:
        self.count += 1
        return self.directory / f"relayer-{self.count}.db"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("relayer")
    with (
        Service(directory / "data", environment={"MUNIMENT_TLOG_NAME": "registry.example"}) as service,
        before(service.url) as middle,
        plain_http() as http,
        Registry(service.url, signer=signer(7)) as owner,
    ):
        first, second = bundle(), bundle()
        cid, other_cid = (str(owner.functions.deploy(each).cid) for each in (first, second))
        yield World(middle, owner, first, cid, other_cid, http, directory)


def own_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def followed(
    world: World, path: Path | None = None, served: Served = ANY, protocol: str = "Mimic"
) -> AsyncGenerator[Following]:
    """A relayer's following, which asks through the proxy."""
    plain = httpx2.AsyncClient(verify=False, timeout=30)
    with Journal.open(path or world.journal_path()) as journal:
        async with plain, AsyncRegistry(world.middle.url, http=plain, retry=QUICK, protocol=protocol) as registry:
            ends = LoggedEnds(registry=registry, journal=journal, protocol=protocol, own_ms=own_ms)
            yield Following(registry=registry, journal=journal, served=served, ends=ends, own_ms=own_ms)


def shown(truth: Any) -> Any:
    """A behaviour that shows this record in place of the one of its signature, in lists and alone."""

    def change(answer: Any) -> Any:
        if isinstance(answer, list):
            return [truth if each.get("sig") == truth["sig"] else each for each in answer]
        return truth if isinstance(answer, dict) and answer.get("sig") == truth["sig"] else answer

    return telling(change, "GET", "/triggers")
