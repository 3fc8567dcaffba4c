"""The console's proofs in JavaScript, run by Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1] / "e2e"
ASSETS = HERE.parents[1] / "src" / "muniment" / "service" / "console" / "assets"
NODE = shutil.which("node")
_SECONDS_MAX = 60


class Failed(str):
    """The message of an error."""

    __slots__ = ()


def prove(*asked: tuple[Any, ...]) -> list[Any]:
    """The answers to calls of proofs, each `(function, *arguments)`; an error is a `Failed`."""
    done = subprocess.run(
        [NODE or "node", str(HERE / "proofs" / "prove.mjs")],
        input=json.dumps(asked), capture_output=True, text=True, timeout=_SECONDS_MAX, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return [
        answer.get("is") if "error" not in answer else Failed(answer["error"]) for answer in json.loads(done.stdout)
    ]
