"""Resident memory of a serving process: at rest, and at most while many clients upload large bundles at once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2

from figures import BOUNDARY, WASM_HEAD, leb128
from ours import NO_LIMITS, api_key, serve_command
from samples import manifest
from scale import Scale
from server import Server

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_postgres: Any = import_module("postgres")

MIB = 2**20
SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"
# The largest module that is taken by default (`wasm_bytes_max`).
MODULE_BYTES = 16 * MIB
_PIECE_BYTES = 64 * 1024
# One function of 64 KiB that pushes constants and drops them, which a validator looks at one by one.
_BODY = b"\0" + b"\x41\0\x1a" * 21_845 + b"\x0b"
_BODIES = 96
# Of the length of the section that makes up the rest: between 2 MiB and 256 MiB (LEB128).
_LENGTH_BYTES = 4


@dataclass(frozen=True)
class Resident:
    """MiB of a serving process: when it is ready, after the uploads, and at most meanwhile; how long these took."""

    ready: float
    after: float
    peak: float
    seconds: float
    clients: int

    @property
    def share(self) -> float:
        """What the uploads add at most, of the bytes of their modules."""
        return (self.peak - self.ready) * MIB / (self.clients * MODULE_BYTES)


def measure(scale: Scale) -> dict[str, list[Resident]]:
    """By engine: one process for each number of clients."""
    found: dict[str, list[Resident]] = {SQLITE: [], POSTGRESQL: []}
    with _postgres.Cluster(fsync=True) as cluster:
        for clients in scale.uploading_clients:
            url = asyncio.run(cluster.create_database(f"memory_{clients}"))
            for engine, database_url in ((SQLITE, None), (POSTGRESQL, url)):
                found[engine].append(_measured(database_url, clients))
    return found


def _measured(database_url: str | None, clients: int) -> Resident:
    environment = {**NO_LIMITS, "MUNIMENT_MIGRATE_AT_START": "true"}
    if database_url:
        environment["MUNIMENT_DATABASE_URL"] = database_url
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(serve_command(Path(folder)), environment) as service,
        httpx2.Client(base_url=service.url, timeout=60) as client,
    ):
        keys = [api_key(client, number) for number in range(clients)]  # uploads of one creator wait for each other
        ready = _mib(service, "VmRSS")
        seconds = asyncio.run(_upload_at_once(service.url, keys))
        return Resident(ready, _mib(service, "VmRSS"), _mib(service, "VmHWM"), seconds, clients)


def _mib(service: Server, field: str) -> float:
    """A size of the process (proc(5), `status`, in KiB there)."""
    lines = Path(f"/proc/{service.pid}/status").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) / 1024


async def _upload_at_once(url: str, keys: list[str]) -> float:
    port, noise = int(url.rpartition(":")[2]), os.urandom(_PIECE_BYTES)
    started = asyncio.get_running_loop().time()
    await asyncio.gather(*(_upload(port, key, number, noise) for number, key in enumerate(keys)))
    return asyncio.get_running_loop().time() - started


async def _upload(port: int, key: str, number: int, noise: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    described = json.dumps({**manifest(), "name": f"Large {number}"}).encode()
    opening = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="manifest.json"\r\n\r\n'.encode()
        + described
        + f'\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="function.wasm"\r\n\r\n'.encode()
    )
    closing = f"\r\n--{BOUNDARY}--\r\n".encode()
    length = len(opening) + MODULE_BYTES + len(closing)
    writer.write(
        f"POST /functions HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: {key}\r\ncontent-length: {length}\r\n"
        f"content-type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n".encode()
    )
    for piece in (opening, *_module(number, noise), closing):
        writer.write(piece)
        await writer.drain()
    status = await reader.readline()
    assert status.startswith(b"HTTP/1.1 200 "), status
    writer.close()


def _module(number: int, noise: bytes) -> Iterator[bytes]:
    """A module of `MODULE_BYTES` in pieces: code, and behind it a custom section that no other number's module has."""
    functions, bodies = leb128(_BODIES), (leb128(len(_BODY)) + _BODY) * _BODIES
    sections = ((1, b"\1\x60\0\0"), (3, functions + bytes(_BODIES)), (10, functions + bodies))
    opening = WASM_HEAD + b"".join(bytes((each,)) + leb128(len(content)) + content for each, content in sections)
    left = MODULE_BYTES - len(opening) - 1 - _LENGTH_BYTES
    yield opening + b"\0" + leb128(left)
    named, own = b"\5noise", number.to_bytes(8)
    while left:
        piece = (named + own + noise)[: min(left, _PIECE_BYTES)]
        yield piece
        left -= len(piece)
