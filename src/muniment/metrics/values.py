"""The numbers of all metrics, in one file in memory that the processes of a data directory share.

The file begins with a list of series, which only grows. Then it has a region for each process, and in every region a
series has the same place. A process writes into its own region alone, so that no count needs a lock. It holds the
region by a lock on one byte of the file, which the system releases when the process ends. The next process to start
takes the region and counts on from its numbers.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
from array import array
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from muniment.metrics.families import LAYOUT, family_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

# Requests take most: 35 routes with 2 methods on average and 18 numbers, and each with some ten statuses. Queries and
# chains take a thousand numbers.
SERIES_MAX: Final = 2_048
_VALUES: Final = 8_192
# The numbers at the end are for series without a place. They are never read.
_SPARE: Final = _VALUES - 32
# `serve` has at most 64 workers; watchers are few.
_REGIONS_MAX: Final = 96

# The number of series; then for each series the length of its name and its numbers, and the name.
_COUNT: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<HH")
_ENTRY_BYTES: Final = 160
# A multiple of the page of every system (16 KiB on Apple's processors), as the regions begin behind it.
_HEAD_BYTES: Final = _ENTRY_BYTES * SERIES_MAX + 16 * 1024
_REGION_BYTES: Final = _VALUES * 8


class Series(NamedTuple):
    """A series: its name, the place of its first number in a region, and how many numbers it has."""

    name: str
    place: int
    width: int


class DamagedError(Exception):
    """The file of a layout does not hold that layout: the machine lost power while it was written."""


class Values:
    """The numbers of one process, and what is needed to read those of the others."""

    def __init__(self, head: mmap.mmap, own: mmap.mmap, *, region: int, descriptor: int | None) -> None:
        """Write into `own`, the region with the number `region`. Raises `DamagedError`."""
        self._head = head
        # The numbers of this process. Whoever counts adds to them directly: `memoryview` is the quickest shared memory.
        self.own: memoryview[float] = memoryview(own).cast("d")
        self.region = region
        self._descriptor = descriptor
        self._series: list[Series] = []
        self._places: dict[str, int] = {}
        self._end = 0
        self._read_new()

    @classmethod
    def of_process(cls) -> Self:
        """Numbers of this process alone."""
        return cls(mmap.mmap(-1, _HEAD_BYTES), mmap.mmap(-1, _REGION_BYTES), region=0, descriptor=None)

    @classmethod
    def at(cls, directory: Path) -> Self:
        """Share the file in `directory`, which is made where there is none. Raises `OSError`."""
        path = directory / f"metrics-{LAYOUT}"
        _remove_unused(directory, path)
        try:
            return cls._open(path)
        except DamagedError:
            path.unlink(missing_ok=True)
        try:
            return cls._open(path)
        except DamagedError as error:
            raise OSError(str(error)) from error

    @classmethod
    def _open(cls, path: Path) -> Self:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            region = _take_region(descriptor)
            start = _HEAD_BYTES + region * _REGION_BYTES
            with _directory_lock(descriptor):
                _lengthen(descriptor, start + _REGION_BYTES)
            head = mmap.mmap(descriptor, _HEAD_BYTES)
            own = mmap.mmap(descriptor, _REGION_BYTES, offset=start)
            return cls(head, own, region=region, descriptor=descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def close(self) -> None:
        """Give the region back. The numbers can still be written, by a process that is about to end."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def place(self, name: str, width: int) -> int:
        """The place of a series, which is entered where it is new; one that is not read when the list is full."""
        if (place := self._places.get(name)) is not None:
            return place
        text = name.encode()
        with _directory_lock(self._descriptor):
            self._read_new()
            if name in self._places:
                return self._places[name]
            number = len(self._series)
            if number == SERIES_MAX or self._end + width > _SPARE or _ENTRY.size + len(text) > _ENTRY_BYTES:
                self._places[name] = _SPARE
                return _SPARE
            start = _COUNT.size + number * _ENTRY_BYTES
            self._head[start : start + _ENTRY.size + len(text)] = _ENTRY.pack(len(text), width) + text
            _COUNT.pack_into(self._head, 0, number + 1)  # last: without it the entry is not there
            self._read_new()
        return self._places[name]

    def series(self) -> list[Series]:
        """Every series that any process has entered."""
        self._read_new()
        return self._series

    def regions(self) -> list[tuple[array[float], bool]]:
        """The numbers of each region that was ever used, and whether its process runs."""
        used = self._end
        own = array("d", self.own[:used])
        if self._descriptor is None:
            return [(own, True)]
        count = (os.fstat(self._descriptor).st_size - _HEAD_BYTES) // _REGION_BYTES
        found = [(own, True)]
        for region in range(count):
            if region != self.region:
                numbers = array("d", os.pread(self._descriptor, used * 8, _HEAD_BYTES + region * _REGION_BYTES))
                found.append((numbers, not _is_free(self._descriptor, region)))
        return found

    def _read_new(self) -> None:
        """Read the entries that were added since the last call. Raises `DamagedError`."""
        count: int = _COUNT.unpack_from(self._head, 0)[0]
        if count > SERIES_MAX:
            raise DamagedError("the list of metrics is damaged")
        for number in range(len(self._series), count):
            start = _COUNT.size + number * _ENTRY_BYTES
            length, width = _ENTRY.unpack_from(self._head, start)
            text = self._head[start + _ENTRY.size : start + _ENTRY.size + min(length, _ENTRY_BYTES)]
            name = text.decode("ascii", "replace")
            family = family_of(name)
            if family is None or family.width != width or self._end + width > _SPARE:
                raise DamagedError("the list of metrics is damaged")
            self._series.append(Series(name, self._end, width))
            self._places[name] = self._end
            self._end += width


def _take_region(descriptor: int) -> int:
    """The first region that no running process holds. Raises `OSError` when there is none."""
    for region in range(_REGIONS_MAX):
        with suppress(BlockingIOError, PermissionError):  # lockf(3): either says that another process holds it
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1 + region)
            return region
    raise OSError(f"{_REGIONS_MAX} processes count already")


def _is_free(descriptor: int, region: int) -> bool:
    """Whether no process holds the region. A process that starts at this moment may take the next one."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1 + region)
    except (BlockingIOError, PermissionError):
        return False
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, 1 + region)
    return True


@contextmanager
def _directory_lock(descriptor: int | None) -> Generator[None]:
    """Alone with the list of series: by a lock on the first byte of the file."""
    if descriptor is None:
        yield
        return
    fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, 0)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, 0)


def _lengthen(descriptor: int, size: int) -> None:
    """Make the file at least `size` bytes long, with room on the disk: a write without room would kill the process."""
    if os.fstat(descriptor).st_size < size:
        os.ftruncate(descriptor, size)
    if sys.platform == "linux":
        os.posix_fallocate(descriptor, 0, size)


def _remove_unused(directory: Path, kept: Path) -> None:
    """Remove the files of other layouts, which other releases used, unless a process of such a release runs."""
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
