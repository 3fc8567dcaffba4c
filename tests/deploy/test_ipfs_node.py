"""An IPFS node by others (js-ipfs, whose RPC is that of Kubo) pins bundles under our CIDs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from programs import installed

import warm
from builders import EMPTY_WASM, SAMPLES, Bundle
from follow_command import until
from muniment.service.running.settings import MIB
from pinning_world import deployed
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


def pinned(url: str, cids: list[str]) -> set[str]:
    """What the node has pinned, in the spelling of `cids`."""
    base = "base32" if cids[0].startswith("b") else "base58btc"
    return set(asked(url, f"pin/ls?type=recursive&cid-base={base}").json()["Keys"])


def words(service: Service, url: str, way: str) -> list[str]:
    return ["blocks", "pin", "--url", service.url, "--kubo", url, way]


def pin_once(service: Service, url: str) -> str:
    done = warm.run(*words(service, url, "--once"), timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def lines(cids: list[str]) -> str:
    return "".join(f"pinned {cid}\n" for cid in cids)


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
    with (
        ipfs_node(tmp_path / "repository", free_port()) as url,
        Service(tmp_path / "data", environment={"MUNIMENT_UNIXFS_PROFILE": profile}) as service,
    ):
        cids = deployed(service.url, *bundles)
        assert pin_once(service, url) == lines(cids)
        assert pinned(url, cids) == set(cids)
        assert pin_once(service, url) == ""
        for cid, bundle in zip(cids, bundles, strict=True):
            assert asked(url, f"cat?arg={cid}/manifest.json").content == bundle.manifest
            assert asked(url, f"cat?arg={cid}/function.wasm").content == bundle.wasm


def test_a_follower_waits_for_the_node_and_pins_what_is_new(tmp_path: Path) -> None:
    port = free_port()
    with (
        Service(tmp_path / "data") as service,
        (tmp_path / "out").open("w") as out,
        (tmp_path / "err").open("w") as err,
    ):
        old = deployed(service.url, *(Bundle(version=f"1.0.{number}") for number in range(3)))
        follower = warm.popen(
            words(service, f"http://127.0.0.1:{port}", "--follow"),
            {**os.environ, "PYTHONPATH": str(warm.UNHURRIED)}, stdout=out.fileno(), stderr=err.fileno(),
        )  # fmt: skip
        try:
            until(lambda: (tmp_path / "err").read_text().endswith("; trying again\n"))
            with ipfs_node(tmp_path / "repository", port) as url:
                until(lambda: (tmp_path / "out").read_text() == lines(old))
                new = deployed(service.url, Bundle("New"))
                until(lambda: (tmp_path / "out").read_text() == lines([*old, *new]))
                assert pinned(url, old) == {*old, *new}
                follower.terminate()
                assert follower.wait(60) == 143
        finally:
            follower.kill()


def test_a_node_that_lost_a_pin_gets_it_again(tmp_path: Path) -> None:
    with ipfs_node(tmp_path / "repository", free_port()) as url, Service(tmp_path / "data") as service:
        cids = deployed(service.url, *(Bundle(version=f"1.0.{number}") for number in range(3)))
        pin_once(service, url)
        assert asked(url, f"pin/rm?arg={cids[1]}").status_code == 200
        assert asked(url, "repo/gc").status_code == 200
        assert pinned(url, cids) == {cids[0], cids[2]}
        assert pin_once(service, url) == lines([cids[1]])
        assert pinned(url, cids) == set(cids)
