"""Whether anybody on this machine has committed: a number in memory that all processes with one SQLite file share.

Asking SQLite costs the locks of a new read transaction, some microseconds for each read; this costs a look at memory.
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
    """A number that is another one after every commit, and never one that it was before.

    It is random: of a count, two processes that commit at once could write the same value, or an older one.
    """

    def __init__(self, path: Path) -> None:
        """Share the file at `path` from `share` on; until then nobody else is told of commits, or tells."""
        self._path = path
        # The one number, as the machine's processes see it.
        self.numbers = memoryview(bytearray(_BYTES)).cast("Q")
        # The others see it. Not where the file cannot be made, on a full or a read-only disk.
        self.is_shared = False

    def advance(self) -> None:
        """Tell everybody of a commit that is done, before anybody is told of its success."""
        if not self.is_shared:  # there is room for a commit by now
            self.share()
        self.numbers[0] = int.from_bytes(os.urandom(_BYTES))

    def share(self) -> None:
        """Share the file, which is made where there is none."""
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                # It has its place on the disk before it is memory, where a full disk would end the process.
                os.pwrite(descriptor, os.urandom(_BYTES), 0)
                self.numbers = memoryview(mmap.mmap(descriptor, _BYTES)).cast("Q")
            finally:
                os.close(descriptor)
            self.is_shared = True
