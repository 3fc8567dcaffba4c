"""Packages of the service: the bill of materials matches the lock, and all licences are allowed."""

from __future__ import annotations

import json
import re
import tomllib

from bill_of_materials import BILL, ROOT, licences, listed_versions, locked_versions

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
# Licences under which closed programs may use a package as well. Another one needs a decision.
ALLOWED = {"Apache-2.0", "BSD-3-Clause", "CC0-1.0", "MIT", "MIT-0", "PSF-2.0", "Python-2.0", "LLVM-exception"}


def test_the_bill_of_materials_lists_the_locked_packages_and_this_version() -> None:
    assert listed_versions() == locked_versions(), "run `make sbom`"
    assert json.loads(BILL.read_text("utf-8"))["metadata"]["component"]["version"] == VERSION, "run `make sbom`"


def test_the_lock_with_all_extras_has_the_versions_of_the_lock() -> None:
    pins = {
        name: set(re.findall(r"^[\w.-]+==[^ ]+|--hash=\S+", (ROOT / name).read_text("utf-8"), re.MULTILINE))
        for name in ("requirements.lock", "requirements-extras.lock")
    }
    assert len(pins["requirements.lock"]) > 20
    assert pins["requirements.lock"] < pins["requirements-extras.lock"], "run `make lock`"


def test_every_licence_is_one_that_was_allowed() -> None:
    words = {name: set(re.split(r" (?:AND|OR|WITH) ", licence)) for name, licence in licences().items()}
    assert len(words) > 20
    assert {name: each for name, each in words.items() if not each <= ALLOWED} == {}


def test_the_changelog_has_this_version() -> None:
    assert f"## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
