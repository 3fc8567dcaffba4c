"""POST /functions: the form, the credential and the record."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from builders import EMPTY_WASM, SAMPLES, Bundle, Wallet, api_key_of, deploy, log_in
from conftest import Clock
from forms import BOUNDARY, END, FORM, bundle_form, headed, part
from muniment.service.running.settings import MIB

NothingStored = Callable[[], Any]
BUNDLE = Bundle()
MANIFEST, MODULE = part("manifest.json", BUNDLE.manifest), part("function.wasm", BUNDLE.wasm)


async def upload(client: httpx2.AsyncClient, body: bytes, content_type: str = FORM, **headers: str) -> httpx2.Response:
    key = await api_key_of(client, Wallet())
    return await client.post(
        "/functions", content=body, headers={"x-api-key": key, "content-type": content_type, **headers}
    )


def sample_form(name: str) -> bytes:
    files = [part(file, (SAMPLES / name / file).read_bytes()) for file in ("function.wasm", "manifest.json")]
    return b"".join(files) + END


def code(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


async def test_the_answer_is_the_record(client: httpx2.AsyncClient) -> None:
    headers = {"x-api-key": await api_key_of(client, Wallet(5)), "content-type": FORM}
    response = await client.post("/functions", content=sample_form("own-hello"), headers=headers)
    assert response.status_code == 200
    assert list(response.json().items()) == [
        ("CID", "QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4"),
        ("name", "Hello"),
        ("version", "1.0.0"),
        ("description", "Logs one line"),
        ("createdAt", "2026-11-20T19:48:00.123Z"),
        ("creator", Wallet(5).address),
    ]


@pytest.mark.parametrize("sample", ["own-hello", "own-threshold", "own-big"])
async def test_a_sample_bundle_gets_its_known_cid(client: httpx2.AsyncClient, sample: str) -> None:
    known = json.loads((SAMPLES / sample / "cids.json").read_bytes())["cids"]["a"]["root"]
    response = await upload(client, sample_form(sample))
    assert response.json()["CID"] == known


async def test_the_form_of_the_deploy_cli_is_taken(client: httpx2.AsyncClient) -> None:
    body = bundle_form(BUNDLE)
    response = await upload(client, body, **{"content-length": str(len(body))})
    assert (response.status_code, response.json()["name"]) == (200, "Hello")


async def test_a_base_url_that_ends_in_a_slash_is_served(client: httpx2.AsyncClient) -> None:
    headers = {"x-api-key": await api_key_of(client, Wallet()), "content-type": FORM}
    response = await client.post("http://test//functions", content=bundle_form(BUNDLE), headers=headers)
    assert response.request.url.raw_path == b"//functions"
    assert response.status_code == 200


async def test_a_body_without_a_length_is_taken(client: httpx2.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in bundle_form(BUNDLE):
            yield bytes((byte,))

    headers = {"x-api-key": await api_key_of(client, Wallet()), "content-type": FORM}
    response = await client.post("/functions", content=pieces(), headers=headers)
    assert "content-length" not in response.request.headers
    assert response.status_code == 200


PLAIN = b'Content-Disposition: form-data; name="file"; filename="manifest.json"'
FORMS = {
    "no file": END,
    "one file": MANIFEST + END,
    "three files": MANIFEST + MODULE + part("more.txt", b"") + END,
    "another field name": part("manifest.json", BUNDLE.manifest, name="files") + MODULE + END,
    "the manifest twice": MANIFEST + MANIFEST + MODULE + END,
    "another letter case": part("Manifest.json", BUNDLE.manifest) + MODULE + END,
    "a path": MANIFEST + part("../function.wasm", EMPTY_WASM) + END,
    "a NUL in a name": MANIFEST + part("function.wasm\0.png", EMPTY_WASM) + END,
    "filename* beside filename": headed(PLAIN + b"; filename*=UTF-8''x", BUNDLE.manifest) + MODULE + END,
    "never closed": MANIFEST + MODULE,
    "1 MB of part headers": headed(b"X-A: b\r\n" * 125_000 + PLAIN, BUNDLE.manifest) + MODULE + END,
    "20,000 tiny parts": part("manifest.json", b"") * 20_000 + END,
}


@pytest.mark.one_engine
async def test_another_form_is_refused(
    client: httpx2.AsyncClient, nothing_stored: NothingStored, subtests: pytest.Subtests
) -> None:
    headers = {"x-api-key": await api_key_of(client, Wallet()), "content-type": FORM}
    async with nothing_stored():
        for row, form in FORMS.items():
            with subtests.test(row):
                response = await client.post("/functions", content=form, headers=headers)
                assert code(response) == (400, "invalid-upload")


OTHER_TYPES = {
    "multipart/form-data": (400, "invalid-upload"),
    f"{FORM}; boundary={BOUNDARY}": (400, "invalid-upload"),
    "multipart/form-data; boundary=other": (400, "invalid-upload"),
    "application/json": (415, "unsupported-media-type"),
    "multipart/mixed; boundary=x": (415, "unsupported-media-type"),
}


@pytest.mark.one_engine
async def test_another_content_type_is_refused(client: httpx2.AsyncClient, nothing_stored: NothingStored) -> None:
    key = await api_key_of(client, Wallet())
    async with nothing_stored():
        for content_type, expected in OTHER_TYPES.items():
            headers = {"x-api-key": key, "content-type": content_type}
            response = await client.post("/functions", content=bundle_form(BUNDLE), headers=headers)
            assert code(response) == expected, content_type


@pytest.mark.one_engine
async def test_a_compressed_body_is_refused(client: httpx2.AsyncClient, nothing_stored: NothingStored) -> None:
    headers = {
        "x-api-key": await api_key_of(client, Wallet()), "content-type": FORM, "content-encoding": "gzip",
    }  # fmt: skip
    async with nothing_stored():
        response = await client.post("/functions", content=bundle_form(BUNDLE), headers=headers)
    assert code(response) == (415, "unsupported-media-type")


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("name", "size"), [("manifest.json", 256 * 1024 + 1), ("manifest.json", 5 * MIB), ("function.wasm", 16 * MIB + 1)]
)
async def test_a_file_that_is_too_large_is_refused(
    client: httpx2.AsyncClient, nothing_stored: NothingStored, name: str, size: int
) -> None:
    headers = {"x-api-key": await api_key_of(client, Wallet()), "content-type": FORM}
    async with nothing_stored():
        response = await client.post("/functions", content=part(name, b" " * size) + END, headers=headers)
    assert code(response) == (413, "body-too-large")
    assert name in response.json()["detail"]


@pytest.mark.one_engine
async def test_an_upload_without_a_key_is_refused(client: httpx2.AsyncClient, nothing_stored: NothingStored) -> None:
    async with nothing_stored():
        response = await client.post("/functions", files=BUNDLE.files)
    assert code(response) == (401, "missing-credential")


async def test_a_key_in_the_query_string_is_ignored(client: httpx2.AsyncClient, nothing_stored: NothingStored) -> None:
    key = await api_key_of(client, Wallet())
    async with nothing_stored():
        response = await client.post(f"/functions?x-api-key={key}&apiKey={key}", files=BUNDLE.files)
    assert code(response) == (401, "missing-credential")


@pytest.mark.one_engine
async def test_a_key_altered_by_one_character_is_refused(
    client: httpx2.AsyncClient, nothing_stored: NothingStored
) -> None:
    key = await api_key_of(client, Wallet())
    async with nothing_stored():
        for place in (0, 4, 12, 13, 30, 53, 54, 60, -1):
            altered = list(key)
            altered[place] = "2" if key[place] == "1" else "1"
            response = await client.post("/functions", files=BUNDLE.files, headers={"x-api-key": "".join(altered)})
            assert code(response) == (403, "invalid-api-key"), place


@pytest.mark.one_engine
async def test_another_text_than_a_key_is_refused(client: httpx2.AsyncClient, nothing_stored: NothingStored) -> None:
    key = await api_key_of(client, Wallet())
    async with nothing_stored():
        for other in (key.upper(), key + "0", key[:-1], "", "x"):
            response = await client.post("/functions", files=BUNDLE.files, headers={"x-api-key": other})
            assert code(response) == (403, "invalid-api-key"), other


@pytest.mark.one_engine
async def test_two_different_keys_are_refused(client: httpx2.AsyncClient, nothing_stored: NothingStored) -> None:
    keys = [("x-api-key", await api_key_of(client, Wallet(number))) for number in (1, 2)]
    async with nothing_stored():
        response = await client.post("/functions", files=BUNDLE.files, headers=keys)
    assert code(response) == (400, "conflicting-credentials")


async def test_a_rotated_key_is_good_in_its_grace_and_no_longer(client: httpx2.AsyncClient, clock: Clock) -> None:
    old = {"x-api-key": await api_key_of(client, Wallet())}
    token = {"x-auth-token": await log_in(client, Wallet())}
    new = await client.post("/users/api-key/rotate", json={"graceSeconds": 60}, headers=token)
    assert (await client.post("/functions", files=BUNDLE.files, headers=old)).status_code == 200
    clock.advance(seconds=60)
    assert code(await client.post("/functions", files=BUNDLE.files, headers=old)) == (403, "invalid-api-key")
    headers = {"x-api-key": new.json()["apiKey"]}
    assert (await client.post("/functions", files=BUNDLE.files, headers=headers)).status_code == 200


async def test_a_refused_upload_does_not_stand_in_the_way(client: httpx2.AsyncClient) -> None:
    assert (await upload(client, MANIFEST + part("function.wasm", b"<html>") + END)).status_code == 400
    assert await deploy(client, BUNDLE) == (await upload(client, bundle_form(BUNDLE))).json()["CID"]


@pytest.mark.long
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_an_upload_that_waits_for_others_of_its_creator_gets_a_time_to_retry(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, release = await api_key_of(client, Wallet()), threading.Event()

    def check(_: object) -> None:
        release.wait(60)

    monkeypatch.setattr("muniment.protocol.functions.rules.check_wasm", check)  # no module is sure to take so long
    uploads = [
        asyncio.create_task(
            client.post("/functions", files=Bundle(name=f"At once {n}").files, headers={"x-api-key": key})
        )
        for n in range(3)
    ]
    await asyncio.wait(uploads, return_when=asyncio.FIRST_COMPLETED)
    release.set()
    answers = sorted([(each.status_code, each) for each in await asyncio.gather(*uploads)], key=lambda pair: pair[0])
    assert [status for status, _ in answers] == [200, 200, 503]  # the next in turn goes on waiting
    refused = answers[-1][1]
    assert (refused.json()["code"], refused.headers["retry-after"]) == ("too-many-uploads", "5")
    assert len((await client.get("/functions")).json()) == 2
