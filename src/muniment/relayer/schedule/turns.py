"""Whose run is next: signers take turns, so that none holds up the others. The time is a parameter."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.relayer.schedule.due import Due

# The part of the time of all places together that one signer may take, where any signer is served.
_SHARE: Final = 0.1


@dataclass(slots=True)
class _Queue:
    """The runs of one signer that wait, how many run, and when the next may begin, in seconds."""

    waiting: deque[Due] = field(default_factory=deque["Due"])
    running: int = 0
    rests_until_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Turns:
    """Runs that wait for one of `places`. With `is_open`, any signer is served: each has one place and a tenth of time.

    A run of `s` seconds on one of `n` places is followed by a rest that makes it a tenth of all time: `s * (10/n - 1)`.
    """

    places: int
    is_open: bool
    _queues: OrderedDict[Address, _Queue] = field(default_factory=OrderedDict["Address", _Queue], init=False)
    _running: int = field(default=0, init=False)

    def put(self, signer: Address, due: Due) -> None:
        """Let a run wait for its turn."""
        self._queues.setdefault(signer, _Queue()).waiting.append(due)

    def take(self, now_s: float) -> tuple[Address, Due] | None:
        """The next run to begin; None: no place is free, or every signer with waiting runs has to wait."""
        if self._running >= self.places:
            return None
        for signer, queue in self._queues.items():
            if not queue.waiting or (self.is_open and (queue.running or now_s < queue.rests_until_s)):
                continue
            due = queue.waiting.popleft()
            queue.running += 1
            self._running += 1
            self._queues.move_to_end(signer)
            return signer, due
        return None

    def ended(self, signer: Address, seconds: float, now_s: float) -> None:
        """A run of this signer ended after so many seconds."""
        queue = self._queues[signer]
        queue.running -= 1
        self._running -= 1
        queue.rests_until_s = now_s + seconds * max(0.0, 1 / (_SHARE * self.places) - 1)
        for each in [name for name, held in self._queues.items() if self._is_idle(held, now_s)]:
            del self._queues[each]

    def seconds_to_wait(self, now_s: float) -> float | None:
        """The seconds until a resting signer may go on; None: only an end of a run can let another begin."""
        rests = [each.rests_until_s for each in self._queues.values() if each.waiting and not each.running]
        return max(0.0, min(rests) - now_s) if rests and self._running < self.places else None

    @property
    def count(self) -> int:
        """The runs that wait or run."""
        return self._running + sum(len(each.waiting) for each in self._queues.values())

    @staticmethod
    def _is_idle(queue: _Queue, now_s: float) -> bool:
        return not queue.waiting and not queue.running and now_s >= queue.rests_until_s
