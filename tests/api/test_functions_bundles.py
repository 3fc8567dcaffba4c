"""The rules of manifest.json and function.wasm, the creator of a bundle, and the same bytes again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from held_blocks import digests

from builders import EMPTY_WASM, SAMPLES, Bundle, Wallet, api_key_of, deploy
from conftest import Clock
from counted_calls import calls_within
from forms import END, FORM, part
from muniment.protocol.functions.wasm import InvalidWasm, check_wasm
from muniment.service.app import Application
from muniment.service.context import Context
from without_server import InProcess

NothingStored = Callable[[], Any]
GOOD: dict[str, Any] = {"version": "1.0.0", "name": "Hello", "description": "Logs one line", "inputs": {}}


def written(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


async def key_of(client: httpx2.AsyncClient, owner: int = 1) -> dict[str, str]:
    return {"x-api-key": await api_key_of(client, Wallet(owner)), "content-type": FORM}


async def post(client: httpx2.AsyncClient, key: dict[str, str], manifest: bytes, wasm: bytes) -> httpx2.Response:
    body = part("manifest.json", manifest) + part("function.wasm", wasm) + END
    return await client.post("/functions", content=body, headers=key)


async def post_bundle(client: httpx2.AsyncClient, key: dict[str, str], bundle: Bundle) -> httpx2.Response:
    return await post(client, key, bundle.manifest, bundle.wasm)


async def created_by(client: httpx2.AsyncClient, owner: int) -> list[dict[str, Any]]:
    return (await client.get(f"/functions?creator={Wallet(owner).address}")).json()


MANIFESTS = {
    "empty": (b"", ""),
    "not an object": (b"[]", ""),
    "not UTF-8": (b'{"name":"\xff"}', ""),
    "a byte order mark": (b"\xef\xbb\xbf" + written(), ""),
    "a member twice": (written()[:-1] + b',"name":"Hello"}', ""),
    "an input twice": (written(inputs={"a": "bool"}).replace(b'"bool"', b'"bool","a":"bool"'), ""),
    "NaN": (written(metadata={"x": float("nan")}), ""),
    "100 levels": (written()[:-1] + b',"metadata":' + b'{"a":' * 99 + b"1" + b"}" * 100, ""),
    "100,000 brackets": (b"[" * 100_000, ""),
    "no name": (json.dumps({name: GOOD[name] for name in GOOD if name != "name"}).encode(), "/name"),
    "an empty name": (written(name=""), "/name"),
    "a long name": (written(name="x" * 101), "/name"),
    "a NUL in the name": (written(name="a\0b"), "/name"),
    "an empty description": (written(description=""), "/description"),
    "a long description": (written(description="x" * 1001), "/description"),
    "a short version": (written(version="1.0"), "/version"),
    "a version with a leading zero": (written(version="01.0.0"), "/version"),
    "a long version": (written(version="1.0." + "1" * 300), "/version"),
    "inputs as a list": (written(inputs=[]), "/inputs"),
    "65 inputs": (written(inputs={f"x{number}": "bool" for number in range(65)}), "/inputs"),
    "an input named as two": (written(inputs={"x,uint256 y": "bool"}), "/inputs/x,uint256 y"),
    "an input named by a digit": (written(inputs={"1": "bool"}), "/inputs/1"),
    "an input named __proto__": (written(inputs={"__proto__": "bool"}), "/inputs/__proto__"),
    "an input of unknown type": (written(inputs={"x": "uint7"}), "/inputs/x"),
    "an input of an array": (written(inputs={"a": "bool", "x": {"type": "bool[]"}}), "/inputs/x/type"),
    "an ABI that is no text": (written(abis={"ERC20": []}), "/abis/ERC20"),
    "metadata as a list": (written(metadata=[]), "/metadata"),
}


@pytest.mark.one_engine
async def test_a_wrong_manifest_is_refused_with_a_pointer(
    client: httpx2.AsyncClient, nothing_stored: NothingStored, subtests: pytest.Subtests
) -> None:
    key = await key_of(client)
    async with nothing_stored():
        for row, (manifest, pointer) in MANIFESTS.items():
            with subtests.test(row):
                response = await post(client, key, manifest, EMPTY_WASM)
                problem = response.json()
                assert (response.status_code, problem["code"]) == (400, "invalid-manifest")
                assert problem["errors"][0]["pointer"] == pointer
                assert problem["content"]["message"].startswith("manifest.json")


@pytest.mark.one_engine
async def test_every_wrong_member_of_a_manifest_is_named(client: httpx2.AsyncClient) -> None:
    response = await post(client, await key_of(client), b'{"name":"","inputs":3}', EMPTY_WASM)
    assert [each["pointer"] for each in response.json()["errors"]] == ["/name", "/version", "/description", "/inputs"]


@pytest.mark.one_engine
async def test_a_manifest_in_any_spelling_is_kept_as_it_is(client: httpx2.AsyncClient) -> None:
    manifest = b"\r\n { " + written(name="\N{GRINNING FACE}", description="e\u0301")[1:] + b"\t\n"
    response = await post(client, await key_of(client), manifest, EMPTY_WASM)
    assert (response.json()["name"], response.json()["description"]) == ("\N{GRINNING FACE}", "e\u0301")
    assert (await client.get(f"/functions/{response.json()['CID']}/manifest")).content == manifest


def leb(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + leb(rest) if rest else bytes([low])


def section(number: int, content: bytes) -> bytes:
    return bytes([number]) + leb(len(content)) + content


LOCALS = b"\1" + leb(10**9) + b"\x7f\x0b"  # one run of 10^9 i32, then the end
MODULES = {
    "empty": b"",
    "HTML": b"<!DOCTYPE html><html></html>",
    "16 MB of HTML": b"<p>" * 5_000_000,
    "the text format": b"(module)",
    "the wrong magic": b"\0asn\1\0\0\0",
    "the wrong version": b"\0asm\2\0\0\0",
    "truncated": (SAMPLES / "own-hello" / "function.wasm").read_bytes()[:-1],
    "with bytes after it": (SAMPLES / "own-hello" / "function.wasm").read_bytes() + b"\1",
    "a component": b"\0asm\x0d\0\1\0",
    "a section longer than the file": EMPTY_WASM + b"\1" + leb(2**32 - 1),
    "10^9 locals": EMPTY_WASM + section(1, b"\1\x60\0\0") + section(3, b"\1\0")
    + section(10, b"\1" + leb(len(LOCALS)) + LOCALS),
    "a table of 2^32 - 1": EMPTY_WASM + section(4, b"\1\x70\0" + leb(2**32 - 1)),
    "a memory of 2^32 - 1 pages": EMPTY_WASM + section(5, b"\1\0" + leb(2**32 - 1)),
    "5,000,000 sections": EMPTY_WASM + b"\0\1\0" * 5_000_000,
}  # fmt: skip


@pytest.mark.one_engine
async def test_a_wrong_module_is_refused_before_it_costs(
    client: httpx2.AsyncClient, nothing_stored: NothingStored, subtests: pytest.Subtests
) -> None:
    key = await key_of(client)
    async with nothing_stored():
        for row, wrong in MODULES.items():
            with subtests.test(row):
                response = await post(client, key, written(), wrong)
                assert (response.status_code, response.json()["code"]) == (400, "invalid-wasm")
                assert response.json()["content"]["message"].startswith("function.wasm ")
                with calls_within(10_000), pytest.raises(InvalidWasm):
                    check_wasm(wrong)


async def test_the_same_bytes_again_are_the_first_record(client: httpx2.AsyncClient, clock: Clock) -> None:
    first = (await post_bundle(client, await key_of(client, 1), Bundle())).json()
    clock.advance(hours=1)
    for owner in (1, 2, 2):
        again = await post_bundle(client, await key_of(client, owner), Bundle())
        assert (again.status_code, again.json()) == (200, first)
    assert first["creator"] == Wallet(1).address
    assert (await client.get("/functions")).json() == [first]
    assert await created_by(client, 1) == await created_by(client, 2) == [first]
    assert await created_by(client, 3) == []


async def test_simultaneous_uploads_of_the_same_bytes_make_one_record(client: httpx2.AsyncClient) -> None:
    keys = [await key_of(client, number // 2) for number in range(2, 18)]
    answers = await asyncio.gather(*(post_bundle(client, key, Bundle()) for key in keys))
    assert {answer.status_code for answer in answers} == {200}
    (record,) = {answer.text for answer in answers}
    assert (await client.get("/functions")).text == f"[{record}]"
    for owner in range(1, 9):
        assert await created_by(client, owner) == [json.loads(record)]


async def test_other_bytes_of_the_same_name_and_version_are_refused(
    client: httpx2.AsyncClient, nothing_stored: NothingStored
) -> None:
    await deploy(client, Bundle())
    key = await key_of(client)
    async with nothing_stored():
        response = await post_bundle(client, key, Bundle(description="Logs two lines"))
    assert (response.status_code, response.json()["code"]) == (400, "version-taken")
    assert response.json()["content"]["message"] == (
        "you have deployed other bytes as Hello 1.0.0; raise the version in manifest.json"
    )
    assert await deploy(client, Bundle(version="1.0.1", description="Logs two lines"))


async def test_an_invalid_module_is_refused_as_such_under_a_taken_version_too(
    client: httpx2.AsyncClient, nothing_stored: NothingStored
) -> None:
    await deploy(client, Bundle())
    key = await key_of(client)
    async with nothing_stored():
        response = await post_bundle(client, key, Bundle(wasm=b"no module"))
    assert (response.status_code, response.json()["code"]) == (400, "invalid-wasm")


async def test_simultaneous_uploads_of_other_bytes_under_one_version_leave_one_function(
    client: httpx2.AsyncClient,
) -> None:
    key = await key_of(client)
    bundles = [Bundle(description=f"Variant {number}") for number in range(8)]
    answers = await asyncio.gather(*(post_bundle(client, key, bundle) for bundle in bundles))
    assert sorted(answer.status_code for answer in answers) == [200] + [400] * 7
    assert {answer.json()["code"] for answer in answers if answer.status_code == 400} == {"version-taken"}
    (record,) = [answer.json() for answer in answers if answer.status_code == 200]
    assert await created_by(client, 1) == [record]


async def test_a_name_and_version_are_taken_for_their_creator_alone(
    client: httpx2.AsyncClient, nothing_stored: NothingStored
) -> None:
    alice, bob = await key_of(client, 1), await key_of(client, 2)
    hers, his = Bundle(description="By Alice"), Bundle(description="By Bob")
    records = [(await post_bundle(client, key, bundle)).json() for key, bundle in ((alice, hers), (bob, his))]
    async with nothing_stored():
        crossed = [await post_bundle(client, alice, his), await post_bundle(client, bob, hers)]
    assert [(each.status_code, each.json()["code"]) for each in crossed] == [(400, "version-taken")] * 2
    assert (await created_by(client, 1), await created_by(client, 2)) == ([records[0]], [records[1]])


async def test_a_bundle_keeps_its_cid_when_the_profile_changes(client: httpx2.AsyncClient, context: Context) -> None:
    first = (await post_bundle(client, await key_of(client), Bundle())).json()
    later = InProcess(
        Application(replace(context, settings=replace(context.settings, unixfs_profile="unixfs-v1-2025")))
    )
    async with httpx2.AsyncClient(transport=later, base_url="http://test") as other:
        blocks = await digests(context)
        for owner in (1, 2):
            assert (await post_bundle(other, await key_of(other, owner), Bundle())).json() == first
        assert await digests(context) == blocks
        new = (await post_bundle(other, await key_of(other), Bundle("Other"))).json()
    assert first["CID"].startswith("Qm")
    assert new["CID"].startswith("bafybei")
    assert (await post_bundle(client, await key_of(client), Bundle("Other"))).json() == new
