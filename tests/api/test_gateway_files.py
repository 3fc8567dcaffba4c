"""Ranges, conditions and headers of blocks and files, at the gateway and for the functions slice."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from gateway_world import V0, V1, World, sample

from muniment.protocol.ipfs.unixfs import Import

pytestmark = pytest.mark.one_engine

BIG = sample("own-big")["function.wasm"]
SIZE = len(BIG)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One for all: asking changes nothing, and what is damaged is asked for once."""
    return World(tmp_path_factory.mktemp("blocks"))


@pytest.fixture(scope="module")
def bundle(world: World) -> Import:
    return world.add("own-big", V0)


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async with world.client() as client:
        yield client


@pytest.fixture(params=["ipfs", "files"])
def wasm(request: pytest.FixtureRequest, bundle: Import) -> str:
    """The path of a file of two leaves: at the gateway, and where the functions slice shows it."""
    return f"/{request.param}/{bundle.root.cid}/function.wasm"


async def test_a_file_has_fixed_headers(client: httpx2.AsyncClient, bundle: Import, wasm: str) -> None:
    reply = await client.get(wasm)
    assert reply.content == BIG
    assert reply.headers["content-length"] == str(SIZE)
    assert reply.headers["content-type"] == "application/wasm"
    assert reply.headers["etag"] == f'"{bundle.root.entries["function.wasm"].cid}"'
    assert reply.headers["cache-control"] == "public, max-age=29030400, immutable"
    assert reply.headers["accept-ranges"] == "bytes"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in reply.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("bytes=0-0", slice(0, 1)),
        ("bytes=10-19", slice(10, 20)),
        ("Bytes= 10-19 ", slice(10, 20)),
        ("bytes=262140-262150", slice(262140, 262151)),
        ("bytes=400000-", slice(400000, SIZE)),
        ("bytes=-5", slice(SIZE - 5, SIZE)),
        ("bytes=-99999999", slice(0, SIZE)),
        (f"bytes=0-{SIZE * 9}", slice(0, SIZE)),
        (f"bytes={SIZE - 1}-", slice(SIZE - 1, SIZE)),
    ],
)
async def test_one_range_is_given(client: httpx2.AsyncClient, wasm: str, given: str, part: slice) -> None:
    reply = await client.get(wasm, headers={"range": given})
    assert reply.status_code == 206
    assert reply.content == BIG[part]
    assert reply.headers["content-range"] == f"bytes {part.start}-{part.stop - 1}/{SIZE}"
    assert reply.headers["content-length"] == str(part.stop - part.start)
    assert "etag" in reply.headers


