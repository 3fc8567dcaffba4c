"""Packages that the service needs, as `muniment.cdx.json` lists them (CycloneDX 1.6). Run it to update that file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BILL = ROOT / "muniment.cdx.json"
LOCK = ROOT / "requirements.lock"

# Names by which metadata call a licence, where they give no identifier of SPDX.
_IDENTIFIERS = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
}


def locked_versions() -> dict[str, str]:
    """Versions by package in `requirements.lock`, for Linux."""
    lines = re.findall(r"^([\w.-]+)==([^\s;]+)([^\\\n]*)", LOCK.read_text("utf-8"), re.MULTILINE)
    return {name: version for name, version, marker in lines if not re.search("sys_platform == '(?!linux)", marker)}


def listed_versions() -> dict[str, str]:
    """Versions by package in the bill of materials; names are normalised as in the lock (PEP 503)."""
    return {re.sub(r"[-_.]+", "-", each["name"]).lower(): each["version"] for each in _components()}


def licences() -> dict[str, str]:
    """SPDX licence expressions by package. Several licences without an expression are joined by AND."""
    return {each["name"]: " AND ".join(_licence(choice) for choice in each["licenses"]) for each in _components()}


def _components() -> list[dict[str, Any]]:
    return json.loads(BILL.read_text("utf-8"))["components"]


def _licence(choice: dict[str, Any]) -> str:
    if "expression" in choice:
        return choice["expression"]
    licence = choice["license"]
    return licence.get("id") or _IDENTIFIERS[licence["name"]]


def main() -> None:
    """Install the lock into a fresh environment, and list it with the program that the argument names."""
    uv = Path(sys.executable).parent / "uv"
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "venv/bin/python"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, python.parents[1]], check=True)
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", LOCK], check=True
        )
        made = subprocess.run(
            [
                sys.argv[1], "environment", "--output-reproducible", "--short-PURLs",
                "--pyproject", ROOT / "pyproject.toml", python,
            ],
            check=True, capture_output=True,
        )  # fmt: skip
    bill = json.loads(made.stdout)
    for each in [*bill["components"], *bill["metadata"]["tools"]["components"]]:
        each.pop("externalReferences", None)  # addresses of web pages change, and no check uses them
    BILL.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
