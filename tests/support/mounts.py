"""File systems that tests mount, where permitted: for faults that files alone cannot show."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Until a process that was stopped has closed its files.
_CLOSED_SECONDS_MAX = 30


class Volume:
    """A file system in memory."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def remount(self, mode: str) -> None:
        """`ro` or `rw`; the former once no file on it is open for writing."""
        command = ["mount", "-o", f"remount,{mode}", str(self._place)]
        deadline = time.monotonic() + _CLOSED_SECONDS_MAX
        while subprocess.run(command, check=False, capture_output=True).returncode:
            assert time.monotonic() < deadline, f"{self._place} is in use"
            time.sleep(0.05)


@contextmanager
def mounted(place: Path, *, mebibytes: int = 256) -> Generator[Volume]:
    """A file system over the directory `place`."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", str(place)], check=True)
    try:
        yield Volume(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _may_mount() -> bool:
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as place:
        try:
            with mounted(Path(place)):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


needs_mounts = pytest.mark.skipif(not _may_mount(), reason="only root may mount, and not in every container")
