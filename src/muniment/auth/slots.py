"""The slot of the last nonce of each address: a table in memory, shared by all processes of one data directory.

Devices of one owner that ask for nonces at the same time get different slots, whichever process answers them. The table
is only a hint: if it is lost, or the devices ask different machines, one of them may need a second try.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from zlib import crc32

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

# Logins of one owner in a window. Each further slot costs a failing login two more recoveries of 30 µs.
SLOTS: Final = 8
# Its name in the data directory.
SLOTS_FILE: Final = "nonce-slots"
# A byte each. Addresses that share one get slots after each other's, which does no harm.
CELLS: Final = 65_536
# A process holds the lock for microseconds, unless it is stopped meanwhile: then the others do without.
_TRIES: Final = 100

_log = structlog.get_logger(__name__)


class LastSlots:
    """The table as one process uses it. The file is made when the first nonce is given."""

    def __init__(self, path: Path, random_bytes: Callable[[int], bytes]) -> None:
        """Share the file at `path`. A new one begins by chance, so that machines differ."""
        self._path = path
        self._random_bytes = random_bytes
        self._descriptor: int | None = None
        self._cells: memoryview | None = None

    def take(self, address: bytes, free: list[int]) -> int:
        """The slot of `free`, which is sorted and not empty, that follows the last one given to `address`."""
        cells, cell = self._opened(), _cell(address)
        with self._alone():
            last = cells[cell] % SLOTS
            slot = next((slot for slot in free if slot > last), free[0])
            cells[cell] = slot
        return slot

    def _opened(self) -> memoryview:
        if self._cells is None:
            try:
                self._cells = self._shared()
            except OSError as error:
                _log.warning("the slots of nonces are not shared with other processes", error=str(error))
                self._cells = memoryview(bytearray(self._random_bytes(CELLS)))
        return self._cells

    def _shared(self) -> memoryview:
        """The table in the file. Raises `OSError`."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        weakref.finalize(self, os.close, descriptor)
        # Write before mapping: a full disk is an error here, but would kill the process in mapped memory.
        if os.fstat(descriptor).st_size < CELLS:
            os.pwrite(descriptor, self._random_bytes(CELLS), 0)
        if os.fstat(descriptor).st_size < CELLS:
            raise OSError("the disk is full")
        self._descriptor = descriptor
        return memoryview(mmap.mmap(descriptor, CELLS))

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Alone with the table, if that is possible without a wait that others could make long."""
        descriptor = self._descriptor
        if descriptor is None:
            yield
            return
        for _ in range(_TRIES):
            with suppress(OSError):
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                break
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, 0)


def _cell(address: bytes) -> int:
    return crc32(address) % CELLS
