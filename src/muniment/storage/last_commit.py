"""Shows whether any process commits or has committed: two numbers in memory, shared by all processes of an SQLite file.

`sqlite.view` reads them, `sqlite.commits` changes them. Asking SQLite would take a new read transaction, some
microseconds for each read; this takes two accesses to memory.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_BYTES: Final = 16


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
        # Two elements: the number of the commit that began last, and of the one that ended last.
        self.numbers = memoryview(bytearray(_BYTES)).cast("Q")
        # Other processes see the numbers. False if the file cannot be made, on a full or a read-only disk.
        self.is_shared = False

    def begin(self) -> int:
        """Note that a commit begins, under SQLite's write lock; the number of the commit, for `end`."""
        if not self.is_shared:  # the disk may have room again
            self.share()
        number = int.from_bytes(os.urandom(_BYTES // 2))
        self.numbers[0] = number
        return number

    def end(self, number: int) -> None:
        """Note that a commit has ended, with success or without; call this before its callers get the outcome.

        If another one has begun meanwhile, that one will note its end.
        """
        if self.numbers[0] == number:
            self.numbers[1] = number

    def share(self) -> None:
        """Share the file, and make it if it does not exist."""
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                # Write before mapping: a full disk is an error here, but would kill the process in mapped memory. What
                # is there stays: another process may be committing.
                if os.fstat(descriptor).st_size < _BYTES:
                    os.pwrite(descriptor, bytes(_BYTES), 0)
                self.numbers = memoryview(mmap.mmap(descriptor, _BYTES)).cast("Q")
            finally:
                os.close(descriptor)
            self.is_shared = True
