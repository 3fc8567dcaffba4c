"""The wheel and the source distribution: the same bytes from each build, complete, and of one version."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from distributions import ROOT, SDIST, VERSION, WHEEL, build, clean_environment
from service import Service


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module", params=[WHEEL, SDIST], ids=["wheel", "sdist"])
def python(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_environment(tmp_path_factory.mktemp("clean") / "venv", built / request.param)


@pytest.mark.long
def test_two_builds_have_the_same_bytes(built: Path, tmp_path: Path) -> None:
    first, second = ({each: hashlib.sha256((folder / each).read_bytes()).hexdigest() for each in (WHEEL, SDIST)}
                     for folder in (built, build(tmp_path)))  # fmt: skip
    assert first == second


@pytest.mark.long
def test_the_wheel_has_its_licence_its_bill_of_materials_and_every_file_of_the_package(built: Path) -> None:
    names = set(zipfile.ZipFile(built / WHEEL).namelist())
    information = f"muniment-{VERSION}.dist-info"
    assert {f"{information}/sboms/muniment.cdx.json", f"{information}/licenses/LICENSE"} <= names
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert tracked
    assert {path.removeprefix("src/") for path in tracked.split()} == {
        name for name in names if name.startswith("muniment/")
    }


@pytest.mark.long
def test_the_source_distribution_has_no_test_and_no_lock(built: Path) -> None:
    with tarfile.open(built / SDIST) as archive:
        tops = {Path(name).parts[1] for name in archive.getnames()}
    assert tops == {
        "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md", ".gitignore", "muniment.cdx.json",
        "pyproject.toml", "src",
    }  # fmt: skip


@pytest.mark.long
def test_a_clean_environment_serves_and_stops_with_status_0(python: Path, tmp_path: Path) -> None:
    with Service(tmp_path / "data", python=python) as service:
        assert service.stop() == 0
