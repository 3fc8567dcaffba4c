"""A TypeScript client with types generated from the OpenAPI document compiles and does the main job."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest
from javascript import HERE, NODE_TESTS

from answers import ok
from conformance import document
from service import Service

pytestmark = NODE_TESTS

_TYPED = HERE / "typed"
_BUNDLE = HERE.parents[1] / "src" / "muniment" / "cli" / "sample"
_SECONDS_MAX = 300


def _run(directory: Path, *command: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False, env=environment
    )


@pytest.fixture
def project(service: Service, tmp_path: Path) -> Path:
    """The client beside the types of the running service, ready to be compiled."""
    directory = tmp_path / "typed"
    shutil.copytree(_TYPED, directory)
    (directory / "node_modules").symlink_to(HERE / "node_modules")
    (directory / "package.json").write_text('{"type": "module"}')
    done = _run(directory, "node", "generate.mjs", service.url, "schema.d.ts")
    assert done.returncode == 0, done.stderr
    return directory


def test_a_generated_typescript_client_compiles_and_does_the_main_job(project: Path, service: Service) -> None:
    compiled = _run(project, "node", "node_modules/typescript/bin/tsc", "--project", ".")
    assert compiled.returncode == 0, compiled.stdout
    wasm = base64.b64encode((_BUNDLE / "function.wasm").read_bytes()).decode()
    done = _run(project, "node", "job.js", service.url, (_BUNDLE / "manifest.json").read_text("utf-8"), wasm)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    stored = ok(httpx2.get(f"{service.url}/triggers/{told['sig']}")).json()
    assert (stored["signer"], stored["functionCid"]) == (told["signer"], told["cid"])
    assert "deactivateSig" in stored


@pytest.mark.long
def test_a_generated_typescript_client_tells_the_forms_of_intents_apart(project: Path, service: Service) -> None:
    compiled = _run(project, "node", "node_modules/typescript/bin/tsc", "--project", ".")
    assert compiled.returncode == 0, compiled.stdout
    done = _run(project, "node", "intents.js", service.url, service.operator_key())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["10x", "40x"]


def test_the_document_keeps_to_the_recommendations_of_redocly(tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document()))
    command = str(HERE / "node_modules" / "@redocly" / "cli" / "bin" / "cli.js")
    quiet = {**os.environ, "REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    done = _run(tmp_path, "node", command, "lint", str(file), "--format", "json", environment=quiet)
    assert json.loads(done.stdout)["problems"] == [], done.stdout
