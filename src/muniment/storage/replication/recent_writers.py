"""When each client wrote last: a table of times in memory that all processes of one data directory share.

A client has one of a fixed number of slots, by a hash of its name, so the table neither grows nor forgets. Two clients
in one slot count as one: then the other, too, is answered by the primary for a while, which is never wrong.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from pathlib import Path

# With a thousand clients that have written within a replica's lag, one of 66 others is taken for one of them. 512 KiB.
SLOTS: Final = 65_536
_SLOT_BYTES: Final = 8


class RecentWriters:
    """Nanoseconds of the machine's monotonic clock, which its processes have in common, by client."""

    def __init__(self, path: Path) -> None:
        """Share the file at `path`, which is made where there is none. Raises `OSError`."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(descriptor, SLOTS * _SLOT_BYTES)
            self._times = memoryview(mmap.mmap(descriptor, SLOTS * _SLOT_BYTES)).cast("q")
        finally:
            os.close(descriptor)

    def note(self, client: str) -> None:
        """`client` has written, and that is committed by now."""
        self._times[_slot(client)] = time.monotonic_ns()

    def last_ns(self, client: str, now_ns: int) -> int:
        """When `client` wrote last, 0 if that is not known. A time to come is from before the machine was restarted."""
        noted = self._times[_slot(client)]
        return noted if noted <= now_ns else 0


def _slot(client: str) -> int:
    return crc32(client.encode()) % SLOTS
