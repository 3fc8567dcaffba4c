"""Muniment as its users run it, and what a benchmark has to tell it before it can be measured."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx2

from muniment.evm.signature import personal_digest, sign
from samples import KEYS, SIGNER, SIGNERS, manifest
from server import Server, post

# The load generator is one client, and asks as fast as it can.
NO_LIMITS = {f"MUNIMENT_RATE_LIMIT_{policy}": "off" for policy in ("CLIENT", "LOGIN", "OWNER", "STOP")}
_LOG_SECONDS_MAX = 900.0
_EMPTY_WASM = b"\0asm\1\0\0\0"
_JSON = {"content-type": "application/json"}


def muniment(data: Path, *, workers: int = 1, database_url: str | None = None, has_log: bool = True) -> Server:
    """`muniment serve` with its release settings but without rate limits; SQLite in `data` unless a URL is given.

    Without a log for what is only there to be copied: a copy changes the numbers by which the log knows its records.
    """
    changed = {"MUNIMENT_DATABASE_URL": database_url} if database_url else {}
    if not has_log:
        changed["MUNIMENT_TLOG"] = "off"
    return Server([*serve_command(data), "--workers", str(workers)], NO_LIMITS | changed)


def wait_for_log(client: httpx2.Client, triggers: int) -> None:
    """Wait until the log has the triggers that were there before it. It takes half of the process meanwhile."""
    deadline = time.monotonic() + _LOG_SECONDS_MAX
    while not (epochs := client.get("/log").json()["epochs"]) or epochs[0]["size"] <= triggers:
        assert time.monotonic() < deadline, epochs
        time.sleep(1)


def serve_command(data: Path) -> list[str]:
    """The command of a service on a free port, with `data` as its directory."""
    return [sys.executable, "-m", "muniment", "serve", "--port", "0", "--data-dir", str(data)]


def api_key(client: httpx2.Client, number: int = 0) -> str:
    """The API key of a signer, the first unless another is asked for, after a login."""
    address, key = SIGNERS[number], KEYS[number]
    nonce = client.post("/users/nonce", json={"address": address}).json()["nonce"]
    login = {"address": address, "signature": str(sign(personal_digest(nonce.encode()), key))}
    token = client.post("/users/authenticate", json=login).json()["token"]
    return client.get("/users/api-key", headers={"x-auth-token": token}).json()["apiKey"]


def deploy(client: httpx2.Client) -> str:
    """The CID of the benchmark's function, deployed as anybody does it."""
    files = [
        ("file", ("manifest.json", json.dumps(manifest()).encode(), "application/json")),
        ("file", ("function.wasm", _EMPTY_WASM, "application/wasm")),
    ]
    answer = client.post("/functions", files=files, headers={"x-api-key": api_key(client)})
    assert answer.status_code == 200, answer.text
    return answer.json()["CID"]


def register(service: Server, bodies: list[bytes]) -> None:
    """Register triggers through the API."""
    service.load([post("/triggers", body) for body in bodies])


def check_answers(
    client: httpx2.Client, seeded: list[bytes], new: bytes, forged: bytes
) -> Mapping[str, httpx2.Response]:
    """One answer of each operation, after a look at whether it is right, and at whether a forged signature is not."""
    signed = [json.loads(body) for body in seeded]
    one = client.get(f"/triggers/{signed[5]['sig']}")
    assert one.json()["sig"] == signed[5]["sig"], one.text
    assert one.json()["executionFeeLimit"] == "5"
    listed = client.get(f"/triggers?signer={SIGNER}&limit=10")
    assert len(listed.json()) == 10
    assert {each["signer"] for each in listed.json()} == {SIGNER}
    created = [each["createdAt"] for each in listed.json()]
    assert created == sorted(created, reverse=True)
    posted = client.post("/triggers", content=new, headers=_JSON)
    assert posted.status_code == 200, posted.text
    assert client.get(f"/triggers/{posted.json()['sig']}").json() == posted.json()
    refused = client.post("/triggers", content=forged, headers=_JSON)
    assert refused.json()["code"] == "signature-mismatch", refused.text
    return {"GET /triggers/": one, "GET /triggers": listed, "POST /triggers": posted}
