"""The programs that read the files of `deploy/`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
_TOOLS = ROOT / os.environ.get("TOOLS", ".venv-deploy") / "bin"


def packaged(name: str) -> Path:
    """A program of `requirements-deploy.lock`; `make deploy-test` installs it."""
    program = _TOOLS / name
    assert program.exists(), f"{program} is missing: run `make deploy-test`"
    return program


def installed(name: str) -> Path:
    """A program that no Python package brings. The test is skipped where it is not installed."""
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed")
    return Path(program)


def run(program: Path, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, which may be a failure."""
    return subprocess.run(
        [program, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=120,
    )
