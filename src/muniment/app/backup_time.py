"""When the registry was backed up last: the time of an empty file in its data directory.

`muniment backup` sets it. After a backup by another tool, such as pg_dump, `touch` does the same.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

BACKUP_MARK: Final = "last-backup"


def note_backup(data_dir: Path, unix_s: float) -> None:
    """Record a complete backup, which shows the registry as it was at `unix_s`. Raises `OSError`."""
    path = data_dir / BACKUP_MARK
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        os.utime(descriptor, (unix_s, unix_s))
    finally:
        os.close(descriptor)


def find_backup(data_dir: Path) -> float | None:
    """The Unix time in seconds of the newest backup; None when none was noted. Raises `OSError`."""
    try:
        return (data_dir / BACKUP_MARK).stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return None
