"""The lock of a data directory: one service serves from it at a time.

Memory of limits, metrics and commits belongs to one process. Commands work beside a service, and take no lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

LOCK_FILE: Final = "serving"
# Each process writes a line of this length over the one before, so a reader finds a whole number on a full disk too.
_LINE: Final = "{:<10}\n"


@contextmanager
def locked_directory(data_dir: Path) -> Generator[None]:
    """Keep other services from `data_dir` within the block. The lock ends with the process, however it ends.

    Makes the directory if it is missing. Raises `ValueError` with the id of the process that serves, or `OSError`.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = _open(data_dir / LOCK_FILE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, len(_LINE.format("")), 0).decode("ascii", "replace").strip()
            raise ValueError(
                f"{data_dir} is served already, by {f'process {holder}' if holder.isdecimal() else 'another process'}: "
                "stop that process first, or give this one a directory of its own with --data-dir, for its SQLite file "
                "too. Several services may share one PostgreSQL database, see docs/run/scaling.md"
            ) from error
        _write(descriptor, _LINE.format(os.getpid()))
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open the file, which no child process gets. On a read-only file system it must exist."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        raise  # the file system is the reason, not the missing file


def _write(descriptor: int, line: str) -> None:
    """Write who holds the lock. A service starts on a full or read-only disk too, and reads go on."""
    try:
        os.pwrite(descriptor, line.encode("ascii"), 0)
    except OSError as error:
        if error.errno not in {errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise
