"""The numbers of all metrics of a process and of the other processes of its data directory, and all of them as text.

A process counts in memory of its own, so that no count needs a lock, a system call or a disk. Every second, and before
it answers with the metrics, it writes its numbers to the file that the processes share.

The file begins with a list of series, which only grows. Then it has a region for each process, and in every region a
series has the same place. A process writes its own region alone. It holds the region by a lock on one byte of the file,
which the system releases when the process ends. The next process to start takes the region and counts on from its
numbers.
"""

from __future__ import annotations

import fcntl
import os
import struct
from array import array
from collections import defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import structlog

from muniment.service.running.metrics.families import FAMILIES, LAYOUT, PREFIX, Family, Kind, family_of
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
        """The first `count` numbers of all other regions, and whether each is held. Raises `DamagedError`."""
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


# The numbers at the end are for series without a place. They are never read.
_SPARE: Final = VALUES - 32

_log = structlog.get_logger(__name__)


class Series(NamedTuple):
    """A series: its name, the place of its first number in a region, and how many numbers it has."""

    name: str
    place: int
    width: int


class Values:
    """The numbers of one process, and access to those of the other processes."""

    def __init__(self, file: SharedFile | None = None, region: int = 0) -> None:
        """Show the numbers in `region` of `file`; without a file, they are of this process alone.

        Raises `OSError` and `DamagedError`.
        """
        self._file = file
        self.region = region
        self._series: list[Series] = []
        self._places: dict[str, int] = {}
        self._end = 0
        # The numbers of this process. Counters add to this `memoryview` directly, for speed.
        self._bytes = memoryview(bytearray(VALUES * 8))
        self.own: memoryview[float] = self._bytes.cast("d")
        if file is not None:
            self._read_new(file)
            self.own[:] = file.read_region(region, VALUES)

    @classmethod
    def of_process(cls) -> Self:
        """Numbers of this process alone."""
        return cls()

    @classmethod
    def at(cls, directory: Path) -> Self:
        """Share the file in `directory`. Raises `OSError`."""
        path = directory / f"metrics-{LAYOUT}"
        remove_unused(directory, path)
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
        file = SharedFile.at(path)
        region = file.take_region()
        try:
            return cls(file, region)
        except BaseException:
            file.release(region)
            raise

    def close(self) -> None:
        """Write the numbers, and release the region. A process that is about to end can still count."""
        self.save()
        self._leave_file()

    def save(self) -> None:
        """Write the numbers to the file, if there is one."""
        if self._file is None:
            return
        try:
            self._file.write_region(self.region, self._bytes[: self._end * 8])
        except DamagedError as error:
            self._stop_sharing(error)
        except OSError as error:  # the next second may succeed
            _log.warning("metrics were not written", reason=str(error))

    def place(self, name: str, width: int) -> int:
        """The place of a series, new or known; an unread spare place when the list is full."""
        if name not in self._places and self._file is not None:
            try:
                with self._file.alone():
                    self._read_new(self._file)
                    if name not in self._places and self._has_room(name, width):
                        self._file.add_series(len(self._series), name, width)
                        self._enter(name, width)
            except (DamagedError, OSError) as error:
                self._stop_sharing(error)
        if name not in self._places:
            if self._has_room(name, width):
                self._enter(name, width)
            else:
                self._places[name] = _SPARE
        return self._places[name]

    def series(self) -> list[Series]:
        """Every series that any process has entered."""
        if self._file is not None:
            try:
                self._read_new(self._file)
            except (DamagedError, OSError) as error:
                self._stop_sharing(error)
        return self._series

    def regions(self) -> list[tuple[array[float], bool]]:
        """The numbers of each region in the file, and whether its process runs.

        The own numbers are written first: what was shown once is in the file, so that no sum goes back when this
        process is killed.
        """
        self.save()
        found = [(array("d", self.own[: self._end]), True)]
        if self._file is not None:
            try:
                found += self._file.read_others(self.region, self._end)
            except (DamagedError, OSError) as error:
                self._stop_sharing(error)
        return found

    def _read_new(self, file: SharedFile) -> None:
        """Read the series that were added since the last call. Raises `DamagedError`."""
        for name, width in file.read_series(len(self._series)):
            family = family_of(name)
            if family is None or family.width != width or self._end + width > _SPARE:
                raise DamagedError("the list of metrics is damaged")
            self._enter(name, width)

    def _has_room(self, name: str, width: int) -> bool:
        is_short = len(name.encode()) <= NAME_BYTES_MAX
        return is_short and len(self._series) < SERIES_MAX and self._end + width <= _SPARE

    def _enter(self, name: str, width: int) -> None:
        self._series.append(Series(name, self._end, width))
        self._places[name] = self._end
        self._end += width

    def _stop_sharing(self, error: Exception) -> None:
        """Count for this process alone from now on."""
        _log.warning("metrics are counted by each process for itself until it starts again", reason=str(error))
        self._leave_file()

    def _leave_file(self) -> None:
        if self._file is not None:
            self._file.release(self.region)
            self._file = None


MEDIA_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_Regions = list[tuple["array[float]", bool]]


def render(values: Values) -> bytes:
    """The metrics of all processes together. Every metric has its two comment lines, also without a series."""
    by_family: defaultdict[str, list[Series]] = defaultdict(list)
    for each in values.series():
        if (family := family_of(each.name)) is not None:
            by_family[family.name].append(each)
    regions = values.regions()
    lines: list[str] = []
    for family in FAMILIES:
        lines += (f"# HELP {PREFIX}{family.name} {family.help}", f"# TYPE {PREFIX}{family.name} {family.type}")
        for each in sorted(by_family[family.name]):
            lines += _lines(family, each, regions)
    return "\n".join([*lines, ""]).encode()


def _lines(family: Family, series: Series, regions: _Regions) -> list[str]:
    """The lines of one series; empty for a gauge that no running process has set."""
    place = series.place
    if family.kind is Kind.COUNTER:
        return [f"{PREFIX}{series.name} {_number(sum(numbers[place] for numbers, _ in regions))}"]
    if family.kind is Kind.SUM:
        total = sum(numbers[place] for numbers, is_running in regions if is_running)
        return [f"{PREFIX}{series.name} {_number(total)}"]
    if family.kind is Kind.LATEST:
        time_s, value = max((numbers[place + 1], numbers[place]) for numbers, is_running in regions if is_running)
        return [f"{PREFIX}{series.name} {_number(value)}"] if time_s else []
    return _histogram_lines(family, series, regions)


def _histogram_lines(family: Family, series: Series, regions: _Regions) -> list[str]:
    *buckets, total = (
        sum(column)
        for column in zip(*(numbers[series.place : series.place + series.width] for numbers, _ in regions), strict=True)
    )
    name, _, labels = series.name.partition("{")
    labels = labels.rstrip("}")
    before = f"{labels}," if labels else ""
    lines: list[str] = []
    count = 0.0
    for bound, size in zip((*map(_number, family.buckets), "+Inf"), buckets, strict=True):
        count += size
        lines.append(f'{PREFIX}{name}_bucket{{{before}le="{bound}"}} {_number(count)}')
    braces = f"{{{labels}}}" if labels else ""
    return [*lines, f"{PREFIX}{name}_sum{braces} {_number(total)}", f"{PREFIX}{name}_count{braces} {_number(count)}"]


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
