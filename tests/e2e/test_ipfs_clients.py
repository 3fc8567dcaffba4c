"""Clients of the IPFS field read a bundle from the gateway and check its hashes themselves."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import pytest
from bad_wire import Change, bad_wire, cut_short, flip_last_byte, unchanged
from javascript import NODE_TESTS, ScriptFailed, read_bundles, run_script

from answers import ok
from builders import SAMPLES, Bundle, deploy
from muniment.protocol.ipfs.cid import decode_cid
from service import Service

pytestmark = NODE_TESTS

# Two leaves under one file: a client has to walk.
_BUNDLE = Bundle(name="Big", wasm=(SAMPLES / "own-big" / "function.wasm").read_bytes())
_FILES = {"manifest.json": _BUNDLE.manifest, "function.wasm": _BUNDLE.wasm}
_HASHES = {name: hashlib.sha256(content).hexdigest() for name, content in _FILES.items()}

FORMS = ("blocks", "car")
either_profile = pytest.mark.parametrize("registry", ["unixfs-v0-2015", "unixfs-v1-2025"], indirect=True)


@dataclass(frozen=True)
class Registry:
    """A running service with one bundle, and both spellings of its CID."""

    service: Service
    cid: str

    @property
    def url(self) -> str:
        return self.service.url

    def spelt(self, version: int) -> str:
        return replace(decode_cid(self.cid), version=version).text

    def leaf(self) -> Path:
        """The file of the largest block."""
        stored = (path for path in (self.service.data_dir / "blocks").rglob("*") if path.is_file())
        return max(stored, key=lambda path: path.stat().st_size)


async def _deployed(url: str) -> str:
    async with httpx2.AsyncClient(base_url=url) as client:
        return await deploy(client, _BUNDLE)


@pytest.fixture(scope="module")
def registry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    environment = {"MUNIMENT_UNIXFS_PROFILE": getattr(request, "param", "unixfs-v0-2015")}
    with Service(tmp_path_factory.mktemp("registry") / "data", environment=environment) as service:
        yield Registry(service, asyncio.run(_deployed(service.url)))


@either_profile
def test_a_client_verifies_a_bundle_by_either_spelling_of_its_cid(registry: Registry) -> None:
    asked = [(registry.url, registry.spelt(version), form) for version in (0, 1) for form in FORMS]
    assert read_bundles(*asked) == [_HASHES] * len(asked)


@either_profile
def test_ipfs_car_unpacks_the_files_that_were_uploaded(registry: Registry, tmp_path: Path) -> None:
    for version in (0, 1):
        car, unpacked = tmp_path / f"{version}.car", tmp_path / f"bundle-{version}"
        car.write_bytes(ok(httpx2.get(f"{registry.url}/ipfs/{registry.spelt(version)}?format=car")).content)
        run_script("node_modules/ipfs-car/bin.js", "unpack", str(car), "--output", str(unpacked))
        assert {path.name: path.read_bytes() for path in unpacked.iterdir()} == _FILES, version


def test_ipfs_car_refuses_a_flipped_byte(registry: Registry, tmp_path: Path) -> None:
    car = tmp_path / "bundle.car"
    car.write_bytes(flip_last_byte(ok(httpx2.get(f"{registry.url}/ipfs/{registry.cid}?format=car")).content))
    with pytest.raises(ScriptFailed, match="HashMismatchError"):
        run_script("node_modules/ipfs-car/bin.js", "unpack", str(car), "--output", str(tmp_path / "bundle"))


WIRES: list[tuple[str, Change, str]] = [
    ("blocks", unchanged, ""),
    ("car", unchanged, ""),
    ("blocks", flip_last_byte, "hash mismatch"),
    ("blocks", cut_short, "hash mismatch"),
    ("car", flip_last_byte, "hash mismatch"),
    ("car", cut_short, "Unexpected end of data"),
]


def test_a_client_refuses_bytes_that_the_wire_has_changed(registry: Registry, subtests: pytest.Subtests) -> None:
    with ExitStack() as wires:
        asked = [(wires.enter_context(bad_wire(registry.url, change)), registry.cid, form) for form, change, _ in WIRES]
        answers = read_bundles(*asked)
    for (form, change, said), answer in zip(WIRES, answers, strict=True):
        with subtests.test(f"{form} {change.__name__}"):
            if said:
                assert isinstance(answer, str)
                assert said in answer
            else:
                assert answer == _HASHES


def test_a_damaged_block_never_reaches_a_client(registry: Registry) -> None:
    leaf = registry.leaf()
    good = leaf.read_bytes()
    leaf.write_bytes(flip_last_byte(good))
    try:
        answers = read_bundles(*((registry.url, registry.cid, form) for form in FORMS))
        assert [type(each) for each in answers] == [str] * len(FORMS)
        refusal = httpx2.get(f"{registry.url}/ipfs/{_cid_of(leaf)}?format=raw")
        assert (refusal.status_code, refusal.json()["code"]) == (500, "integrity")
    finally:
        leaf.write_bytes(good)


def _cid_of(block: Path) -> str:
    """The raw CIDv1 of a stored block: its path is its digest in hex."""
    binary = b"\x01\x55\x12\x20" + bytes.fromhex(block.parent.name + block.name)
    return "b" + base64.b32encode(binary).decode().rstrip("=").lower()
