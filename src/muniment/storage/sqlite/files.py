"""The files of an SQLite database, and what may happen to them while a service has them open.

Who has a file open goes on reading and writing it after its name was removed, or leads to another file (a volume that
was mounted over it, a copy that was put in its place). What is written then is gone with the process.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Final

from muniment.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from pathlib import Path

# The database; its log, in which a commit is before it is in the database; what processes that share them agree on.
_SUFFIXES: Final = ("", "-wal", "-shm")
# What the primary result codes mean to an operator (https://sqlite.org/rescode.html).
_MEANINGS: Final = {
    sqlite3.SQLITE_BUSY: "another process is writing",
    sqlite3.SQLITE_CANTOPEN: "a file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk fails",
    sqlite3.SQLITE_NOTADB: "the file is no database",
    sqlite3.SQLITE_READONLY: "it is read-only",
}


class Files:
    """The files that are open, as the system names them: no other has the device and inode of one that is open."""

    def __init__(self, path: Path) -> None:
        """Those of the database at `path`, which is open and was read. Raises `OSError`."""
        self._directory = path.parent
        self._names = [f"{path.name}{suffix}" for suffix in _SUFFIXES]
        self._paths = [f"{path}{suffix}" for suffix in _SUFFIXES]
        self._opened = [_identity(each) for each in self._paths]

    def check(self) -> None:
        """Return when a process that starts now would open the same files. Raises `DatabaseUnavailable`."""
        for name, path, opened in zip(self._names, self._paths, self._opened, strict=True):
            try:
                is_same = _identity(path) == opened
            except FileNotFoundError:
                raise DatabaseUnavailable(
                    f"the file {name} was removed: put it back, or start the service again"
                ) from None
            except OSError as error:
                raise DatabaseUnavailable(
                    f"the file {name} cannot be found: {os.strerror(error.errno or 0)}"
                ) from error
            if not is_same:
                raise DatabaseUnavailable(f"the file {name} was replaced by another: start the service again")

    def have_lost_the_log_alone(self) -> bool:
        """Whether the log has lost its name and the other files have theirs: what is in it can be saved."""
        return [_is_there(*each) for each in zip(self._paths, self._opened, strict=True)] == [True, False, True]

    def log_bytes(self) -> int:
        """The length of the log. Raises `OSError`."""
        return os.stat(self._paths[1]).st_size  # noqa: PTH116 - as in `_identity`

    def are_writable(self) -> bool:
        """Whether who opens them now may write to them, as far as the system tells before."""
        return all(os.access(path, os.W_OK) for path in (self._directory, *self._paths))

    def reason(self, error: BaseException) -> str:
        """Why the database failed, in a few words without a path."""
        code = getattr(error, "sqlite_errorcode", None)
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if code is None:
            return name
        return f"{self._read_only() or _MEANINGS.get(code & 0xFF, 'it fails')} ({name})"

    def _read_only(self) -> str:
        """What is to be said of a file system that took to refusing writes: SQLite tells that as a disk that fails."""
        try:
            is_read_only = os.statvfs(self._directory).f_flag & os.ST_RDONLY
        except OSError:
            return ""
        return "its file system is read-only" if is_read_only else ""


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 - at each commit; making a path takes longer than the system
    return status.st_dev, status.st_ino


def _is_there(path: str, opened: tuple[int, int]) -> bool:
    try:
        return _identity(path) == opened
    except OSError:
        return False
