"""The contents of `pip install muniment`, and of `muniment[server]` only."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from builders import Bundle, Wallet
from pin_node import pin_node
from pinning_world import deployed
from service import Service

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
MIB_MAX = 11

# The libraries that a client loads: of the base dependencies, and of those that they need.
CLIENT_LOADS = {"btclib_secp256k1", "cronsim", "httpx2", "idna", "msgspec", "muniment", "sha3", "typing_extensions"}
# The rooms that a client loads; all others are the service's.
ROOMS = {"client", "deadlines", "durable", "protocol", "text_files", "tls"}
EVERY_MODULE = """
import importlib, pkgutil
import muniment.client, muniment.deadlines, muniment.durable, muniment.protocol as protocol
modules = [each.name for each in pkgutil.walk_packages(protocol.__path__, "muniment.protocol.")]
assert len(modules) > 40, modules
for each in modules:
    importlib.import_module(each)
"""
LOADED = """
import json, sys
before = {*sys.modules}
import muniment.client
print(json.dumps(sorted({*sys.modules} - before)))
"""
JOB = """
import asyncio, sys
from pathlib import Path
from muniment.client import AsyncRegistry, Bundle, KeySigner, Registry, TriggerDraft

url, key = sys.argv[1], bytes.fromhex(sys.argv[2])
manifest = b'{"version": "1.0.0", "name": "Bare", "description": "Does nothing", "inputs": {}}'
config = {"type": 0, "schedule": "0 * * * *", "delta": "10m", "endDate": 0}
with Registry(url, signer=KeySigner(key)) as registry:
    cid = registry.functions.deploy(Bundle(manifest, b"\\0asm\\1\\0\\0\\0")).cid
    registry.functions.download(cid, "copy")
    trigger = registry.triggers.create(TriggerDraft.of(cid, config=config))
    page = next(registry.triggers.follow())
    registry.triggers.deactivate([each.sig for each in page])

async def ended():
    async with AsyncRegistry(url) as registry:
        return [each.sig async for each in registry.triggers.list(active=False)]

assert asyncio.run(ended()) == [trigger.sig]
print(trigger.sig, Path("copy", "manifest.json").read_bytes() == manifest)
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel of `muniment`, what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", folder.parent, ROOT], check=True)
    [wheel] = folder.parent.glob("muniment-*.whl")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    subprocess.run([UV, "pip", "install", "--quiet", "--python", folder / "bin/python", wheel], check=True)
    return folder


def run(bare: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([bare / "bin" / words[0], *words[1:]], capture_output=True, text=True, check=False)


@pytest.mark.long
def test_the_package_is_small(bare: Path) -> None:
    [packages] = bare.glob("lib/python3.*/site-packages")
    mib = sum(each.stat().st_size for each in packages.rglob("*") if each.is_file()) / 2**20
    print(f"a bare installation has {mib:.1f} MiB")
    assert mib < MIB_MAX


@pytest.mark.long
def test_the_package_brings_no_library_of_the_server(bare: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [packages] = bare.glob("lib/python3.*/site-packages")
    there = {_plain(each.metadata["Name"]) for each in importlib.metadata.distributions(path=[str(packages)])}
    servers = {_plain(each) for each in project["optional-dependencies"]["server"]}
    assert {"uvicorn", "asyncpg", "wasmtime", "cryptography"} <= servers
    # httpx2, the client's HTTP library, needs these two itself.
    assert there & servers <= {"anyio", "httpcore2"}
    assert {"muniment", "httpx2", "msgspec", "btclib-secp256k1"} <= there


@pytest.mark.long
def test_a_bare_installation_does_the_job_of_a_developer(bare: Path, tmp_path: Path, service: Service) -> None:
    command = [bare / "bin" / "python", "-c", JOB, service.url, Wallet(9).key.hex()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    sig, is_whole = done.stdout.split()
    assert (len(sig), is_whole) == (132, "True")
    assert sorted(each.name for each in (tmp_path / "copy").iterdir()) == ["function.wasm", "manifest.json"]


@pytest.mark.long
def test_a_bare_installation_lets_a_node_pin(bare: Path, service: Service) -> None:
    cids = deployed(service.url, Bundle())
    with pin_node() as node:
        done = run(bare, "muniment", "blocks", "pin", "--url", service.url, "--kubo", node.url, "--once")
    assert (done.returncode, done.stderr, node.imports) == (0, "", cids)


def test_the_client_loads_no_module_of_a_service_and_few_libraries() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded: list[str] = json.loads(done.stdout)
    assert "muniment.client.proof" in loaded
    outside = {name.partition(".")[0] for name in loaded} - {*sys.stdlib_module_names}
    assert {name for name in outside if not name.startswith("_")} <= CLIENT_LOADS
    assert {name.split(".")[1] for name in loaded if name.startswith("muniment.")} <= ROOMS


def _plain(name: str) -> str:
    """The name of a distribution without bounds, in the normal form (PyPA, "Names and normalization")."""
    return re.sub(r"[-_.]+", "-", re.split(r"[ <>=!~;\[]", name)[0]).lower()


@pytest.mark.long
def test_the_pure_rules_can_be_imported(bare: Path) -> None:
    done = run(bare, "python", "-c", EVERY_MODULE)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_a_bare_installation_has_help_and_names_the_missing_extra(bare: Path, tmp_path: Path) -> None:
    assert "serve" in run(bare, "muniment", "--help").stdout
    done = run(bare, "muniment", "serve", "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 1
    assert done.stderr.startswith("Error: this command needs the library ")
    assert done.stderr.endswith("Type: pip install 'muniment[server]'\n")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()
    done = run(bare, "muniment", "run", "--bundle", str(ROOT / "src" / "muniment" / "cli" / "sample"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("Type: pip install 'muniment[relayer]'\n")
