"""The file in which the processes of a data directory show their numbers to each other.

It begins with a list of series, which only grows. Then it has a region for each process, and in every region a series
has the same place. A process writes its own region alone. It holds the region by a lock on one byte of the file, which
the system releases when the process ends. The next process to start takes the region and counts on from its numbers.
"""

from __future__ import annotations

import fcntl
import os
import struct
from array import array
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from muniment.service.running.shared_memory import open_shared, reserve

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

# Requests take most: 35 routes with 2 methods on average and 18 numbers, and each with some ten statuses. Queries and
# chains take a thousand numbers.
SERIES_MAX: Final = 2_048
VALUES: Final = 8_192
# `serve` has at most 64 workers; watchers are few.
_REGIONS_MAX: Final = 96

# The number of series; then for each series the length of its name and its numbers, and the name.
_COUNT: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<HH")
_ENTRY_BYTES: Final = 160
NAME_BYTES_MAX: Final = _ENTRY_BYTES - _ENTRY.size
_HEAD_BYTES: Final = _ENTRY_BYTES * SERIES_MAX + 16 * 1024
_REGION_BYTES: Final = VALUES * 8


class DamagedError(Exception):
    """The file is damaged: the machine lost power during a write, or the file was shortened."""


class SharedFile:
    """The file as this process uses it, with one descriptor: closing a second descriptor would release its locks."""

    _opened: Final[dict[tuple[int, int], SharedFile]] = {}

    def __init__(self, descriptor: int) -> None:
        """Use `descriptor`, which is closed with the last region."""
        found = os.fstat(descriptor)
        self._descriptor = descriptor
        self._held: set[int] = set()
        self._name = found.st_dev, found.st_ino
        self._opened[self._name] = self

    @classmethod
    def at(cls, path: Path) -> SharedFile:
        """The file at `path`, created if it does not exist. Raises `OSError`."""
        with suppress(FileNotFoundError):
            found = path.lstat()
            if (opened := cls._opened.get((found.st_dev, found.st_ino))) is not None:
                return opened
        return cls(open_shared(path))

    def take_region(self) -> int:
        """The first free region, with room on the disk. Raises `OSError` when all are in use."""
        for region in range(_REGIONS_MAX):
            if self._takes(region):
                self._held.add(region)
                try:
                    with self.alone():
                        reserve(self._descriptor, _end_of(region))
                except OSError:
                    self.release(region)
                    raise
                return region
        self._close_unheld()
        raise OSError(f"{_REGIONS_MAX} processes count already")

    def release(self, region: int) -> None:
        """Release a region."""
        self._held.remove(region)
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, 1 + region)
        self._close_unheld()

    def _close_unheld(self) -> None:
        if not self._held:
            del self._opened[self._name]
            os.close(self._descriptor)

    def _takes(self, region: int) -> bool:
        """Take the region if it is free; whether it was taken."""
        if region in self._held:
            return False
        with suppress(BlockingIOError, PermissionError):  # lockf(3): another process holds it
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1 + region)
            return True
        return False

    def _is_held(self, region: int) -> bool:
        """Whether a process holds the region. A process that starts at this moment may take the next region."""
        if region in self._held:
            return True
        if not self._takes(region):
            return True
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, 1 + region)
        return False

    @contextmanager
    def alone(self) -> Generator[None]:
        """Lock the list of series, by the first byte of the file."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 1, 0)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, 0)

    def read_series(self, known: int) -> list[tuple[str, int]]:
        """The series after the first `known`, each with its name and its count of numbers. Raises `DamagedError`."""
        count: int = _COUNT.unpack(self._read(0, _COUNT.size))[0]
        if not known <= count <= SERIES_MAX:
            raise DamagedError("the list of metrics is damaged")
        entries = self._read(_COUNT.size + known * _ENTRY_BYTES, (count - known) * _ENTRY_BYTES)
        found: list[tuple[str, int]] = []
        for start in range(0, len(entries), _ENTRY_BYTES):
            length, width = _ENTRY.unpack_from(entries, start)
            name = entries[start + _ENTRY.size : start + _ENTRY.size + min(length, NAME_BYTES_MAX)]
            found.append((name.decode("ascii", "replace"), width))
        return found

    def add_series(self, number: int, name: str, width: int) -> None:
        """Append a series after the first `number`, under the lock of the list."""
        text = name.encode()
        os.pwrite(self._descriptor, _ENTRY.pack(len(text), width) + text, _COUNT.size + number * _ENTRY_BYTES)
        os.pwrite(self._descriptor, _COUNT.pack(number + 1), 0)  # last: without it the entry is not there

    def read_region(self, region: int, count: int) -> array[float]:
        """The first `count` numbers of a region. Raises `DamagedError`."""
        return array("d", self._read(_end_of(region) - _REGION_BYTES, count * 8))

    def write_region(self, region: int, numbers: memoryview) -> None:
        """Write the first numbers of a region. Raises `DamagedError` when the file was shortened."""
        if os.fstat(self._descriptor).st_size < _end_of(region):
            raise DamagedError("the file of metrics was shortened while it was used")
        os.pwrite(self._descriptor, numbers, _end_of(region) - _REGION_BYTES)

    def read_others(self, region: int, count: int) -> list[tuple[array[float], bool]]:
        """The first `count` numbers of all other regions, and whether a process holds it. Raises `DamagedError`."""
        regions = (os.fstat(self._descriptor).st_size - _HEAD_BYTES) // _REGION_BYTES
        return [(self.read_region(other, count), self._is_held(other)) for other in range(regions) if other != region]

    def _read(self, start: int, length: int) -> bytes:
        found = os.pread(self._descriptor, length, start)
        if len(found) < length:
            raise DamagedError("the file of metrics was shortened while it was used")
        return found


def remove_unused(directory: Path, kept: Path) -> None:
    """Remove files of other layouts, unless a process of another release uses them."""
    for path in directory.glob("metrics-*"):
        if path == kept:
            continue
        with suppress(OSError):  # in use
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def _end_of(region: int) -> int:
    return _HEAD_BYTES + (region + 1) * _REGION_BYTES
