"""Processes of servers: Muniment, and the peer in `peers`; the load that they get, and the CPU time that they take."""

from __future__ import annotations

import base64
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

from muniment.protocol.evm.signature import personal_digest, sign
from samples import KEYS, SIGNER, SIGNERS, manifest

HERE = Path(__file__).parent
PEER = HERE / "peers"
CURVES = {"peer": "ethers", "peer, native curve": "secp256k1"}
CONNECTIONS = 32
_LOAD_SECONDS_MAX = 120
# The load generator is one client, and asks as fast as it can.
NO_LIMITS = {f"MUNIMENT_RATE_LIMIT_{policy}": "off" for policy in ("CLIENT", "LOGIN", "OWNER", "STOP")}
_LOG_SECONDS_MAX = 900.0
_EMPTY_WASM = b"\0asm\1\0\0\0"
_JSON = {"content-type": "application/json"}
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Load:
    """One run of the load generator: seconds by the clock, and CPU seconds of the server."""

    requests: int
    wall_seconds: float
    cpu_seconds: float

    @property
    def per_cpu_second(self) -> float:
        """Requests per second of the server's CPU time."""
        return self.requests / self.cpu_seconds

    @property
    def per_wall_second(self) -> float:
        """Requests per second by the clock."""
        return self.requests / self.wall_seconds


class Server:
    """A command that prints `listens on URL` when its port is open."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
        self._environment |= {
            "MUNIMENT_LOG_LEVEL": "warning",
            "MUNIMENT_RATE_LIMIT_OWNER": "off",
            "NODE_ENV": "production",
            **(environment or {}),
        }

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, env=self._environment)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert "listens on " in said, f"{self._command} did not start: {said!r}"
        self.url = said.partition("listens on ")[2].split()[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        self._process.terminate()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """User and system time of the process, all threads."""
        return cpu_seconds(self.pid)

    def load(self, requests: list[bytes], connections: int = CONNECTIONS) -> Load:
        """Send each request once; every answer must be 200."""
        port = self.url.rpartition(":")[2]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump([base64.b64encode(each).decode() for each in requests], file)
            file.flush()
            before = self.cpu_seconds()
            command = [sys.executable, str(HERE / "load.py"), port, str(connections), file.name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_LOAD_SECONDS_MAX)
            spent = self.cpu_seconds() - before
        said = json.loads(done.stdout)
        assert said["failed"] == 0, said["first"]
        return Load(len(requests), said["seconds"], spent)


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process, threads that have ended included, by its own clock: it counts nanoseconds.

    clock_getcpuclockid(3). In /proc the same time is in ticks of a hundredth of a second, or of living threads only.
    """
    clock = ctypes.c_int()
    failure = _libc.clock_getcpuclockid(pid, ctypes.byref(clock))
    if failure:
        raise OSError(failure, os.strerror(failure))
    return time.clock_gettime_ns(clock.value) / 1e9


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n\r\n".encode()


def post(target: str, body: bytes, content_type: str = "application/json", more: str = "") -> bytes:
    """A POST; `more` is further header lines, each with its end."""
    head = f"POST {target} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {content_type}\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def muniment(data: Path, *, database_url: str | None = None, has_log: bool = True) -> Server:
    """`muniment serve` without rate limits; SQLite in `data` unless a URL is given.

    A registry that is only copied has no log, because a copy changes the numbers of its rows.
    """
    changed = {"MUNIMENT_DATABASE_URL": database_url} if database_url else {}
    if has_log:
        changed["MUNIMENT_TLOG_NAME"] = "bench.example.org"
    return Server(serve_command(data), NO_LIMITS | changed)


def wait_for_log(client: httpx2.Client, triggers: int) -> None:
    """Wait until the log has all stored triggers. It takes half of the process meanwhile."""
    deadline = time.monotonic() + _LOG_SECONDS_MAX
    while not (epochs := client.get("/log").json()["epochs"]) or epochs[0]["size"] <= triggers:
        assert time.monotonic() < deadline, epochs
        time.sleep(1)


def serve_command(data: Path) -> list[str]:
    """The command of a service on a free port, with `data` as its directory."""
    return [sys.executable, "-m", "muniment", "serve", "--port", "0", "--data-dir", str(data)]


def api_key(client: httpx2.Client, number: int = 0) -> str:
    """The API key of a signer, after a login."""
    address, key = SIGNERS[number], KEYS[number]
    nonce = client.post("/users/nonce", json={"address": address}).json()["nonce"]
    login = {"address": address, "signature": str(sign(personal_digest(nonce.encode()), key))}
    token = client.post("/users/authenticate", json=login).json()["token"]
    return client.get("/users/api-key", headers={"x-auth-token": token}).json()["apiKey"]


def deploy(client: httpx2.Client) -> str:
    """The CID of the function of the benchmarks, which is uploaded."""
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
    """One answer of each operation, after a check that it is right and that a forged signature is refused."""
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


def has_peer() -> bool:
    """Whether bench/peers/install.py has installed it."""
    built = PEER / "node_modules" / "better-sqlite3" / "build" / "Release" / "better_sqlite3.node"
    return shutil.which("node") is not None and built.exists()


def start_peer(name: str, database: Path | str) -> Server:
    """The peer called `name` on a SQLite file or a PostgreSQL URL."""
    return Server(["node", str(PEER / "peer.mjs"), str(database), CURVES[name]])
