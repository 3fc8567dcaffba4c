"""TypeScript: a client with types generated from the OpenAPI document, and the scripts of the console."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from javascript import HERE, NODE_TESTS

from answers import ok
from conformance import document
from service import Service

pytestmark = NODE_TESTS

_TYPED = HERE / "typed"
_SCRIPTS = HERE / "proofs" / "tsconfig.json"
_BUNDLE = HERE.parents[1] / "src" / "muniment" / "cli" / "sample"
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
    """The folder with the compiled client, and what TypeScript says is wrong with it and with the console's scripts."""

    client: Path
    in_client: list[str]
    in_scripts: list[str]


@pytest.fixture(scope="module")
def compiled(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """The client, compiled with the types of the running service."""
    directory = tmp_path_factory.mktemp("client") / "typed"
    shutil.copytree(_TYPED, directory)
    (directory / "node_modules").symlink_to(HERE / "node_modules")
    (directory / "package.json").write_text('{"type": "module"}')
    done = _run(directory, "node", "compile.mjs", service.url, str(_SCRIPTS))
    assert done.returncode == 0, done.stderr
    in_client, in_scripts = json.loads(done.stdout)
    return Compiled(directory, in_client, in_scripts)


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


def test_the_scripts_of_the_console_are_typed(compiled: Compiled) -> None:
    assert compiled.in_scripts == []


def test_the_document_keeps_to_the_recommendations_of_redocly(tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document()))
    command = str(HERE / "node_modules" / "@redocly" / "cli" / "bin" / "cli.js")
    quiet = {**os.environ, "REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    done = _run(tmp_path, "node", command, "lint", str(file), "--format", "json", environment=quiet)
    assert json.loads(done.stdout)["problems"] == [], done.stdout
