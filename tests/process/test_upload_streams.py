"""Uploads as they come over a network: slow, cut off, without a length, too large, many at once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from answers import ok
from builders import Bundle, Wallet, api_key_of, log_in
from connection import Connection
from forms import FORM, bundle_form, part
from muniment.service.running.settings import MIB
from service import Service

UPLOADS = 8
# What the process may take beyond its size after a first upload, while eight bundles of 16 MiB arrive at once: two
# at a time are in memory twice while they are checked. Of that next to nothing may stay.
MEMORY_BYTES_MAX = 88 * MIB
LEFT_BYTES_MAX = 16 * MIB
# Half of those who ask meanwhile are answered so soon, although the machine may be busy with other things too.
WAIT_SECONDS_MAX = 3


def large(number: int, size: int) -> Bundle:
    """A bundle whose module is one custom section and has just this size."""
    room = size - 8 - 1 - 4  # a length of four LEB128 bytes
    length = bytes((room >> shift & 0x7F) | (0x80 if shift < 21 else 0) for shift in (0, 7, 14, 21))
    content = b"\1x" + number.to_bytes(4) + bytes(range(256)) * (room // 256 + 1)
    return Bundle(f"Large {number}", wasm=b"\0asm\1\0\0\0\0" + length + content[:room])


def head(key: str, *more: str, length: int | None = None) -> bytes:
    sized = f"Content-Length: {length}" if length is not None else "Transfer-Encoding: chunked"
    lines = ["POST /functions HTTP/1.1", "Host: test", f"x-api-key: {key}", f"Content-Type: {FORM}", sized, *more]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as made:
        yield made


def block_files(service: Service) -> list[Path]:
    return [path for path in (service.data_dir / "blocks").rglob("*") if path.is_file()]


def spools(service: Service) -> list[str]:
    """Files without a name that the process has open beside the blocks."""
    found: list[str] = []
    for link in Path(f"/proc/{service.pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue
        if str(service.data_dir / "blocks") in target:
            found.append(target)
    return found


async def until(what: object, seconds: float = 60) -> None:
    """Wait until `what()` holds."""
    assert callable(what)
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it does not come to be"
        await asyncio.sleep(0.02)


async def start_upload(service: Service, key: str, body: bytes, *, without: int) -> Connection:
    """An upload of which all but the last `without` bytes are sent; the service has looked at the key."""
    connection = await Connection.open(service.url)
    await connection.send(head(key, "Expect: 100-continue", length=len(body)))
    assert (await connection.answer()).status == 100
    await connection.send(body[:-without])
    return connection


@pytest.mark.parametrize("goes", ["closes", "crashes"])
async def test_a_client_gone_at_99_percent_leaves_nothing(
    service: Service, client: httpx2.AsyncClient, goes: str
) -> None:
    key = await api_key_of(client, Wallet())
    connection = await start_upload(service, key, bundle_form(large(1, 3 * MIB)), without=30_000)
    await until(lambda: spools(service))
    if goes == "closes":
        await connection.close()
    else:
        connection.abort()
    await until(lambda: not spools(service))
    assert ok(await client.get("/functions")).json() == []
    assert block_files(service) == []


async def test_a_client_gone_at_99_percent_leaves_nothing_after_a_crash_either(
    service: Service, client: httpx2.AsyncClient
) -> None:
    key = await api_key_of(client, Wallet())
    connection = await start_upload(service, key, bundle_form(large(1, 3 * MIB)), without=30_000)
    await until(lambda: spools(service))
    service.kill()
    connection.abort()
    service.start()
    async with httpx2.AsyncClient(base_url=service.url) as again:
        assert ok(await again.get("/functions")).json() == []
    assert block_files(service) == []


async def test_a_body_without_a_length_is_taken(client: httpx2.AsyncClient) -> None:
    body = bundle_form(large(1, 2 * MIB))

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 100_000):
            yield body[at : at + 100_000]

    headers = {"x-api-key": await api_key_of(client, Wallet()), "content-type": FORM}
    response = await client.post("/functions", content=pieces(), headers=headers)
    assert response.status_code == 200
    content = ok(await client.get(f"/functions/{response.json()['CID']}/wasm")).content
    assert content == large(1, 2 * MIB).wasm


async def test_64_megabytes_are_refused_by_their_announced_length(service: Service, client: httpx2.AsyncClient) -> None:
    connection = await Connection.open(service.url)
    await connection.send(head(await api_key_of(client, Wallet()), length=64 * MIB))
    answer = await connection.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    await connection.close()
    assert block_files(service) == []


async def test_an_upload_without_a_length_is_not_read_to_its_end(service: Service, client: httpx2.AsyncClient) -> None:
    request = head(await api_key_of(client, Wallet()))
    answer, sent = await asyncio.to_thread(send_endlessly, service, request, 96 * MIB)
    assert answer.startswith(b"HTTP/1.1 413 ")
    # The limit is 16 MiB, and as the answer must arrive 32 more are dropped; the rest is in buffers of the two kernels.
    assert sent < 64 * MIB
    assert block_files(service) == []


def send_endlessly(service: Service, request: bytes, size: int) -> tuple[bytes, int]:
    """What comes back while a module is sent, as a client that goes on sending sees it; how much it sent."""
    first, chunk, sent = part("function.wasm", b"\0asm\1\0\0\0")[:-2], b"10000\r\n" + b"x" * 0x10000 + b"\r\n", 0
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(request + b"%x\r\n%s\r\n" % (len(first), first))
        with suppress(ConnectionError):
            while sent < size:
                connection.sendall(chunk)
                sent += 0x10000
        return connection.recv(4096), sent


async def test_an_upload_finishes_although_its_key_is_rotated(service: Service, client: httpx2.AsyncClient) -> None:
    key = await api_key_of(client, Wallet())
    body = bundle_form(Bundle())
    connection = await start_upload(service, key, body, without=200)
    token = {"x-auth-token": await log_in(client, Wallet())}
    rotated = await client.post("/users/api-key/rotate", json={"graceSeconds": 0}, headers=token)
    assert rotated.json()["apiKey"] != key
    await connection.send(body[-200:])
    assert (await connection.answer()).status == 200
    await connection.close()
    again = await client.post("/functions", content=body, headers={"x-api-key": key, "content-type": FORM})
    assert again.status_code == 403


async def test_others_are_served_while_uploads_are_under_way(service: Service, client: httpx2.AsyncClient) -> None:
    key = await api_key_of(client, Wallet())
    bodies = [bundle_form(Bundle(f"Slow {number}")) for number in range(20)]
    slow = [await start_upload(service, key, body, without=200) for body in bodies]
    for _ in range(50):  # if these had to wait for the uploads, the client would give up
        assert ok(await client.get("/functions")).json() == []
    for connection, body in zip(slow, bodies, strict=True):
        await connection.send(body[-200:])
        assert (await connection.answer()).status == 200
        await connection.close()
    assert len(ok(await client.get("/functions?limit=100")).json()) == 20


def resident_bytes(service: Service, field: str = "VmRSS") -> int:
    """Memory of the process; by `VmHWM` the most that it has had resident since it was last made to forget it."""
    (line,) = [line for line in Path(f"/proc/{service.pid}/status").read_text().splitlines() if field in line]
    return int(line.split()[1]) * 1024


def forget_peak(service: Service) -> None:
    Path(f"/proc/{service.pid}/clear_refs").write_text("5")  # proc(5)


@pytest.mark.timed
async def test_large_uploads_that_end_together_take_bounded_memory(
    service: Service, client: httpx2.AsyncClient
) -> None:
    key = await api_key_of(client, Wallet())
    headers = {"x-api-key": key, "content-type": FORM}
    first = await client.post("/functions", content=bundle_form(large(0, 2 * MIB)), headers=headers)
    assert first.status_code == 200
    forget_peak(service)
    before = resident_bytes(service)
    bodies = [bundle_form(large(number, 16 * MIB)) for number in range(1, UPLOADS + 1)]
    keys = [
        await api_key_of(client, Wallet(number)) for number in range(1, UPLOADS + 1)
    ]  # a creator has one turn at a time
    uploads = [await start_upload(service, each, body, without=1) for each, body in zip(keys, bodies, strict=True)]
    for upload in uploads:
        await upload.send(b"\n")
    answers = asyncio.gather(*(upload.answer() for upload in uploads))
    waits: list[float] = []
    while not answers.done():
        asked = time.monotonic()
        assert (await client.get("/healthz")).status_code == 200
        waits.append(time.monotonic() - asked)
        await asyncio.sleep(0.02)
    assert [answer.status for answer in await answers] == [200] * UPLOADS
    assert resident_bytes(service, "VmHWM") - before < MEMORY_BYTES_MAX
    await until(lambda: resident_bytes(service) - before < LEFT_BYTES_MAX)
    assert sorted(waits)[len(waits) // 2] < WAIT_SECONDS_MAX
    await until(lambda: not spools(service))
    for upload in uploads:
        await upload.close()
