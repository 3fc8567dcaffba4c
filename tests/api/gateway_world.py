"""A gateway over a block store on disk, with the sample bundles in it, and a client."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import httpx2

from limitless import unlimited
from muniment.protocol.ipfs.block import block_of
from muniment.protocol.ipfs.car import read_car
from muniment.protocol.ipfs.cid import Cid, CidParts
from muniment.protocol.ipfs.unixfs import UNIXFS_V0_2015, UNIXFS_V1_2025, Import, Profile, import_files
from muniment.service.blocks.files import FileBlockStore
from muniment.service.context import Context
from muniment.service.http.envelope import Envelope
from muniment.service.http.operation import Router, operation
from muniment.service.http.reply import Ready, Streamed
from muniment.service.http.request import Limits, Request
from muniment.service.resources.functions import gateway
from muniment.service.resources.functions.content import bundle_file
from muniment.service.resources.functions.gateway import EntryName
from muniment.service.running.limits.costs import CONTENT, Shed
from muniment.service.running.metrics.recorder import Metrics
from muniment.service.running.settings import Settings
from without_server import InProcess

VECTORS = Path(__file__).parents[1] / "vectors"
V0, V1 = UNIXFS_V0_2015, UNIXFS_V1_2025


class WatchedStore(FileBlockStore):
    """Notes which blocks are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[bytes] = []

    def get(self, digest: bytes) -> bytes:
        self.read.append(digest)
        return super().get(digest)


@operation("GET", "/files/{cid}/{name}", cost=CONTENT, sheds=Shed.MIDDLE)
async def get_file(context: Context, request: Request, cid: Cid, name: EntryName) -> Ready[bytes] | Streamed:
    return await bundle_file(context, request, cid, name)


@dataclass
class World:
    """The store of `app`, and what was put into it."""

    directory: Path
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        self.store = WatchedStore(self.directory)
        context = SimpleNamespace(blocks=self.store, settings=self.settings)
        envelope = Envelope(
            Router((*gateway.OPERATIONS, get_file)), context, unlimited(),
            limits=Limits(body_bytes_max=1024, body_timeout_s=5), metrics=Metrics(), random_bytes=os.urandom,
        )  # fmt: skip
        self.app = envelope

    def client(self) -> httpx2.AsyncClient:
        client = httpx2.AsyncClient(transport=InProcess(self.app), base_url="http://registry.test")
        del client.headers["accept"]  # httpx2 would send */*
        return client

    def add(self, name: str, profile: Profile) -> Import:
        """Put a sample bundle into the store; returns it with its root."""
        return self.add_files(sample(name), profile)

    def add_files(self, files: dict[str, bytes], profile: Profile) -> Import:
        done = Import(import_files({name: [data] for name, data in files.items()}, profile))
        self.store.put_many(done)
        return done

    def add_car(self, car: bytes) -> CidParts:
        """Put the blocks of a CAR file into the store; returns its root."""
        (root,), blocks = read_car(io.BytesIO(car))
        self.store.put_many([(cid.digest, block) for cid, block in blocks])
        return root

    def put(self, data: bytes) -> bytes:
        """Put a block into the store; returns its digest."""
        block = block_of(data)
        self.store.put_many([block])
        return block.digest

    def path_of(self, cid: CidParts) -> Path:
        digest = cid.digest.hex()
        return self.directory / digest[:2] / digest[2:]

    def damage(self, cid: CidParts) -> None:
        """Flip the last bit of a stored block."""
        data = bytearray(self.path_of(cid).read_bytes())
        data[-1] ^= 1
        self.path_of(cid).write_bytes(data)


def sample(name: str) -> dict[str, bytes]:
    folder = VECTORS / "bundles" / name
    return {file: (folder / file).read_bytes() for file in ("manifest.json", "function.wasm")}


def blocks_in(car: bytes) -> tuple[tuple[CidParts, ...], list[str]]:
    """The roots of a CAR file and the CIDs of its blocks, which were checked against their bytes."""
    roots, blocks = read_car(io.BytesIO(car))
    return roots, [cid.text for cid, _ in blocks]
