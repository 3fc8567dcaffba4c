"""The time of each client's last write: a table that all processes of a data directory share.

`replicated` uses it. The table has a fixed number of cells, and the hash of a client's name selects its cell, so the
table never grows. Two clients in one cell count as one: both read from the primary for a while, which is always safe.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from zlib import crc32

from muniment.service.running.shared_memory import CELL, Cells, SharedFile

if TYPE_CHECKING:
    from pathlib import Path

# 512 KiB. If a thousand clients have just written, one in 66 other clients shares a cell with one of them.
CELLS: Final = 65_536


class RecentWriters:
    """For each client a time in nanoseconds of the monotonic clock, which all processes of a machine share."""

    def __init__(self, path: Path) -> None:
        """Share the file at `path`. Raises `OSError`."""
        self._times = Cells(SharedFile(path, CELLS * CELL.size))

    def note(self, client: str) -> None:
        """Note that a write of `client` was committed just now."""
        self._times[_cell(client)] = time.monotonic_ns()

    def last_ns(self, client: str, now_ns: int) -> int:
        """The time of the last write of `client`, 0 if unknown. A future time is from before a restart."""
        noted = self._times[_cell(client)]
        return noted if noted <= now_ns else 0


def _cell(client: str) -> int:
    return crc32(client.encode()) % CELLS
