"""Runs the scripts of this folder: clients of the service that were written by others, in JavaScript."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from node_program import NODE, NodeProgram

HERE = Path(__file__).parent
_ETHERS = NodeProgram(HERE / "ethers.mjs")
_SECONDS_MAX = 60

# For `pytestmark`: these tests are left out for one reason only.
NODE_TESTS = [
    pytest.mark.node,
    pytest.mark.skipif(NODE is None, reason="Node.js is not installed"),
    pytest.mark.skipif(
        not (HERE / "node_modules").is_dir(), reason="node_modules is not there: run tests/e2e/install.py"
    ),
]


class ScriptFailed(Exception):
    """A script ended with an error; the message is what it said."""


def run_script(script: str, *arguments: str, given: object = None) -> str:
    """The standard output of a script that was given JSON on its standard input."""
    command = [NODE or "node", str(HERE / script), *arguments]
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    if done.returncode:
        raise ScriptFailed(done.stderr)
    return done.stdout


def with_ethers(*tasks: dict[str, Any]) -> list[Any]:
    """The results of tasks of ethers.mjs."""
    return _ETHERS.ask(tasks)


def read_bundles(*asked: tuple[str, str, str]) -> list[dict[str, str] | str]:
    """What a client has read from each gateway `(URL, CID, form)`; a form is `blocks` or `car`.

    Name to sha2-256 of the files that it has verified, or the message of its error.
    """
    answers: list[dict[str, Any]] = json.loads(run_script("gateway.mjs", given=asked))
    return [each.get("is") or each["error"] for each in answers]
