"""The contents of `pip install muniment`, and of `muniment[server]` only."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
MIB_MAX = 9
BARE = "What a bare installation has needs no library of the server"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with `muniment` and nothing else."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    subprocess.run([UV, "pip", "install", "--quiet", "--python", folder / "bin/python", ROOT], check=True)
    return folder


def run(bare: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([bare / "bin" / words[0], *words[1:]], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_package_is_small(bare: Path) -> None:
    [packages] = bare.glob("lib/python3.*/site-packages")
    mib = sum(each.stat().st_size for each in packages.rglob("*") if each.is_file()) / 2**20
    print(f"a bare installation has {mib:.1f} MiB")  # noqa: T201 - shown with -s
    assert mib < MIB_MAX


@pytest.mark.slow
def test_the_pure_rules_can_be_imported(bare: Path) -> None:
    linted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [modules] = [each["source_modules"] for each in linted if each["name"] == BARE]
    assert len(modules) > 20
    done = run(bare, "python", "-c", f"import importlib; [importlib.import_module(each) for each in {modules}]")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_bare_installation_has_help_and_names_the_missing_extra(bare: Path, tmp_path: Path) -> None:
    assert "serve" in run(bare, "muniment", "--help").stdout
    done = run(bare, "muniment", "serve", "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 1
    assert done.stderr.startswith("Error: this command needs the library ")
    assert done.stderr.endswith("Type: pip install 'muniment[server]'\n")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()
