"""TypeScript: a generated client, the programs of docs/use/typescript.md, and the scripts of the console."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from javascript import HERE, NODE_TESTS

from answers import ok
from builders import Wallet
from conformance import document
from service import Service

# To generate and compile takes half a minute of a core.
pytestmark = [*NODE_TESTS, pytest.mark.long]

_TYPED = HERE / "typed"
_SCRIPTS = HERE / "proofs" / "tsconfig.json"
_BUNDLE = HERE.parents[1] / "src" / "muniment" / "cli" / "sample"
_PAGE = (HERE.parents[1] / "docs" / "use" / "typescript.md").read_text("utf-8")
_REGISTRY, _VIEM, _ETHERS, _JOB = re.findall(r"```ts\n(.*?)```", _PAGE, re.DOTALL)
_SECONDS_MAX = 300


def _run(directory: Path, *command: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False, env=environment
    )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("registry") / "data") as running:
        yield running


@dataclass(frozen=True)
class Compiled:
    """The folder with the compiled client, and what TypeScript says is wrong with it, the console's scripts, the page.

    `pages` has the programs of docs/use/typescript.md, by the library that signs.
    """

    client: Path
    pages: dict[str, Path]
    in_client: list[str]
    in_scripts: list[str]
    in_pages: list[list[str]]


@pytest.fixture(scope="module")
def compiled(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """The client, compiled with the types of the running service."""
    directory = tmp_path_factory.mktemp("client") / "typed"
    shutil.copytree(_TYPED, directory)
    (directory / "node_modules").symlink_to(HERE / "node_modules")
    (directory / "package.json").write_text('{"type": "module"}')
    pages = {library: _page(directory / library, signer) for library, signer in (("viem", _VIEM), ("ethers", _ETHERS))}
    configurations = [_SCRIPTS, *(page / "tsconfig.json" for page in pages.values())]
    done = _run(directory, "node", "compile.mjs", service.url, *map(str, configurations))
    assert done.returncode == 0, done.stderr
    in_client, in_scripts, *in_pages = json.loads(done.stdout)
    return Compiled(directory, pages, in_client, in_scripts, in_pages)


def _page(folder: Path, signer: str) -> Path:
    """The folder in which a reader of the page works."""
    folder.mkdir()
    for name, program in (("registry", _REGISTRY), ("signer", signer), ("job", _JOB)):
        (folder / f"{name}.ts").write_text(program)
    config = json.loads((_TYPED / "tsconfig.json").read_text("utf-8"))
    config["compilerOptions"]["types"] = ["node"]
    (folder / "tsconfig.json").write_text(json.dumps(config | {"files": ["job.ts"]}))
    shutil.copytree(_BUNDLE, folder / "build")
    return folder


def test_a_generated_typescript_client_compiles_and_does_the_main_job(compiled: Compiled, service: Service) -> None:
    assert compiled.in_client == []
    wasm = base64.b64encode((_BUNDLE / "function.wasm").read_bytes()).decode()
    done = _run(compiled.client, "node", "job.js", service.url, (_BUNDLE / "manifest.json").read_text("utf-8"), wasm)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    stored = ok(httpx2.get(f"{service.url}/triggers/{told['sig']}")).json()
    assert (stored["signer"], stored["functionCid"]) == (told["signer"], told["cid"])
    assert "deactivateSig" in stored


def test_a_generated_typescript_client_tells_the_forms_of_intents_apart(compiled: Compiled, service: Service) -> None:
    assert compiled.in_client == []
    done = _run(compiled.client, "node", "intents.js", service.url, service.operator_key())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["10x", "40x"]


@pytest.mark.parametrize("library", ["viem", "ethers"])
def test_the_program_of_the_page_deploys_signs_lists_and_deactivates(
    compiled: Compiled, service: Service, library: str
) -> None:
    assert compiled.in_pages == [[], []]
    wallet = Wallet(21 if library == "viem" else 22)
    given = {**os.environ, "PRIVATE_KEY": "0x" + wallet.key.hex(), "REGISTRY_URL": service.url}
    done = _run(compiled.pages[library], "node", "job.js", environment=given)
    assert done.returncode == 0, done.stderr
    deployed, active, ended = (line.split() for line in done.stdout.splitlines())
    stored = ok(httpx2.get(f"{service.url}/triggers/{active[1]}")).json()
    assert (stored["signer"], stored["functionCid"]) == (wallet.address, deployed[1])
    assert "deactivateSig" in stored
    assert ended == ["active"]


def test_the_scripts_of_the_console_are_typed(compiled: Compiled) -> None:
    assert compiled.in_scripts == []


def test_the_document_keeps_to_the_recommendations_of_redocly(tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document()))
    command = str(HERE / "node_modules" / "@redocly" / "cli" / "bin" / "cli.js")
    quiet = {**os.environ, "REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    done = _run(tmp_path, "node", command, "lint", str(file), "--format", "json", environment=quiet)
    assert json.loads(done.stdout)["problems"] == [], done.stdout
