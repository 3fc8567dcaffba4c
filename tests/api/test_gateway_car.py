"""CAR files: their blocks, the order of these, and a block that is damaged or missing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from gateway_world import V0, V1, VECTORS, World, blocks_in, sample

from muniment.protocol.errors import DeadlineExceeded, Integrity
from muniment.protocol.ipfs.cid import DAG_PB, RAW, CidParts, cid_v0, cid_v1
from muniment.protocol.ipfs.dag_pb import Link, decode_node, encode_node
from muniment.protocol.ipfs.unixfs import Import, Profile
from muniment.service.http.reply import Streamed
from muniment.service.running.settings import Settings
from muniment.service.server.connection import Connection
from muniment.service.server.shared import Shared
from without_server import Whole, request_of

pytestmark = pytest.mark.one_engine

CARS = {path.name: path.read_bytes() for path in sorted((VECTORS / "ipfs").glob("*.car"))}
# A file of three leaves, of which the first two are the same block.
REPEATING = {"manifest.json": b"{}", "function.wasm": b"\0" * (2 * V0.chunk_size) + b"end"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async with world.client() as client:
        yield client


def big(world: World, profile: Profile = V0) -> tuple[Import, CidParts, list[CidParts]]:
    """A bundle with a file of two leaves; the file, and its leaves."""
    bundle = world.add("own-big", profile)
    file = bundle.root.entries["function.wasm"].parts
    return bundle, file, [link.cid for link in decode_node(world.store.get(file.digest)).links]


@pytest.mark.parametrize("name", CARS)
async def test_a_car_is_byte_for_byte_that_of_another_implementation(
    world: World, client: httpx2.AsyncClient, name: str
) -> None:
    root = world.add_car(CARS[name])
    reply = await client.get(f"/ipfs/{root.text}?format=car")
    assert reply.content == CARS[name]


async def test_the_root_of_a_car_is_the_cid_asked_for_and_links_keep_their_version(
    world: World, client: httpx2.AsyncClient
) -> None:
    bundle = world.add("own-hello", V0)
    spelt = cid_v1(DAG_PB, bundle.root.parts.digest)
    roots, cids = blocks_in((await client.get(f"/ipfs/{spelt}?format=car")).content)
    entries = [entry.cid for _, entry in sorted(bundle.root.entries.items())]
    assert [root.text for root in roots] == [spelt]
    assert cids == [spelt, *entries]


async def test_the_probe_is_a_car_without_blocks(client: httpx2.AsyncClient) -> None:
    roots, cids = blocks_in((await client.get("/ipfs/bafkqaaa?format=car")).content)
    assert ([root.text for root in roots], cids) == (["bafkqaaa"], [])


async def test_the_scope_says_how_much_of_the_root_is_in_the_car(world: World, client: httpx2.AsyncClient) -> None:
    bundle, file, leaves = big(world)
    root, manifest = bundle.root.cid, bundle.root.entries["manifest.json"].cid
    whole_file = [file.text, *(leaf.text for leaf in leaves)]
    expected = {
        f"{root}?dag-scope=block": [root],
        f"{root}?dag-scope=entity": [root],
        f"{root}?dag-scope=all": [root, *whole_file, manifest],
        f"{root}?": [root, *whole_file, manifest],
        f"{root}/function.wasm?dag-scope=block": [root, file.text],
        f"{root}/function.wasm?dag-scope=entity": [root, *whole_file],
        f"{root}/function.wasm?": [root, *whole_file],
        f"{root}/manifest.json?": [root, manifest],
        f"{file.text}?dag-scope=entity": whole_file,
    }
    got = {path: blocks_in((await client.get(f"/ipfs/{path}&format=car")).content)[1] for path in expected}
    assert got == expected


async def test_entity_bytes_brings_only_the_leaves_with_these_bytes(world: World, client: httpx2.AsyncClient) -> None:
    bundle, file, (first, second) = big(world)
    way = [bundle.root.cid, file.text]
    expected = {
        "0:0": [*way, first.text],
        "-1:*": [*way, second.text],
        "0:262143": [*way, first.text],
        "262143:262144": [*way, first.text, second.text],
        "262144:*": [*way, second.text],
        "0:*": [*way, first.text, second.text],
        "9999999:*": way,
    }
    base = f"/ipfs/{bundle.root.cid}/function.wasm?format=car&entity-bytes="
    got = {given: blocks_in((await client.get(base + given)).content)[1] for given in expected}
    assert got == expected


@pytest.mark.parametrize("profile", [V0, V1])
async def test_a_block_comes_again_only_when_that_is_asked_for(
    world: World, client: httpx2.AsyncClient, profile: Profile
) -> None:
    chunks = Profile("small", profile.cid_version, profile.raw_leaves, V0.chunk_size, profile.width)
    bundle = world.add_files(REPEATING, chunks)
    once = blocks_in((await client.get(f"/ipfs/{bundle.root.cid}?format=car")).content)[1]
    boxo = {"accept": "application/vnd.ipld.car;order=dfs;dups=y"}
    again = blocks_in((await client.get(f"/ipfs/{bundle.root.cid}", headers=boxo)).content)[1]
    assert len(once) == len(set(once)) == 5
    assert again == [*once[:3], once[2], *once[3:]]


async def test_the_etag_differs_by_everything_that_changes_the_car(world: World, client: httpx2.AsyncClient) -> None:
    bundle, _, _ = big(world)
    root = bundle.root.cid
    v1 = cid_v1(DAG_PB, bundle.root.parts.digest)
    paths = [
        f"{root}?", f"{v1}?", f"{root}/manifest.json?", f"{root}/function.wasm?", f"{root}?dag-scope=block",
        f"{root}?dag-scope=entity", f"{root}?car-dups=y", f"{root}/function.wasm?entity-bytes=0:1",
        f"{root}/function.wasm?entity-bytes=0:2", f"{root}/function.wasm?entity-bytes=0:*",
    ]  # fmt: skip
    tags = [(await client.head(f"/ipfs/{path}&format=car")).headers["etag"] for path in paths]
    assert len(set(tags)) == len(paths)
    assert all(tag.startswith('W/"') for tag in tags)
    again = await client.get(f"/ipfs/{paths[-1]}&format=car", headers={"if-none-match": tags[-1]})
    assert again.status_code == 304


async def test_head_walks_no_further_than_the_path(world: World, client: httpx2.AsyncClient) -> None:
    bundle, file, leaves = big(world)
    world.store.read.clear()
    for query in ("format=car", "format=car&car-dups=y", "format=raw"):
        assert (await client.head(f"/ipfs/{bundle.root.cid}?{query}")).status_code == 200
    assert set(world.store.read) == {bundle.root.parts.digest}
    assert (await client.head(f"/ipfs/{bundle.root.cid}/function.wasm")).status_code == 200
    assert set(world.store.read) == {bundle.root.parts.digest, file.digest}
    assert leaves


@pytest.mark.parametrize("query", ["format=raw", "format=car"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_damaged_root_is_an_integrity_problem(
    world: World, client: httpx2.AsyncClient, query: str, method: str
) -> None:
    bundle = world.add("own-hello", V0)
    world.damage(bundle.root.parts)
    reply = await client.request(method, f"/ipfs/{bundle.root.cid}?{query}")
    assert reply.status_code == 500
    assert method == "HEAD" or reply.json()["code"] == "integrity"


async def test_a_block_missing_early_in_a_car_is_an_integrity_problem(world: World, client: httpx2.AsyncClient) -> None:
    bundle = world.add("own-hello", V0)
    world.path_of(bundle.root.entries["manifest.json"].parts).unlink()
    reply = await client.get(f"/ipfs/{bundle.root.cid}?format=car")
    assert (reply.status_code, reply.json()["code"]) == (500, "integrity")


@pytest.mark.parametrize("harm", ["damaged", "missing"])
async def test_a_block_harmed_late_in_a_car_breaks_the_answer_off(
    world: World, client: httpx2.AsyncClient, harm: str
) -> None:
    bundle, _, (_, last) = big(world)
    world.damage(last) if harm == "damaged" else world.path_of(last).unlink()
    with pytest.raises(Integrity):
        await client.get(f"/ipfs/{bundle.root.cid}?format=car")


@pytest.mark.parametrize("path", ["?format=car", "/function.wasm"])
async def test_a_client_sees_the_connection_break(world: World, path: str) -> None:
    bundle, _, (_, last) = big(world)
    world.damage(last)
    shared = Shared(
        application=world.app, now_s=time.time, head_seconds_max=60, connections_max=9,
        is_proxy=lambda _: False, client_names=lambda address: (address,),
    )  # fmt: skip
    loop, connections = asyncio.get_running_loop(), set[Connection]()
    server = await loop.create_server(lambda: Connection(shared, loop, connections, set()), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get(f"/ipfs/{bundle.root.cid}{path}")
        assert (await client.get("/ipfs/bafkqaaa?format=raw")).status_code == 200
        for each in [*connections]:
            each.shutdown()


async def test_a_large_car_is_sent_as_it_is_read(world: World) -> None:
    bundle = world.add_files({"manifest.json": b"{}", "function.wasm": os.urandom(8 * V0.chunk_size)}, V0)
    reply = await world.app.respond(
        request_of("GET", f"/ipfs/{bundle.root.cid}".encode(), b"format=car", [], Whole()),
    )  # fmt: skip
    assert isinstance(reply, Streamed)
    bodies = [(len(chunk), len(world.store.read)) async for chunk in reply.chunks]
    assert len(bodies) == 9  # each leaf for itself, and the manifest
    assert all(length < 2 * V0.chunk_size for length, _ in bodies)
    assert bodies[0][1] < bodies[-1][1] - 6  # the last leaves were not read before the first were sent


async def test_the_hash_of_a_leaf_is_no_node(world: World, client: httpx2.AsyncClient) -> None:
    bundle = world.add("own-hello", V1)
    leaf = bundle.root.entries["manifest.json"].parts
    for spelt in (cid_v0(leaf.digest), cid_v1(DAG_PB, leaf.digest)):
        assert (await client.get(f"/ipfs/{spelt}?format=car")).status_code == 404
        assert (await client.get(f"/ipfs/{spelt}/manifest.json")).status_code == 404
        assert (await client.get(f"/ipfs/{spelt}?format=raw")).content == sample("own-hello")["manifest.json"]


async def test_a_node_may_be_asked_for_as_raw_block(world: World, client: httpx2.AsyncClient) -> None:
    bundle = world.add("own-hello", V0)
    spelt = cid_v1(RAW, bundle.root.parts.digest)
    assert blocks_in((await client.get(f"/ipfs/{spelt}?format=car")).content)[1] == [spelt]
    assert (await client.get(f"/ipfs/{spelt}/manifest.json")).status_code == 404


async def test_blocks_made_to_repeat_without_end_are_broken_off(tmp_path: Path) -> None:
    world = World(tmp_path, Settings(wasm_bytes_max=1024, manifest_bytes_max=1024))
    below = world.add_files({"manifest.json": b"{}"}, V0).root.parts
    for _ in range(20):  # each node links to the one below twice: a million blocks
        node = encode_node([Link(below, 0, b"a"), Link(below, 0, b"b")], b"\x08\x01")
        below = CidParts(0, DAG_PB, below.hash_code, world.put(node))
    async with world.client() as client:
        once = await client.get(f"/ipfs/{below.text}?format=car")
        assert len(blocks_in(once.content)[1]) == 22
        again = await client.get(f"/ipfs/{below.text}?format=car&car-dups=y")
        assert again.json()["code"] == DeadlineExceeded.code
