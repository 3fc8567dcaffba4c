"""An IPFS node by others (js-ipfs, whose RPC is that of Kubo) pins bundles under our CIDs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from programs import installed

from builders import EMPTY_WASM, SAMPLES, Bundle, Wallet, deploy
from muniment.service.running.settings import MIB
from ports import free_port
from service import Service

HERE = Path(__file__).parent / "ipfs"


@contextmanager
def ipfs_node(repository: Path, port: int) -> Generator[str]:
    """The URL of a node that ends with the block; its repository stays."""
    program = installed("node")
    assert (HERE / "node_modules").exists(), "run `make deploy-test`, which installs the npm packages of the node"
    command = [program, HERE / "node.mjs", repository, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def asked(url: str, command: str) -> httpx2.Response:
    return httpx2.post(f"{url}/api/v0/{command}", timeout=60)


def until_pinned(url: str, service: Service, cids: list[str]) -> None:
    """Wait until the node has pinned just these, and the service knows it."""
    base = "base32" if cids[0].startswith("b") else "base58btc"
    deadline = time.monotonic() + 60
    while set(asked(url, f"pin/ls?type=recursive&cid-base={base}").json()["Keys"]) != set(cids) or waiting(service):
        assert time.monotonic() < deadline, (asked(url, "pin/ls?type=recursive").json(), waiting(service))
        time.sleep(0.1)


def waiting(service: Service) -> str:
    return pins(service, "list")


def pins(service: Service, command: str) -> str:
    words = [sys.executable, "-m", "muniment", "pins", command, "--data-dir", service.data_dir]
    return subprocess.run(words, check=True, timeout=60, capture_output=True, text=True).stdout


def upload(service: Service, *bundles: Bundle) -> list[str]:
    async def send() -> list[str]:
        async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
            return [await deploy(client, bundle, Wallet(1 + number)) for number, bundle in enumerate(bundles)]

    return asyncio.run(send())


def large() -> Bundle:
    """A bundle of nearly 16 MiB, in one custom section; its leaves are all different."""
    size = 16 * MIB - 32
    length = bytes((size >> shift & 0x7F) | (0x80 if shift < 21 else 0) for shift in (0, 7, 14, 21))
    content = b"\1x" + b"".join(number.to_bytes(32) for number in range(size // 32 + 1))
    return Bundle("Large", wasm=EMPTY_WASM + b"\0" + length + content[:size])


@pytest.mark.parametrize("profile", ["unixfs-v0-2015", "unixfs-v1-2025"])
def test_the_node_pins_each_bundle_under_our_cid_and_serves_its_bytes(tmp_path: Path, profile: str) -> None:
    own = Bundle("Own", wasm=(SAMPLES / "own-big" / "function.wasm").read_bytes())
    bundles = [Bundle("Small"), own, large()]
    with ipfs_node(tmp_path / "repository", free_port()) as url:
        environment = {"MUNIMENT_IPFS_PIN_URL": url, "MUNIMENT_UNIXFS_PROFILE": profile}
        with Service(tmp_path / "data", environment=environment) as service:
            cids = upload(service, *bundles)
            until_pinned(url, service, cids)
        for cid, bundle in zip(cids, bundles, strict=True):
            assert asked(url, f"cat?arg={cid}/manifest.json").content == bundle.manifest
            assert asked(url, f"cat?arg={cid}/function.wasm").content == bundle.wasm


def test_bundles_that_were_uploaded_while_the_node_was_away_are_pinned_when_it_is_back(tmp_path: Path) -> None:
    port = free_port()
    with Service(tmp_path / "data", environment={"MUNIMENT_IPFS_PIN_URL": f"http://127.0.0.1:{port}"}) as service:
        cids = upload(service, *(Bundle(version=f"1.0.{number}") for number in range(3)))
        time.sleep(2)
        with ipfs_node(tmp_path / "repository", port) as url:
            until_pinned(url, service, cids)


def test_a_node_that_lost_a_pin_gets_it_again_after_a_recheck(tmp_path: Path) -> None:
    port = free_port()
    service = Service(tmp_path / "data", environment={"MUNIMENT_IPFS_PIN_URL": f"http://127.0.0.1:{port}"})
    with ipfs_node(tmp_path / "repository", port) as url, service:
        cids = upload(service, *(Bundle(version=f"1.0.{number}") for number in range(3)))
        until_pinned(url, service, cids)
        assert asked(url, f"pin/rm?arg={cids[1]}").status_code == 200
        assert asked(url, "repo/gc").status_code == 200
        assert set(asked(url, "pin/ls?type=recursive").json()["Keys"]) == {cids[0], cids[2]}
        assert pins(service, "recheck") == "3 bundles are due now\n"
        until_pinned(url, service, cids)
