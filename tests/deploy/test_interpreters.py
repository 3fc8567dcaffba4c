"""The wheel and the source distribution serve on every Python that pyproject.toml names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from distributions import SDIST, WHEEL, build, clean_environment
from service import Service


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built"))


def interpreter(version: str) -> str:
    """The path of an installed Python. A shim of pyenv is no Python unless PYENV_VERSION names the version."""
    command = shutil.which(f"python{version}")
    if command is not None:
        done = subprocess.run([command, "-c", "import sys; print(sys.executable)"], capture_output=True, check=False)
        if done.returncode == 0:
            return done.stdout.decode().strip()
    pytest.skip(f"python{version} is not installed")


@pytest.mark.parametrize("distribution", [WHEEL, SDIST], ids=["wheel", "sdist"])
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14", "3.15"])
def test_a_distribution_serves_and_stops_with_status_0(
    built: Path, tmp_path: Path, version: str, distribution: str
) -> None:
    python = clean_environment(tmp_path / "venv", built / distribution, interpreter(version))
    said = subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout
    assert said.startswith(f"Python {version}.")
    with Service(tmp_path / "data", python=python) as service:
        assert service.stop() == 0
