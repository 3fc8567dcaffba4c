"""The clocks of a machine's processes in shared memory, to find a clock that differs from the others.

All processes read one monotonic clock, so their offsets from it can be compared. No process can know the right time.
But a process whose clock stepped knows that, and publishes no time until its clock was steady again. Of the published
times the majority counts; of two groups of the same size, the one with the clock that has been steady for longest.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.clock.steadiness import APART_MS_MAX

if TYPE_CHECKING:
    from pathlib import Path

# Places in the table. A process without a place only reads the times of the others.
SLOTS: Final = 64
# A process that has not written for so long has ended: long enough for some turns of a process without a processor.
BEAT_MS_MAX: Final = 10_000
_FIELDS: Final = 4  # who, when, offset, steady since
_BYTES: Final = SLOTS * _FIELDS * 8


class Voice(NamedTuple):
    """The published clock of a process: the monotonic time since which it is steady, and its offset. Milliseconds."""

    since_ms: int
    offset_ms: int

    def is_near(self, other: Voice) -> bool:
        """Whether the two show the same time."""
        return abs(self.offset_ms - other.offset_ms) <= APART_MS_MAX


class Neighbours:
    """The table that the processes of one data directory share, and this process's place in it."""

    def __init__(self, path: Path, random_bytes: Callable[[int], bytes]) -> None:
        """Share the file at `path`, which is made where there is none. Raises `OSError`."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(descriptor, _BYTES)
            if sys.platform == "linux":  # writing to a page without room on the disk would kill the process
                os.posix_fallocate(descriptor, 0, _BYTES)
            self._cells = memoryview(mmap.mmap(descriptor, _BYTES)).cast("q")
        finally:
            os.close(descriptor)
        self._id = int.from_bytes(random_bytes(8)) >> 1 or 1
        self._slot: int | None = None

    def publish(self, own: Voice | None, now_ms: int) -> None:
        """Publish the clock of this process at `now_ms`; None while it is in doubt."""
        if self._slot is None or self._cells[self._slot * _FIELDS] != self._id:
            self._slot = self._free_slot(now_ms)
        if self._slot is None:
            return
        at = self._slot * _FIELDS
        self._cells[at + 1] = 0  # other processes skip a place with this mark while the rest changes
        self._cells[at] = self._id
        self._cells[at + 2], self._cells[at + 3] = (own.offset_ms, own.since_ms) if own else (0, -1)
        self._cells[at + 1] = now_ms

    def voices(self, now_ms: int) -> list[Voice]:
        """The clocks of the other processes that are not in doubt."""
        found: list[Voice] = []
        for slot in range(SLOTS):
            if slot == self._slot or not self._is_alive(slot, now_ms):
                continue
            at = slot * _FIELDS
            beat, offset_ms, since_ms = self._cells[at + 1], self._cells[at + 2], self._cells[at + 3]
            if since_ms >= 0 and beat == self._cells[at + 1] and beat:
                found.append(Voice(since_ms, offset_ms))
        return found

    def _free_slot(self, now_ms: int) -> int | None:
        """A free place, searched from a random one on, so that two processes do not find the same one."""
        turned = ((self._id + step) % SLOTS for step in range(SLOTS))
        return next((slot for slot in turned if not self._is_alive(slot, now_ms)), None)

    def _is_alive(self, slot: int, now_ms: int) -> bool:
        """Whether a running process has the place. A time in the future is from before a restart of the machine."""
        return 0 <= now_ms - self._cells[slot * _FIELDS + 1] < BEAT_MS_MAX and self._cells[slot * _FIELDS] != 0


def outvoted_by(own: Voice | None, shown_ms: int, others: Sequence[Voice]) -> Voice | None:
    """The clock to follow in place of one with the offset `shown_ms`; None if that one is not outvoted.

    `own` is the published clock of this process, None while it is in doubt: then any other outvotes it.
    """
    shown = Voice(0, shown_ms)
    voices = [own, *others] if own else [*others]
    friends = [each for each in voices if each.is_near(shown)]
    against = [each for each in voices if not each.is_near(shown)]
    if not against:
        return None
    best = max(against, key=lambda each: _weight(each, voices))
    if friends and max(_weight(each, voices) for each in friends) >= _weight(best, voices):
        return None
    return best


def _weight(voice: Voice, voices: Sequence[Voice]) -> tuple[int, int]:
    """The number of clocks near to `voice`, and since when the steadiest of them has been steady."""
    same = [each for each in voices if each.is_near(voice)]
    return len(same), -min(each.since_ms for each in same)
