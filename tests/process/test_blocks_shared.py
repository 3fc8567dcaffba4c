"""Two machines, each with a directory of its own, over one PostgreSQL: each serves the bundles of the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from answers import answered, ok
from builders import SAMPLES, Wallet, api_key_of
from crashing import on_database
from forms import END, FORM, part
from service import Service

FILES = {name: (SAMPLES / "own-big" / name).read_bytes() for name in ("manifest.json", "function.wasm")}


@pytest.fixture
def machines(tmp_path: Path, postgres_url: str) -> Iterator[list[Service]]:
    with on_database(tmp_path, postgres_url) as site:
        yield site.services


async def upload(service: Service, owner: int = 1) -> str:
    """Deploy a bundle whose module has several blocks; its CID."""
    async with httpx2.AsyncClient(base_url=service.url) as client:
        headers = {"x-api-key": await api_key_of(client, Wallet(owner)), "content-type": FORM}
        body = b"".join(part(name, data) for name, data in FILES.items()) + END
        return (await answered(client, "POST", "/functions", content=body, headers=headers)).json()["CID"]


async def wasm_of(service: Service, cid: str) -> bytes:
    async with httpx2.AsyncClient(base_url=service.url) as client:
        return ok(await client.get(f"/functions/{cid}/wasm")).content


async def test_a_bundle_given_to_one_machine_is_served_by_the_other(machines: list[Service]) -> None:
    one, two = machines
    cid = await upload(one)
    read = await asyncio.gather(*(wasm_of(service, cid) for service in (one, two) for _ in range(8)))
    assert set(read) == {FILES["function.wasm"]}
    assert not [path for service in machines for path in service.data_dir.rglob("*") if path.name.startswith("blocks")]


async def test_a_bundle_outlives_the_machine_that_took_it(machines: list[Service]) -> None:
    one, two = machines
    cid = await upload(one)
    one.kill()
    assert await wasm_of(two, cid) == FILES["function.wasm"]


async def test_both_machines_may_accept_the_same_bundle_at_the_same_time(machines: list[Service]) -> None:
    cids = await asyncio.gather(*(upload(machines[owner % 2], owner) for owner in range(1, 9)))
    assert len(set(cids)) == 1
    assert await wasm_of(machines[1], cids[0]) == FILES["function.wasm"]
