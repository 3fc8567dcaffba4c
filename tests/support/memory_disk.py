"""Temporary files in memory: on a disk tests mostly wait for fsync, which tests of rules do not need.

A test whose subject is the disk names a directory on a real disk.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108 - every name in it is made by `tempfile`
# A whole run keeps about 1 GB at a time; a container often has 64 MB there.
_FREE_BYTES_MIN = 2 * 2**30


# Most tests start processes, and one that finds no compiled modules starts with a second of compiling. It is
# done here, before another module copies the environment.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def use_memory() -> str:
    """Make `tempfile` and pytest use a file system in memory with enough room; returns a line for the report."""
    if "TMPDIR" in os.environ:  # the choice of who runs the tests, or of the process that started this worker
        return f"temporary files: {os.environ['TMPDIR']} (TMPDIR)"
    if not _has_room():
        return f"temporary files: {tempfile.gettempdir()}; {_MEMORY} has no room, so fsync makes the tests slower"
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None  # it is found again
    return f"temporary files: {_MEMORY}, in memory"


def _has_room() -> bool:
    return os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _FREE_BYTES_MIN
