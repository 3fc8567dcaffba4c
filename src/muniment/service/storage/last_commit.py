"""Shows whether any process commits or has committed: two numbers that all processes of an SQLite file share.

`sqlite.view` reads them, `sqlite.commits` changes them. Asking SQLite would take a new read transaction, some
microseconds for each read; this takes half a microsecond.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from muniment.service.running.shared_memory import SharedFile

if TYPE_CHECKING:
    from pathlib import Path

_PAIR: Final = struct.Struct("=QQ")
# Two different numbers.
_UNDER_WAY: Final = 0, 1


class LastCommit:
    """The number of the commit that began last, and of the one that ended last: they differ while one is under way.

    Between a commit and its end some processes can see it already, those whose view begins then. So what a process has
    read is what all would read only if no commit was under way.

    A number never returns to an earlier value. It is random: of two processes that count together, one could write an
    older value.
    """

    def __init__(self, path: Path) -> None:
        """Share the file at `path` from `share` on; until then no other process sees the numbers."""
        self._path = path
        self._file: SharedFile | None = None
        self._own = bytearray(_PAIR.size)

    @property
    def is_shared(self) -> bool:
        """Whether other processes see the numbers: not where the file cannot be written."""
        return self._file is not None

    def numbers(self) -> tuple[int, int]:
        """The number of the commit that began last, and of the one that ended last."""
        file = self._file
        try:
            return _PAIR.unpack(self._own if file is None else os.pread(file.descriptor, _PAIR.size, 0))
        except (OSError, struct.error):  # the file was shortened: a commit may be under way
            return _UNDER_WAY

    def begin(self) -> int:
        """Note that a commit begins, under SQLite's write lock; the number of the commit, for `end`."""
        if self._file is None:  # the disk may have room again
            self.share()
        number = int.from_bytes(os.urandom(8))
        self._write(0, _PAIR.pack(number, 0))
        return number

    def end(self, number: int) -> None:
        """Note that a commit has ended, with success or without; call this before its callers get the outcome.

        If another commit has begun meanwhile, that commit will note its end.
        """
        if self.numbers()[0] == number:
            self._write(_PAIR.size // 2, _PAIR.pack(number, number)[_PAIR.size // 2 :])

    def share(self) -> None:
        """Share the file, and create it if it does not exist."""
        with suppress(OSError):
            self._file = SharedFile(self._path, _PAIR.size)

    def _write(self, start: int, data: bytes) -> None:
        self._own[start : start + len(data)] = data
        if self._file is not None:
            try:
                self._file.write(start, data)
            except OSError:  # a disk that is full or read-only
                self._file = None
