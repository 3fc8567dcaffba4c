"""Runs the scripts of this folder: clients of the service that were written by others, in JavaScript."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
_NODE = shutil.which("node")
_SECONDS_MAX = 60

# For `pytestmark`: these tests are left out for one reason only.
NODE_TESTS = [
    pytest.mark.node,
    pytest.mark.skipif(_NODE is None, reason="Node.js is not installed"),
    pytest.mark.skipif(
        not (HERE / "node_modules").is_dir(), reason="node_modules is not there: run tests/e2e/install.py"
    ),
]


class ScriptFailed(Exception):
    """A script ended with an error; the message is what it said."""


def run_script(script: str, *arguments: str, given: object = None) -> str:
    """The standard output of a script that was given JSON on its standard input."""
    command = [_NODE or "node", str(HERE / script), *arguments]
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    if done.returncode:
        raise ScriptFailed(done.stderr)
    return done.stdout


def with_ethers(*tasks: dict[str, Any]) -> list[Any]:
    """The results of tasks of ethers.mjs."""
    return json.loads(run_script("ethers.mjs", given=tasks))


def read_bundle(url: str, cid: str, form: str) -> dict[str, str]:
    """Name to sha2-256 of the files that a client has read and verified."""
    return json.loads(run_script("gateway.mjs", url, cid, form))
