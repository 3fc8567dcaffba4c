"""A Python client that a generator makes of the OpenAPI document does the main job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from answers import ok
from eth_signing import needs_eth_account
from service import Service

_JOB = Path(__file__).parent / "python_job.py"
_INTENTS = Path(__file__).parent / "python_intents.py"
_BUNDLE = Path(__file__).parents[2] / "src" / "muniment" / "cli" / "sample"
# Its settings: no tool runs over the result, and files are bytes whatever their media type is.
_SETTINGS = {
    "post_hooks": [],
    "project_name_override": "generated",
    "package_name_override": "generated",
    "content_type_overrides": {
        "application/wasm": "application/octet-stream",
        "application/vnd.ipld.raw": "application/octet-stream",
        "application/vnd.ipld.car": "application/octet-stream",
    },
}


def _generate(url: str, directory: Path) -> str:
    """Make the package `generated` in `directory`; what the generator says."""
    document, settings = directory / "openapi.json", directory / "settings.json"
    document.write_bytes(httpx2.get(f"{url}/openapi.json").content)
    settings.write_text(json.dumps(_SETTINGS))
    command = [
        sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning",
        "--path", str(document), "--config", str(settings), "--output-path", str(directory / "generated"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.long
@needs_eth_account
def test_a_generated_python_client_does_the_main_job(service: Service, tmp_path: Path) -> None:
    assert "WARNING" not in _generate(service.url, tmp_path)
    command = [sys.executable, str(_JOB), service.url, str(_BUNDLE)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    stored = ok(httpx2.get(f"{service.url}/triggers/{told['sig']}")).json()
    assert (stored["signer"], stored["functionCid"]) == (told["signer"], told["cid"])
    assert "deactivateSig" in stored


@pytest.mark.long
def test_a_generated_python_client_tells_the_forms_of_intents_apart(service: Service, tmp_path: Path) -> None:
    _generate(service.url, tmp_path)
    command = [sys.executable, str(_INTENTS), service.url, service.operator_key()]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
