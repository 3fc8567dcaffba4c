"""Checks that the files of an SQLite database are still in their places; `commits` calls it at each commit.

A process can read and write an open file even after its name was removed, or after another file took its name (a
mounted volume, a copy). Such writes are lost when the process ends.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from pathlib import Path

# The database, its write-ahead log, and the index of the log in shared memory.
_SUFFIXES: Final = ("", "-wal", "-shm")
# The primary result codes in an operator's words (https://sqlite.org/rescode.html).
_MEANINGS: Final = {
    sqlite3.SQLITE_BUSY: "another process is writing",
    sqlite3.SQLITE_CANTOPEN: "a file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk fails",
    sqlite3.SQLITE_NOTADB: "the file is not a database",
    sqlite3.SQLITE_READONLY: "it is read-only",
}


class Files:
    """The open files, by device and inode: no other file has the same pair while they are open."""

    def __init__(self, path: Path) -> None:
        """The files of the database at `path`, which was opened and read. Raises `OSError`."""
        self._directory = path.parent
        self._names = [f"{path.name}{suffix}" for suffix in _SUFFIXES]
        self._paths = [f"{path}{suffix}" for suffix in _SUFFIXES]
        self._opened = [_identity(each) for each in self._paths]

    @property
    def database(self) -> tuple[int, int]:
        """The device and inode of the database."""
        return self._opened[0]

    def check(self) -> None:
        """Return if a process that starts now would open the same files. Raises `DatabaseUnavailable`."""
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
        """Whether only the log was removed, so that its content can be saved."""
        return [_is_there(*each) for each in zip(self._paths, self._opened, strict=True)] == [True, False, True]

    def log_bytes(self) -> int:
        """The length of the log. Raises `OSError`."""
        return os.stat(self._paths[1]).st_size  # noqa: PTH116 - as in `_identity`

    def are_writable(self) -> bool:
        """Whether permissions allow a process that opens the files now to write them."""
        return all(os.access(path, os.W_OK) for path in (self._directory, *self._paths))

    def reason(self, error: BaseException) -> str:
        """The reason for a failure in a few words, without a path."""
        code = getattr(error, "sqlite_errorcode", None)
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if code is None:
            return name
        return f"{self._read_only() or _MEANINGS.get(code & 0xFF, 'it fails')} ({name})"

    def _read_only(self) -> str:
        """The reason if the file system became read-only, which SQLite reports as a failing disk; else empty."""
        try:
            is_read_only = os.statvfs(self._directory).f_flag & os.ST_RDONLY
        except OSError:
            return ""
        return "its file system is read-only" if is_read_only else ""


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 - at each commit: making a Path takes longer than the system call
    return status.st_dev, status.st_ino


def _is_there(path: str, opened: tuple[int, int]) -> bool:
    try:
        return _identity(path) == opened
    except OSError:
        return False
