"""A figure each for a login, a page of intents, and the upload of a bundle of 120 KB."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import httpx2

import intents
from muniment.evm.signature import address_of_key, personal_digest, sign
from ours import api_key, muniment
from samples import manifest
from scale import Scale
from server import Load, get, post

LOGIN, INTENTS, UPLOAD = "POST /users/authenticate", "GET /intents?limit=10", "POST /functions (120 KB)"
BUNDLE_BYTES = 120_000
BOUNDARY = "bench-boundary"
# A WebAssembly module of one custom section (core specification, section 5.5.3), which says nothing.
WASM_HEAD = b"\0asm\1\0\0\0"


def measure(scale: Scale, data: Path) -> dict[str, list[Load]]:
    """Operation to what each round has cost."""
    intents.fill(data, scale.intents)
    loads: dict[str, list[Load]] = {LOGIN: [], INTENTS: [], UPLOAD: []}
    numbers = iter(range(1_000, 10**9))
    with muniment(data) as service, httpx2.Client(base_url=service.url) as client:
        key = api_key(client)
        for number in range(scale.rounds + 1):
            requests = {
                LOGIN: _logins(client, islice(numbers, scale.logins)),
                INTENTS: [get("/intents?limit=10")] * scale.lists,
                UPLOAD: [_upload(each, key) for each in islice(numbers, scale.uploads)],
            }
            for operation, sent in requests.items():
                load = service.load(sent)
                if number:
                    loads[operation].append(load)
    return loads


def _logins(client: httpx2.Client, numbers: Iterable[int]) -> list[bytes]:
    """Logins of owners who have each just asked for a nonce."""
    logins: list[bytes] = []
    for number in numbers:
        key = number.to_bytes(32)
        address = str(address_of_key(key))
        nonce = client.post("/users/nonce", json={"address": address}).json()["nonce"]
        signature = str(sign(personal_digest(nonce.encode()), key))
        logins.append(post("/users/authenticate", json.dumps({"address": address, "signature": signature}).encode()))
    return logins


def _upload(number: int, key: str) -> bytes:
    """A bundle of a function that is not there yet."""
    described = json.dumps({**manifest(), "name": f"Benchmark {number}"}).encode()
    files = (("manifest.json", "application/json", described), ("function.wasm", "application/wasm", _wasm()))
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        f"Content-Type: {kind}\r\n\r\n".encode()
        + content
        + b"\r\n"
        for name, kind, content in files
    ]
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    return post("/functions", body, f"multipart/form-data; boundary={BOUNDARY}", f"x-api-key: {key}\r\n")


def _wasm() -> bytes:
    content = b"\4data" + os.urandom(BUNDLE_BYTES)
    return WASM_HEAD + b"\0" + leb128(len(content)) + content


def leb128(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def bare_upload(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Microseconds of what an upload cannot do without: the SHA-256 of its bytes, and writing them durably."""
    hashed, written, waited = "SHA-256 of the bundle, CPU", "a write and fsync of it, CPU", "the same by the clock"
    found: dict[str, list[float]] = {hashed: [], written: [], waited: []}
    content, times = os.urandom(BUNDLE_BYTES), 20
    for _ in range(rounds):
        started = time.process_time_ns()
        for _ in range(times):
            hashlib.sha256(content).digest()
        found[hashed].append((time.process_time_ns() - started) / 1_000 / times)
        started, started_clock = time.process_time_ns(), time.perf_counter_ns()
        for number in range(times):
            with (folder / f"bare-{number}").open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        found[written].append((time.process_time_ns() - started) / 1_000 / times)
        found[waited].append((time.perf_counter_ns() - started_clock) / 1_000 / times)
        for number in range(times):
            (folder / f"bare-{number}").unlink()  # so that each is a new file, as a block is
    return found
