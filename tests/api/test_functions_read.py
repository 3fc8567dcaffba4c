"""GET /functions/{cid} and the exact bytes below it; content that is damaged or missing on the disk."""

from __future__ import annotations

import httpx2
import pytest
from held_blocks import cids_below, damage, digests, file_cid, remove

from builders import SAMPLES, Bundle, Wallet, api_key_of, deploy
from forms import END, FORM, part
from muniment.protocol.errors import Integrity
from muniment.protocol.ipfs.cid import CidParts, decode_cid
from muniment.service.context import Context

pytestmark = pytest.mark.one_engine

UNKNOWN = "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH"
FILES = {"manifest": "manifest.json", "wasm": "function.wasm"}
TYPES = {"manifest": "application/json", "wasm": "application/wasm"}
IMMUTABLE = "public, max-age=29030400, immutable"


async def deploy_sample(client: httpx2.AsyncClient, name: str) -> str:
    headers = {"x-api-key": await api_key_of(client, Wallet()), "content-type": FORM}
    files = [part(file, (SAMPLES / name / file).read_bytes()) for file in FILES.values()]
    response = await client.post("/functions", content=b"".join(files) + END, headers=headers)
    return response.json()["CID"]


def spelled(cid: str, codec: int) -> str:
    return CidParts(1, codec, 0x12, decode_cid(cid).digest).text


