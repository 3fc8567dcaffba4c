"""The numbers of all metrics of a process, and those of the other processes of its data directory.

A process counts in memory of its own, so that no count needs a lock, a system call or a disk. Every second, and before
it answers with the metrics, it writes its numbers to the file that the processes share.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import structlog

from muniment.service.running.metrics.families import LAYOUT, family_of
from muniment.service.running.metrics.shared_file import (
    NAME_BYTES_MAX,
    SERIES_MAX,
    VALUES,
    DamagedError,
    SharedFile,
    remove_unused,
)

if TYPE_CHECKING:
    from pathlib import Path

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
