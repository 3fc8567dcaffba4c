"""The wheel and the source distribution: the same bytes from each build, complete, and of one version."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from service import Service

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
WHEEL, SDIST = f"muniment-{VERSION}-py3-none-any.whl", f"muniment-{VERSION}.tar.gz"


def build(folder: Path) -> Path:
    """Build as `make dist` does."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run([UV, "build", "--quiet", "--out-dir", folder], check=True, cwd=ROOT, env=environment)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module", params=[WHEEL, SDIST], ids=["wheel", "sdist"])
def python(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a clean environment with the distribution and the locked packages."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    made = folder / "bin/python"
    package = f"muniment[server] @ {(built / request.param).as_uri()}"
    subprocess.run(
        [UV, "pip", "install", "--quiet", "--python", made, "--constraint", ROOT / "requirements.lock", package],
        check=True,
    )
    return made


@pytest.mark.slow
def test_two_builds_have_the_same_bytes(built: Path, tmp_path: Path) -> None:
    first, second = ({each: hashlib.sha256((folder / each).read_bytes()).hexdigest() for each in (WHEEL, SDIST)}
                     for folder in (built, build(tmp_path)))  # fmt: skip
    assert first == second


@pytest.mark.slow
def test_the_wheel_has_its_licence_its_bill_of_materials_and_every_file_of_the_package(built: Path) -> None:
    names = set(zipfile.ZipFile(built / WHEEL).namelist())
    information = f"muniment-{VERSION}.dist-info"
    assert {f"{information}/sboms/muniment.cdx.json", f"{information}/licenses/LICENSE"} <= names
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert tracked
    assert {path.removeprefix("src/") for path in tracked.split()} == {
        name for name in names if name.startswith("muniment/")
    }


@pytest.mark.slow
def test_the_source_distribution_has_no_test_and_no_lock(built: Path) -> None:
    with tarfile.open(built / SDIST) as archive:
        tops = {Path(name).parts[1] for name in archive.getnames()}
    assert tops == {
        "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md", ".gitignore", "muniment.cdx.json",
        "pyproject.toml", "src",
    }  # fmt: skip


@pytest.mark.slow
def test_a_clean_environment_serves_and_stops_with_status_0(python: Path, tmp_path: Path) -> None:
    with Service(tmp_path / "data", python=python) as service:
        assert service.stop() == 0
