"""Distributions by `make dist`, and clean environments with one of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
WHEEL, SDIST = f"muniment-{VERSION}-py3-none-any.whl", f"muniment-{VERSION}.tar.gz"
_UV = Path(sys.executable).parent / "uv"


def build(folder: Path) -> Path:
    """Build the wheel and the source distribution; their folder."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run([_UV, "build", "--quiet", "--out-dir", folder], check=True, cwd=ROOT, env=environment)
    return folder


def clean_environment(folder: Path, distribution: Path, interpreter: str = sys.executable) -> Path:
    """Python of a new environment with the distribution and the locked packages."""
    subprocess.run([_UV, "venv", "--quiet", "--python", interpreter, folder], check=True)
    python = folder / "bin/python"
    package = f"muniment[server] @ {distribution.as_uri()}"
    subprocess.run(
        [_UV, "pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "requirements.lock", package],
        check=True,
    )
    return python
