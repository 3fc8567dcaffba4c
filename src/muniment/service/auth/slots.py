"""The slot of the last nonce of each address: a table that all processes of a data directory share.

Devices of one owner that ask for nonces at the same time get different slots, whichever process answers them. The table
is only a hint: if it is lost, or the devices ask different machines, one of them may need a second try.
"""

from __future__ import annotations

import fcntl
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from zlib import crc32

import structlog

from muniment.service.running.shared_memory import BYTE, Cells, SharedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

# Logins of one owner in a window. Each further slot costs a failing login two more recoveries of 30 µs.
SLOTS: Final = 8
# Its name in the data directory.
SLOTS_FILE: Final = "nonce-slots"
# A byte each. Addresses that share one get slots after each other's, which does no harm.
CELLS: Final = 65_536
# A process holds the lock for microseconds. If it is stopped meanwhile, the others go on without the lock.
_TRIES: Final = 100

_log = structlog.get_logger(__name__)


class LastSlots:
    """The table as one process uses it. The file is created when the first nonce is issued."""

    def __init__(self, path: Path, random_bytes: Callable[[int], bytes]) -> None:
        """Share the file at `path`. A new file begins with random slots, so that machines differ."""
        self._path = path
        self._random_bytes = random_bytes
        self._descriptor: int | None = None
        self._cells: Cells | bytearray | None = None

    def take(self, address: bytes, free: list[int]) -> int:
        """The slot of `free`, which is sorted and not empty, that follows the last one issued to `address`."""
        if self._cells is None:
            self._cells = self._open()
        cell = crc32(address) % CELLS
        with self._alone():
            last = self._cells[cell] % SLOTS
            slot = next((slot for slot in free if slot > last), free[0])
            self._cells[cell] = slot
        return slot

    def _open(self) -> Cells | bytearray:
        try:
            file = SharedFile(self._path, CELLS, new=self._random_bytes)
        except OSError as error:
            _log.warning("the slots of nonces are not shared with other processes", error=str(error))
            return bytearray(self._random_bytes(CELLS))
        self._descriptor = file.descriptor
        return Cells(file, of=BYTE)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Lock the table, unless another process holds the lock for long."""
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
