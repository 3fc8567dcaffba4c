"""Bundles whose blocks are in a table: uploads, ranges, CAR files, and rows that are damaged or missing."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import LiteralString

import httpx2
import pytest

from builders import SAMPLES, Bundle, Wallet, api_key_of, deploy
from forms import END, FORM, part
from muniment.protocol.ipfs.car import read_car
from muniment.protocol.ipfs.cid import decode_cid
from muniment.service.blocks.table import TableBlockStore
from muniment.service.context import Context
from muniment.service.running.settings import Settings

MANIFEST, WASM = ((SAMPLES / "own-big" / name).read_bytes() for name in ("manifest.json", "function.wasm"))


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return Settings(data_dir=tmp_path / "data", database_url=database_url, blocks_url="database:", log_level="warning")


async def upload(client: httpx2.AsyncClient) -> str:
    """Deploy a bundle whose module has several blocks; its CID."""
    headers = {"x-api-key": await api_key_of(client, Wallet()), "content-type": FORM}
    body = part("manifest.json", MANIFEST) + part("function.wasm", WASM) + END
    response = await client.post("/functions", content=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["CID"]


async def change(context: Context, sql: LiteralString, *parameters: object) -> None:
    assert await context.database.write(lambda tx: tx.execute(sql, parameters)) > 0


async def test_a_bundle_comes_back_and_no_file_was_made(client: httpx2.AsyncClient, context: Context) -> None:
    cid = await upload(client)
    assert isinstance(context.blocks, TableBlockStore)
    assert (await client.get(f"/functions/{cid}/manifest")).content == MANIFEST
    assert (await client.get(f"/functions/{cid}/wasm")).content == WASM
    assert (await client.get(f"/ipfs/{cid}/function.wasm")).content == WASM
    assert not (context.settings.data_dir / "blocks").exists()
    assert list((context.settings.data_dir / "spools").iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "start", "end"), [("0-0", 0, 1), ("262140-262150", 262_140, 262_151), ("-5", -5, None)]
)
async def test_a_range_is_a_part(client: httpx2.AsyncClient, asked: str, start: int, end: int | None) -> None:
    cid = await upload(client)
    response = await client.get(f"/functions/{cid}/wasm", headers={"range": f"bytes={asked}"})
    assert (response.status_code, response.content) == (206, WASM[start:end])


async def test_a_car_and_a_raw_block_hold_the_uploaded_bytes(client: httpx2.AsyncClient, context: Context) -> None:
    cid = await upload(client)
    roots, blocks = read_car(io.BytesIO((await client.get(f"/ipfs/{cid}?format=car")).content))
    held = {block_cid.digest: data for block_cid, data in blocks}
    assert [root.text for root in roots] == [cid]
    assert sorted(held) == await asyncio.to_thread(lambda: list(context.blocks.digests()))
    raw = await client.get(f"/ipfs/{cid}?format=raw")
    assert raw.content == held[decode_cid(cid).digest]


async def test_content_that_is_not_held_is_not_found(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/ipfs/QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH?format=raw")
    assert (answer.status_code, answer.json()["code"]) == (404, "content-not-found")


async def test_a_damaged_row_is_an_integrity_problem_until_the_same_upload_repairs_it(
    client: httpx2.AsyncClient, context: Context
) -> None:
    cid = await deploy(client)
    await change(context, "UPDATE blocks SET data = ?", b"wrong")
    response = await client.get(f"/functions/{cid}/manifest")
    assert (response.status_code, response.json()["code"]) == (500, "integrity")
    assert await deploy(client) == cid
    assert (await client.get(f"/functions/{cid}/manifest")).content == Bundle().manifest


async def test_a_missing_row_is_an_integrity_problem(client: httpx2.AsyncClient, context: Context) -> None:
    cid = await deploy(client)
    await change(context, "DELETE FROM blocks")
    response = await client.get(f"/functions/{cid}/manifest")
    assert (response.status_code, response.json()["code"]) == (500, "integrity")


async def test_a_table_that_does_not_answer_is_unavailable_and_no_record_is_stored(
    client: httpx2.AsyncClient, context: Context
) -> None:
    key = await api_key_of(client, Wallet())
    await context.database.write(lambda tx: tx.execute("ALTER TABLE blocks RENAME TO away"))
    try:
        refused = await client.post("/functions", files=Bundle().files, headers={"x-api-key": key})
    finally:
        await context.database.write(lambda tx: tx.execute("ALTER TABLE away RENAME TO blocks"))
    assert (refused.status_code, refused.json()["code"]) == (503, "storage-unavailable")
    assert (await client.get("/functions")).json() == []


async def test_many_simultaneous_requests_are_served(client: httpx2.AsyncClient) -> None:
    cid = await upload(client)
    answers = await asyncio.gather(*(client.get(f"/functions/{cid}/wasm") for _ in range(40)))
    assert all(answer.content == WASM for answer in answers)
