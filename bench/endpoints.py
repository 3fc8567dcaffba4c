"""The service over HTTP against a bare HTTP server that sends the same bytes, in the same run, taking turns."""

from __future__ import annotations

import base64
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import httpx

from muniment.evm.signature import personal_digest, sign
from samples import KEY, SIGNER, forged, manifest, signed_triggers
from server import HERE, Load, Server, get, post

ROUNDS = 5
COUNTS = {"GET /triggers/{sig}": 12_000, "GET /triggers?signer=…&limit=10": 8_000, "POST /triggers": 3_000}
ONE, LIST, CREATE = COUNTS
# Triggers that are there before anything is measured, registered through the API like all.
SEEDED = 3_000
_LIST_TARGET = f"/triggers?signer={SIGNER}&limit=10"
_EMPTY_WASM = b"\0asm\1\0\0\0"

Loads = dict[str, dict[str, list[Load]]]


def measure() -> Loads:
    """Operation to server (`muniment`, `bare`) to what each round has cost."""
    with tempfile.TemporaryDirectory() as folder:
        data, answers = Path(folder) / "data", Path(folder) / "answers.json"
        service = Server("-m", "muniment", "serve", "--port", "0", "--data-dir", str(data))
        with service, httpx.Client(base_url=service.url) as client:
            cid = _deployed(client)
            seeded = signed_triggers(range(SEEDED), cid)
            service.load([post("/triggers", body) for body in seeded])
            given = _checked_answers(client, cid, seeded)
            answers.write_text(json.dumps({name: _kept(answer) for name, answer in given.items()}), "utf-8")
            with Server(str(HERE / "bare.py"), str(answers)) as bare:
                _check_bare(bare.url, given)
                return _rounds({"muniment": service, "bare": bare}, _requests(cid, seeded))


def _deployed(client: httpx.Client) -> str:
    """The CID of the function, deployed as anybody does it."""
    nonce = client.post("/users/nonce", json={"address": SIGNER}).json()["nonce"]
    login = {"address": SIGNER, "signature": str(sign(personal_digest(nonce.encode()), KEY))}
    token = client.post("/users/authenticate", json=login).json()["token"]
    key = client.get("/users/api-key", headers={"x-auth-token": token}).json()["apiKey"]
    files = [
        ("file", ("manifest.json", json.dumps(manifest()).encode(), "application/json")),
        ("file", ("function.wasm", _EMPTY_WASM, "application/wasm")),
    ]
    answer = client.post("/functions", files=files, headers={"x-api-key": key})
    assert answer.status_code == 200, answer.text
    return answer.json()["CID"]


def _checked_answers(client: httpx.Client, cid: str, seeded: list[bytes]) -> dict[str, httpx.Response]:
    """One answer of each operation, after a look at whether it is right."""
    signed = [json.loads(body) for body in seeded]
    one = client.get(f"/triggers/{signed[5]['sig']}")
    assert one.json()["sig"] == signed[5]["sig"]
    assert one.json()["executionFeeLimit"] == "5"
    listed = client.get(_LIST_TARGET)
    assert len(listed.json()) == 10
    created = [each["createdAt"] for each in listed.json()]
    assert created == sorted(created, reverse=True)
    new = signed_triggers([SEEDED], cid)[0]
    headers = {"content-type": "application/json"}
    posted = client.post("/triggers", content=new, headers=headers)
    assert posted.status_code == 200, posted.text
    assert client.get(f"/triggers/{posted.json()['sig']}").json() == posted.json()
    refused = client.post("/triggers", content=forged(cid), headers=headers)
    assert refused.json()["code"] == "signature-mismatch"
    return {"GET /triggers/": one, "GET /triggers": listed, "POST /triggers": posted}


def _kept(answer: httpx.Response) -> list[object]:
    headers = [pair for pair in answer.headers.multi_items() if pair[0] != "date"]  # the server adds its own
    return [headers, base64.b64encode(answer.content).decode()]


def _check_bare(url: str, given: dict[str, httpx.Response]) -> None:
    """The ceiling sends the same status, headers and bytes."""
    for answer in given.values():
        request = answer.request
        same = httpx.request(request.method, url + request.url.raw_path.decode(), content=request.content)
        assert same.content == answer.content
        assert {*same.headers.multi_items()} - {("date", same.headers["date"])} == {
            pair for pair in answer.headers.multi_items() if pair[0] != "date"
        }


def _requests(cid: str, seeded: list[bytes]) -> dict[str, Callable[[], list[bytes]]]:
    """Operation to a maker of the next round's requests; those that create are new each time."""
    ones = cycle([get(f"/triggers/{json.loads(body)['sig']}") for body in seeded])
    numbers: Iterator[int] = iter(range(SEEDED + 1, 10**9))
    return {
        ONE: lambda: list(islice(ones, COUNTS[ONE])),
        LIST: lambda: [get(_LIST_TARGET)] * COUNTS[LIST],
        CREATE: lambda: [post("/triggers", body) for body in signed_triggers(islice(numbers, COUNTS[CREATE]), cid)],
    }


def _rounds(servers: dict[str, Server], requests: dict[str, Callable[[], list[bytes]]]) -> Loads:
    loads: Loads = {operation: defaultdict(list) for operation in COUNTS}
    for number in range(ROUNDS + 1):
        for operation, make in requests.items():
            sent = make()
            for name, server in servers.items():
                load = server.load(sent)
                if number:  # the first round warms up
                    loads[operation][name].append(load)
    return loads
