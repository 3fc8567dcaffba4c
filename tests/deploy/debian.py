"""Debian in a folder, for tests that boot a machine or build an image. They need root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from programs import installed

RELEASE = "bookworm"
# The folder's programs trust the certificates of this machine, and ask the package index that this machine asks.
SHARED = [path for path in (Path("/etc/ssl/certs"), Path("/etc/pip.conf")) if path.exists()]


def need_root(*programs: str) -> None:
    """Skip the test where name spaces cannot be made, or a program is not installed."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a Debian in a folder")
    for program in programs:
        installed(program)


def make(target: Path, packages: str) -> Path:
    """A small Debian with these packages, as a folder or (`.tar`) an archive. It takes half a minute."""
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", RELEASE, target]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return target