@pytest.mark.parametrize(
    "given",
    [f"bytes={SIZE}-", "bytes=9999999-99999999", "bytes=-0", "bytes=5-4", "bytes=", "bytes=-", "bytes=a-b",
     "bytes=0-1,x", "bytes=1-2-3", "bytes=0x1-2", "bytes=٣-٤", "nonsense", f"bytes={'9' * 5000}-"],
)  # fmt: skip
async def test_a_nonsensical_range_and_one_outside_are_not_satisfiable(
    client: httpx2.AsyncClient, wasm: str, given: str
) -> None:
    reply = await client.get(wasm, headers={b"range": given.encode()})
    assert reply.status_code == 416
    assert reply.json()["code"] == "range-not-satisfiable"
    assert reply.headers["content-range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize("given", ["bytes=0-1,5-6", f"bytes=0-1, {SIZE}-", "items=0-1"])
async def test_several_ranges_and_other_units_give_the_whole(client: httpx2.AsyncClient, wasm: str, given: str) -> None:
    reply = await client.get(wasm, headers={"range": given})
    assert (reply.status_code, reply.content) == (200, BIG)


async def test_a_range_given_twice_is_refused(client: httpx2.AsyncClient, wasm: str) -> None:
    reply = await client.get(wasm, headers=[("range", "bytes=0-1"), ("range", "bytes=0-1")])
    assert reply.status_code == 400


async def test_if_range_asks_for_the_part_of_just_this_content(client: httpx2.AsyncClient, wasm: str) -> None:
    etag = (await client.head(wasm)).headers["etag"]
    same = await client.get(wasm, headers={"range": "bytes=0-1", "if-range": etag})
    weak = await client.get(wasm, headers={"range": "bytes=0-1", "if-range": f"W/{etag}"})
    date = await client.get(wasm, headers={"range": "bytes=0-1", "if-range": "Fri, 20 Nov 2026 19:48:00 GMT"})
    assert [reply.status_code for reply in (same, weak, date)] == [206, 200, 200]


async def test_a_range_reads_no_other_leaf(world: World, client: httpx2.AsyncClient, wasm: str) -> None:
    whole = set[bytes]()
    world.store.read.clear()
    await client.get(wasm)
    whole.update(world.store.read)
    world.store.read.clear()
    await client.get(wasm, headers={"range": "bytes=-1"})
    assert len(set(world.store.read)) == len(whole) - 1


async def test_head_gives_the_length_without_reading_leaves(
    world: World, client: httpx2.AsyncClient, bundle: Import, wasm: str
) -> None:
    file = bundle.root.entries["function.wasm"].parts
    world.store.read.clear()
    reply = await client.head(wasm, headers={"range": "bytes=0-1"})
    assert (reply.status_code, reply.headers["content-length"]) == (200, str(SIZE))
    assert set(world.store.read) == {bundle.root.parts.digest, file.digest}


async def test_a_file_that_the_client_has_is_not_sent_again(client: httpx2.AsyncClient, wasm: str) -> None:
    etag = (await client.head(wasm)).headers["etag"]
    reply = await client.get(wasm, headers=[("if-none-match", '"x"'), ("if-none-match", etag)])
    assert (reply.status_code, reply.content, reply.headers["etag"]) == (304, b"", etag)
    assert "content-length" not in reply.headers
    assert (await client.get(wasm, headers={"if-none-match": '"x"'})).status_code == 200


async def test_a_damaged_leaf_is_an_integrity_problem(world: World, client: httpx2.AsyncClient) -> None:
    bundle = world.add("own-hello", V1)
    world.damage(bundle.root.entries["manifest.json"].parts)
    for path in (f"/files/{bundle.root.cid}/manifest.json", f"/ipfs/{bundle.root.cid}/manifest.json"):
        reply = await client.get(path)
        assert (reply.status_code, reply.json()["code"]) == (500, "integrity")


async def test_a_part_of_a_block_is_given(world: World, client: httpx2.AsyncClient) -> None:
    root = world.add("own-hello", V0).root.parts
    block = world.store.get(root.digest)
    reply = await client.get(f"/ipfs/{root.text}?format=raw", headers={"range": "bytes=3-9"})
    assert (reply.status_code, reply.content) == (206, block[3:10])
    outside = await client.get(f"/ipfs/{root.text}?format=raw", headers={"range": f"bytes={len(block)}-"})
    assert (outside.status_code, outside.headers["content-range"]) == (416, f"bytes */{len(block)}")


async def test_the_raw_block_at_a_path_is_that_of_the_file(
    world: World, client: httpx2.AsyncClient, bundle: Import
) -> None:
    file = bundle.root.entries["function.wasm"].parts
    reply = await client.get(f"/ipfs/{bundle.root.cid}/function.wasm?format=raw")
    assert reply.content == world.store.get(file.digest)
    assert reply.headers["etag"] == f'"{file.text}.raw"'
    assert reply.headers["content-disposition"] == f'attachment; filename="{file.text}.bin"'
    assert reply.headers["x-ipfs-roots"] == f"{bundle.root.cid},{file.text}"


async def test_an_empty_file_has_no_range(world: World, client: httpx2.AsyncClient) -> None:
    bundle = world.add_files({"manifest.json": b"{}", "function.wasm": b""}, V1)
    path = f"/files/{bundle.root.cid}/function.wasm"
    assert (await client.get(path)).content == b""
    assert (await client.get(path, headers={"range": "bytes=0-"})).status_code == 416
