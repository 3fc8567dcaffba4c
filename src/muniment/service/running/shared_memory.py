"""Files in which the processes of a data directory share numbers; all of them are read and written, never mapped.

A process that touches a mapped page is killed (SIGBUS) where the disk is full or the file was shortened. Here the room
on the disk is reserved when a file is opened, which may raise `OSError`. After that, what is missing in a shortened
file reads as zeros, and the next write lengthens the file again. An access takes less than a microsecond.
"""

from __future__ import annotations

import os
import struct
import sys
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CELL: Final = struct.Struct("=q")
BYTE: Final = struct.Struct("B")


def open_shared(path: Path) -> int:
    """A descriptor of the file at `path`, created if it does not exist. Raises `OSError`, also for a symbolic link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def reserve(descriptor: int, size: int) -> None:
    """Make the file at least `size` bytes long, with room on the disk. Raises `OSError`.

    A longer file keeps its length: a process of another release may use the rest.
    """
    if os.fstat(descriptor).st_size < size:
        os.ftruncate(descriptor, size)
    if sys.platform == "linux":
        os.posix_fallocate(descriptor, 0, size)


class SharedFile:
    """A file of at least `size` bytes."""

    def __init__(self, path: Path, size: int, *, new: Callable[[int], bytes] | None = None) -> None:
        """Open the file at `path`, or create it with the bytes of `new` (zeros by default). Raises `OSError`."""
        self.descriptor = open_shared(path)
        weakref.finalize(self, os.close, self.descriptor)
        is_short = os.fstat(self.descriptor).st_size < size
        reserve(self.descriptor, size)
        if is_short and new is not None:
            os.pwrite(self.descriptor, new(size), 0)

    def read(self, start: int, length: int) -> bytes:
        """The `length` bytes from `start` on. Raises `OSError`."""
        return os.pread(self.descriptor, length, start).ljust(length, b"\0")

    def write(self, start: int, data: bytes) -> None:
        """Write `data` from `start` on. Raises `OSError`."""
        os.pwrite(self.descriptor, data, start)


class Cells:
    """Numbers in a file, by default signed ones of 64 bits. A number that cannot be written is lost."""

    __slots__ = ("_descriptor", "_file", "_pack", "_size", "_start", "_unpack")

    def __init__(self, file: SharedFile, start: int = 0, *, of: struct.Struct = CELL) -> None:
        """The first number is at the byte `start`."""
        self._file = file  # which closes its descriptor when it is collected
        self._descriptor = file.descriptor
        self._start, self._size = start, of.size
        self._pack, self._unpack = of.pack, of.unpack

    def __getitem__(self, at: int) -> int:
        """0 where the file was shortened."""
        try:
            return self._unpack(os.pread(self._descriptor, self._size, self._start + self._size * at))[0]
        except (OSError, struct.error):
            return 0

    def __setitem__(self, at: int, number: int) -> None:
        try:  # noqa: SIM105 - `suppress` costs more than the rest of a charge
            os.pwrite(self._descriptor, self._pack(number), self._start + self._size * at)
        except OSError:
            pass
