"""Wheels of this release and of a next one, and environments that have them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from programs import ROOT

UV: Final = Path(sys.executable).parent / "uv"
THIS: Final[str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
NEXT: Final = f"{THIS}.post1"
# What a next release adds; the tables and columns of this one stay, so its processes go on meanwhile.
_MIGRATIONS: Final = {
    "sqlite": "CREATE TABLE notes (note TEXT PRIMARY KEY) STRICT;\nALTER TABLE triggers ADD COLUMN note TEXT;\n",
    "postgres": "CREATE TABLE notes (note text PRIMARY KEY);\nALTER TABLE triggers ADD COLUMN note text;\n",
}
MIGRATION: Final = "9001_notes.sql"
_BUILT_FROM: Final = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "muniment.cdx.json")


def build(folder: Path, source: Path = ROOT) -> Path:
    """The wheel of the sources in `source`."""
    subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", folder], check=True, cwd=source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_next(folder: Path) -> Path:
    """The wheel of a next release: one more migration, and a higher version."""
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _BUILT_FROM:
        shutil.copy(ROOT / name, source)
    project = source / "pyproject.toml"
    project.write_text(project.read_text("utf-8").replace(f'version = "{THIS}"', f'version = "{NEXT}"', 1), "utf-8")
    for engine, statements in _MIGRATIONS.items():
        (source / "src/muniment/service/storage/migrations" / engine / MIGRATION).write_text(statements)
    return build(folder / "wheel", source)


def environment_of(wheel: Path, folder: Path) -> Path:
    """The interpreter of a new environment with the wheel and the locked packages."""
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    install(python, wheel, "--constraint", ROOT / "requirements.lock")
    return python


def install(python: Path, wheel: Path, *options: str | Path) -> None:
    """Put the wheel into the environment of `python`, in place of the release that is there."""
    package = f"muniment[server] @ {wheel.as_uri()}"
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *options, package], check=True)
