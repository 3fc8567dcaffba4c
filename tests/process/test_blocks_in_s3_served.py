"""The service with its blocks in a bucket of a real S3 server: what clients see while the server has a fault."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import obstore
import pytest
from click.testing import CliRunner
from obstore.store import S3Store

from answers import answered, asked, ok
from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, register
from faulty_front import FORBIDDEN, SLOW_DOWN, Front, fronted
from muniment.cli.main import main
from muniment.protocol.ipfs.cid import decode_cid
from s3_server import KEY, SECRET, environment, patient, s3_server
from service import Service
from warm_sandbox import warm_sandbox

__all__ = ["patient", "warm_sandbox"]  # the fixtures

# A module of several blocks: a custom section without meaning (WebAssembly core specification, section 5.5.3).
CUSTOM = b"\1x" + os.urandom(600_000)
LARGE = Bundle("Large", wasm=b"\0asm\1\0\0\0\0" + bytes([0x80 | 0x42, 0x80 | 0x4F, 0x24]) + CUSTOM)
FAULTS = {
    "gone": ("close", "is not reached"),
    "503": (SLOW_DOWN, "answers 503"),
    "403": (FORBIDDEN, "refuses the credentials"),
    "silent": ("silence", "slow"),
}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with s3_server(tmp_path_factory.mktemp("s3")) as (port, _), fronted(port) as front:
        yield front


@pytest.fixture
def served(front: Front, tmp_path: Path) -> Iterator[Service]:
    """The service with a place in the bucket of its own. Its log is in a file."""
    front.set(None)
    front.requests.clear()
    keys = {"AWS_SECRET_ACCESS_KEY_FILE": str(tmp_path / "key"), "AWS_SECRET_ACCESS_KEY": ""}
    (tmp_path / "key").write_text(f"{SECRET}\n")
    place = {"MUNIMENT_BLOCKS_URL": f"s3://blocks/{tmp_path.name}", "MUNIMENT_LOG_FORMAT": "json"}
    service = Service(tmp_path / "data", environment=environment(front.port) | keys | place)
    with (tmp_path / "log").open("wb") as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            service.launch()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
    service.wait_until_ready()
    try:
        yield service
    finally:
        front.set(None)
        service.stop()


@pytest.fixture
async def client(served: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=served.url, timeout=60) as client:
        yield client


def store_of(front: Front, tmp_path: Path) -> S3Store:
    """The bucket, past the door."""
    return S3Store(
        "blocks", prefix=tmp_path.name, endpoint=f"http://127.0.0.1:{front.behind}", access_key_id=KEY,
        secret_access_key=SECRET, region="us-east-1", client_options={"allow_http": True},
    )  # fmt: skip


def keys_of(store: S3Store) -> list[str]:
    return sorted(item["path"] for page in obstore.list(store) for item in page)


async def upload(client: httpx2.AsyncClient, bundle: Bundle, api_key: str) -> httpx2.Response:
    return await client.post("/functions", files=bundle.files, headers={"x-api-key": api_key})


def refused(answer: httpx2.Response, reason: str) -> None:
    """503 with a reason that names S3, and neither its address nor its answer."""
    assert (answer.status_code, answer.json()["code"]) == (503, "storage-unavailable"), answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert reason in answer.json()["detail"]
    assert "127.0.0.1" not in answer.text
    assert "hidden-in-the-answer" not in answer.text


async def damaged(client: httpx2.AsyncClient, path: str) -> None:
    """What is stored for `path` is damaged. The request is repeated while the bucket is too slow for the service."""
    async with asyncio.timeout(60):
        while (answer := await client.get(path)).status_code == 503:
            await asyncio.sleep(1)
    assert (answer.status_code, answer.json()["code"]) == (500, "integrity")


async def ready(client: httpx2.AsyncClient, status: int) -> httpx2.Response:
    """The answer of `/readyz`, once it has this status."""
    until = time.monotonic() + 60
    while (answer := await client.get("/readyz")).status_code != status:
        assert time.monotonic() < until
        await asyncio.sleep(0.1)
    return answer


async def test_what_was_uploaded_is_in_the_bucket_and_is_read_whole_in_parts_and_as_car(
    client: httpx2.AsyncClient, front: Front, served: Service, tmp_path: Path
) -> None:
    cid = await deploy(client, LARGE)
    whole = await answered(client, "GET", f"/ipfs/{cid}/function.wasm")
    assert whole.content == LARGE.wasm
    bounds = {"range": "bytes=299990-300009"}
    part = await asked(client, "GET", f"/ipfs/{cid}/function.wasm", headers=bounds)
    assert (part.status_code, part.content) == (206, LARGE.wasm[299_990:300_010])
    await answered(client, "GET", f"/ipfs/{cid}", params={"format": "raw"})
    car = await answered(client, "GET", f"/ipfs/{cid}", params={"format": "car"})
    assert LARGE.wasm[-1000:] in car.content
    assert len(keys_of(store_of(front, tmp_path))) == 6
    assert not (served.data_dir / "blocks").exists()
    puts = [request for request in front.requests if request.startswith(b"PUT ")]
    assert len({request.split()[1] for request in puts}) == 6
    assert all(b"\r\nif-none-match: *" in request.lower() for request in puts)


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_the_server_is_503_for_content_alone_and_ends_with_the_fault(
    client: httpx2.AsyncClient, front: Front, tmp_path: Path, name: str
) -> None:
    fault, reason = FAULTS[name]
    cid, key = await deploy(client), await api_key_of(client, Wallet())
    await register(client, TriggerDraft(cid))
    front.set(fault)
    began = time.monotonic()
    refused(await upload(client, LARGE, key), reason)
    refused(await client.get(f"/ipfs/{cid}/manifest.json"), "S3 server")
    refused(await client.get(f"/ipfs/{cid}", params={"format": "car"}), "S3 server")
    assert time.monotonic() - began < 60
    assert "the block store does not answer" in (await ready(client, 503)).json()["detail"]
    await register(client, TriggerDraft(cid, version="1.0.7"))
    assert [each["name"] for each in ok(await client.get("/functions")).json()] == ["Hello"]
    front.set(None)
    await ready(client, 200)
    await answered(client, "POST", "/functions", files=LARGE.files, headers={"x-api-key": key})
    assert (await answered(client, "GET", f"/ipfs/{cid}/manifest.json")).content == Bundle().manifest
    log = (tmp_path / "log").read_text()
    assert "storage-unavailable" in log
    for secret in (SECRET, "hidden-in-the-answer", "internal-error", "Traceback"):
        assert secret not in log


async def test_an_upload_is_acknowledged_only_when_the_bucket_has_its_blocks(
    client: httpx2.AsyncClient, front: Front, tmp_path: Path
) -> None:
    key = await api_key_of(client, Wallet())
    front.set(SLOW_DOWN, only=b"PUT ")
    refused(await upload(client, LARGE, key), "answers 503")
    assert ok(await client.get("/functions")).json() == []
    assert keys_of(store_of(front, tmp_path)) == []
    front.set(None)
    await answered(client, "POST", "/functions", files=LARGE.files, headers={"x-api-key": key})
    assert len(keys_of(store_of(front, tmp_path))) == 6


@pytest.mark.timed
async def test_readers_of_a_server_that_hangs_do_not_wait_for_each_other_nor_hold_up_triggers(
    client: httpx2.AsyncClient, front: Front, served: Service
) -> None:
    cid = await deploy(client)
    front.set("silence")
    began = time.monotonic()
    await ready(client, 503)
    assert time.monotonic() - began < 5  # docs/run/running.md
    with ThreadPoolExecutor(200) as pool:
        began = time.monotonic()
        url = f"{served.url}/ipfs/{cid}/manifest.json"
        reads = [pool.submit(httpx2.get, url, timeout=60) for _ in range(200)]
        await asyncio.sleep(1)
        for number in range(20):
            asked = time.monotonic()
            await register(client, TriggerDraft(cid, version=f"1.0.{number}"))
            assert time.monotonic() - asked < 2
        answers = [await asyncio.wrap_future(read) for read in reads]
    # Sixteen threads wait once; 200 reads that wait one after the other would take a minute.
    assert time.monotonic() - began < 30
    for answer in answers:
        refused(answer, "S3 server")


@pytest.mark.parametrize("wrong", [b"{}", b"", bytes(3_000_000)], ids=["other", "empty", "huge"])
async def test_wrong_bytes_are_withheld_and_logged_until_the_next_upload_repairs_them(
    client: httpx2.AsyncClient, front: Front, tmp_path: Path, wrong: bytes
) -> None:
    cid, store = await deploy(client), store_of(front, tmp_path)
    digest = decode_cid(cid).digest.hex()
    obstore.put(store, f"{digest[:2]}/{digest[2:]}", wrong, mode="overwrite")
    for path in (f"/ipfs/{cid}/manifest.json", f"/ipfs/{cid}?format=raw", f"/ipfs/{cid}?format=car"):
        await damaged(client, path)
    assert digest in (tmp_path / "log").read_text()
    await deploy(client)
    assert (await answered(client, "GET", f"/ipfs/{cid}/manifest.json")).content == Bundle().manifest


async def test_a_block_that_the_bucket_lost_is_damage_and_not_an_absent_function(
    client: httpx2.AsyncClient, front: Front, tmp_path: Path
) -> None:
    cid, store = await deploy(client, LARGE), store_of(front, tmp_path)
    root = decode_cid(cid).digest.hex()
    obstore.delete(store, [key for key in keys_of(store) if key.replace("/", "") != root])
    await damaged(client, f"/ipfs/{cid}/manifest.json")


async def test_uploads_of_one_bundle_at_the_same_time_are_one_function(
    client: httpx2.AsyncClient, front: Front, tmp_path: Path
) -> None:
    keys = [await api_key_of(client, Wallet(number)) for number in (1, 2, 3)]
    answers = await asyncio.gather(
        *(answered(client, "POST", "/functions", files=LARGE.files, headers={"x-api-key": key}) for key in keys)
    )
    assert len({answer.json()["CID"] for answer in answers}) == 1
    assert len(keys_of(store_of(front, tmp_path))) == 6


def doctor(served: Service, front: Front, tmp_path: Path) -> dict[str, str]:
    """What the doctor says of the blocks of this service."""
    given = {**environment(front.port), "MUNIMENT_BLOCKS_URL": f"s3://blocks/{tmp_path.name}"}
    result = CliRunner().invoke(main, ["doctor", "--json", "--data-dir", str(served.data_dir)], env=given)
    (found,) = [each for each in json.loads(result.stdout)["findings"] if each["check"] == "blocks"]
    return found


@pytest.mark.usefixtures("warm_sandbox", "patient")
async def test_the_doctor_hashes_the_blocks_of_the_bucket_and_names_a_server_that_fails(
    client: httpx2.AsyncClient, front: Front, served: Service, tmp_path: Path
) -> None:
    cid, store = await deploy(client), store_of(front, tmp_path)
    made = sorted(served.data_dir.rglob("*"))
    assert await asyncio.to_thread(doctor, served, front, tmp_path) == {
        "check": "blocks", "level": "ok", "message": "the newest 3 match their hashes", "remedy": "",
    }  # fmt: skip
    front.set(FORBIDDEN)
    found = await asyncio.to_thread(doctor, served, front, tmp_path)
    assert (found["level"], "refuses the credentials" in found["message"]) == ("fail", True)
    assert "bucket" in found["remedy"]
    front.set(None)
    digest = decode_cid(cid).digest.hex()
    obstore.put(store, f"{digest[:2]}/{digest[2:]}", b"wrong", mode="overwrite")
    found = await asyncio.to_thread(doctor, served, front, tmp_path)
    assert (found["level"], digest in found["message"], "verify" in found["remedy"]) == ("fail", True, True)
    assert sorted(served.data_dir.rglob("*")) == made
