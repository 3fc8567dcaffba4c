"""Shows whether any process has committed: a number in memory that all processes of one SQLite file share.

`sqlite.view` reads it, `sqlite.commits` changes it. Asking SQLite would take a new read transaction, some microseconds
for each read; this takes one access to memory.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_BYTES: Final = 8


class LastCommit:
    """A number that changes with every commit, and never returns to an earlier value.

    It is random. A count would not work: two processes that commit together could write the same or an older value.
    """

    def __init__(self, path: Path) -> None:
        """Share the file at `path` from `share` on; until then no other process sees the number."""
        self._path = path
        # One element: the number.
        self.numbers = memoryview(bytearray(_BYTES)).cast("Q")
        # Other processes see the number. False if the file cannot be made, on a full or a read-only disk.
        self.is_shared = False

    def advance(self) -> None:
        """Change the number; call this after the commit, and before its callers get the outcome."""
        if not self.is_shared:  # the disk has room again: the commit succeeded
            self.share()
        self.numbers[0] = int.from_bytes(os.urandom(_BYTES))

    def share(self) -> None:
        """Share the file, and make it if it does not exist."""
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                # Write before mapping: a full disk is an error here, but would kill the process in mapped memory.
                os.pwrite(descriptor, os.urandom(_BYTES), 0)
                self.numbers = memoryview(mmap.mmap(descriptor, _BYTES)).cast("Q")
            finally:
                os.close(descriptor)
            self.is_shared = True