async def test_either_version_of_a_cid_finds_the_record(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    answers = [await client.get(f"/functions/{each}") for each in (cid, spelled(cid, 0x70))]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json() == (await client.get("/functions")).json()[0]
    assert answers[0].json()["CID"] == cid


async def test_a_percent_encoded_cid_finds_the_record(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    assert (await client.get(f"/functions/%51{cid[1:]}")).json()["CID"] == cid


@pytest.mark.parametrize("tail", ["", "/manifest", "/wasm"])
async def test_the_raw_cid_of_one_file_is_distinguished_from_a_bundle(client: httpx2.AsyncClient, tail: str) -> None:
    cid = await deploy(client)
    response = await client.get(f"/functions/{spelled(cid, 0x55)}{tail}")
    assert (response.status_code, response.json()["code"]) == (404, "function-not-found")
    assert "the CID of a single file" in response.json()["detail"]


@pytest.mark.parametrize("tail", ["", "/manifest", "/wasm"])
async def test_an_unknown_cid_is_not_found(client: httpx2.AsyncClient, context: Context, tail: str) -> None:
    cid = await deploy(client)
    for unknown in (UNKNOWN, (await file_cid(context, cid, "manifest.json")).text):
        response = await client.get(f"/functions/{unknown}{tail}")
        assert (response.status_code, response.json()["code"]) == (404, "function-not-found")


WRONG_CIDS = {
    "upper case": spelled(UNKNOWN, 0x70).upper(),
    "base58 with 0": UNKNOWN[:-1] + "0",
    "identity": "bafkqaaa",
    "a byte too few": UNKNOWN[:-1],
    "5 KB": "Qm" + "x" * 5_000,
    "another codec": spelled(UNKNOWN, 0x71),
    "another text": "manifest.json",
    "NUL": "%00",
    "a slash": "%2F",
    "not UTF-8": "%FF",
    "dots": "%2E%2E",
}


async def test_another_text_than_a_cid_is_refused(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for row, wrong in WRONG_CIDS.items():
        for tail in ("", "/manifest", "/wasm"):
            with subtests.test(row, tail=tail):
                response = await client.get(f"/functions/{wrong}{tail}")
                assert response.status_code == 400
                assert response.json()["code"] in {"invalid-cid", "invalid-parameter"}
                assert response.json()["errors"][0]["parameter"] == "cid"


@pytest.mark.parametrize("sample", ["own-hello", "own-threshold", "own-big"])
@pytest.mark.parametrize("what", FILES)
async def test_a_file_comes_back_byte_by_byte(client: httpx2.AsyncClient, sample: str, what: str) -> None:
    cid = await deploy_sample(client, sample)
    for each in (cid, spelled(cid, 0x70)):
        response = await client.get(f"/functions/{each}/{what}")
        assert (response.status_code, response.headers["content-type"]) == (200, TYPES[what])
        assert response.content == (SAMPLES / sample / FILES[what]).read_bytes()


@pytest.mark.parametrize("what", FILES)
async def test_a_file_is_cacheable_for_ever(client: httpx2.AsyncClient, context: Context, what: str) -> None:
    cid = await deploy_sample(client, "own-big")
    target = f"/functions/{cid}/{what}"
    whole = await client.get(target)
    etag = f'"{(await file_cid(context, cid, FILES[what])).text}"'
    assert (whole.headers["etag"], whole.headers["cache-control"]) == (etag, IMMUTABLE)
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in whole.headers["content-security-policy"]

    for known in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        unchanged = await client.get(target, headers={"if-none-match": known})
        assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", etag)
    assert (await client.get(target, headers={"if-none-match": '"x"'})).status_code == 200

    head = await client.head(target)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-length", "content-type", "etag", "cache-control", "accept-ranges"):
        assert head.headers[name] == whole.headers[name]


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("0-0", 0, 1), ("1-", 1, None), ("-5", -5, None), ("2-9", 2, 10), ("3-99999999", 3, None)],
)
@pytest.mark.parametrize("what", FILES)
async def test_a_range_is_a_part(
    client: httpx2.AsyncClient, what: str, asked: str, start: int, end: int | None
) -> None:
    cid = await deploy_sample(client, "own-big")
    data = (SAMPLES / "own-big" / FILES[what]).read_bytes()
    response = await client.get(f"/functions/{cid}/{what}", headers={"range": f"bytes={asked}"})
    assert (response.status_code, response.content) == (206, data[start:end])
    first = start % len(data)
    assert response.headers["content-range"] == f"bytes {first}-{first + len(response.content) - 1}/{len(data)}"


@pytest.mark.parametrize("asked", ["bytes=99999999-", "bytes=5-2", "bytes=x", "nonsense"])
async def test_another_range_is_not_satisfiable(client: httpx2.AsyncClient, asked: str) -> None:
    cid = await deploy(client)
    response = await client.get(f"/functions/{cid}/manifest", headers={"range": asked})
    assert (response.status_code, response.json()["code"]) == (416, "range-not-satisfiable")
    assert response.headers["content-range"] == f"bytes */{len(Bundle().manifest)}"


@pytest.mark.parametrize("what", FILES)
async def test_a_damaged_file_is_an_integrity_problem(client: httpx2.AsyncClient, context: Context, what: str) -> None:
    cid = await deploy_sample(client, "own-hello")
    await damage(context, (await file_cid(context, cid, FILES[what])).digest)
    response = await client.get(f"/functions/{cid}/{what}")
    assert (response.status_code, response.json()["code"]) == (500, "integrity")
    assert "cache-control" not in response.headers


@pytest.mark.parametrize("part_of", ["the root", "the file"])
@pytest.mark.parametrize("what", FILES)
async def test_content_that_is_missing_is_an_integrity_problem(
    client: httpx2.AsyncClient, context: Context, what: str, part_of: str
) -> None:
    cid = await deploy_sample(client, "own-hello")
    gone = decode_cid(cid) if part_of == "the root" else await file_cid(context, cid, FILES[what])
    await remove(context, gone.digest)
    response = await client.get(f"/functions/{cid}/{what}")
    assert (response.status_code, response.json()["code"]) == (500, "integrity")
    assert (await client.get(f"/functions/{cid}")).status_code == 200


async def test_a_damaged_root_is_an_integrity_problem(client: httpx2.AsyncClient, context: Context) -> None:
    cid = await deploy(client)
    await damage(context, decode_cid(cid).digest)
    response = await client.get(f"/functions/{cid}/manifest")
    assert (response.status_code, response.json()["code"]) == (500, "integrity")


async def test_an_answer_breaks_off_where_its_content_is_damaged(client: httpx2.AsyncClient, context: Context) -> None:
    cid = await deploy(client, Bundle(wasm=wasm_of(1_500_000)))
    *_, last_leaf = await cids_below(context, await file_cid(context, cid, "function.wasm"))
    await damage(context, last_leaf.digest)
    with pytest.raises(Integrity, match="does not have the hash"):  # in process an exception is what breaks off
        await client.get(f"/functions/{cid}/wasm")


async def test_the_same_upload_again_repairs_damaged_content(client: httpx2.AsyncClient, context: Context) -> None:
    cid = await deploy(client)
    for each in await digests(context):
        await damage(context, each)
    assert (await client.get(f"/functions/{cid}/manifest")).status_code == 500
    assert await deploy(client) == cid
    assert (await client.get(f"/functions/{cid}/manifest")).content == Bundle().manifest


def wasm_of(size: int) -> bytes:
    """A module of different bytes all over: one custom section."""
    content = b"\1x" + b"".join(number.to_bytes(4) for number in range(size // 4))
    length, leb = len(content), b""
    while length > 0x7F:
        leb += bytes((length & 0x7F | 0x80,))
        length >>= 7
    return b"\0asm\1\0\0\0\0" + leb + bytes((length,)) + content
