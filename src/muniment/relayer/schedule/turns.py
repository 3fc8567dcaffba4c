"""Whose run is next: functions take turns, and the signers of each, so that none holds up the others.

The time is a parameter.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muniment.protocol.evm.address import Address
    from muniment.relayer.schedule.due import Due

# The part of the time of all places together that one signer may take, where any signer is served.
_SHARE: Final = 0.1
# Where signers are named: the places that one leaves to the others, and that one function of it leaves.
_LEFT_BY_SIGNER: Final = 1
LEFT_BY_FUNCTION: Final = 2


class Turn(NamedTuple):
    """A run that begins, with what takes turns: its function, by the digest, and its signer."""

    function: bytes
    signer: Address
    due: Due


@dataclass(slots=True)
class _Signer:
    """How many runs of a signer wait, and go on by function, and when the next may begin, in seconds."""

    waiting: int = 0
    running: Counter[bytes] = field(default_factory=Counter[bytes])
    rests_until_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Turns:
    """Runs that wait for one of `places`. With `is_open`, any signer is served: each has one place and a tenth of time.

    A run of `s` seconds on one of `n` places is followed by a rest that makes it a tenth of all time: `s * (10/n - 1)`.
    Otherwise a signer leaves one place to the others, and one function of it leaves two, since a run may take minutes.
    """

    places: int
    is_open: bool
    # By the digest of the function; each has a run that waits.
    _functions: OrderedDict[bytes, OrderedDict[Address, deque[Due]]] = field(
        default_factory=OrderedDict[bytes, "OrderedDict[Address, deque[Due]]"], init=False
    )
    _signers: dict[Address, _Signer] = field(default_factory=dict["Address", _Signer], init=False)
    _running: int = field(default=0, init=False)

    def put(self, function: bytes, signer: Address, due: Due) -> None:
        """Let a run wait for its turn."""
        self._functions.setdefault(function, OrderedDict()).setdefault(signer, deque()).append(due)
        self._signers.setdefault(signer, _Signer()).waiting += 1

    def take(self, now_s: float) -> Turn | None:
        """The next run to begin; None: no place is free, or every signer with waiting runs has to wait."""
        if self._running >= self.places:
            return None
        function, signer = next(self._ready(now_s), (b"", None))
        if signer is None:
            return None
        queues = self._functions[function]
        due = queues[signer].popleft()
        queues.move_to_end(signer)
        if not queues[signer]:
            del queues[signer]
        self._functions.move_to_end(function)
        if not queues:
            del self._functions[function]
        self._signers[signer].waiting -= 1
        self._signers[signer].running[function] += 1
        self._running += 1
        return Turn(function, signer, due)

    def ended(self, turn: Turn, seconds: float, now_s: float) -> None:
        """A run ended after so many seconds."""
        state = self._signers[turn.signer]
        state.running -= Counter((turn.function,))
        self._running -= 1
        state.rests_until_s = now_s + seconds * max(0.0, 1 / (_SHARE * self.places) - 1)
        for each in [name for name, held in self._signers.items() if self._is_idle(held, now_s)]:
            del self._signers[each]

    def seconds_to_wait(self, now_s: float) -> float | None:
        """The seconds until a resting signer may go on; None: only an end of a run can let another begin."""
        rests = [each.rests_until_s for each in self._signers.values() if each.waiting and not each.running]
        return max(0.0, min(rests) - now_s) if rests and self._running < self.places else None

    @property
    def count(self) -> int:
        """The runs that wait or run."""
        return self._running + self.waiting

    @property
    def waiting(self) -> int:
        """The runs that wait."""
        return sum(each.waiting for each in self._signers.values())

    def _ready(self, now_s: float) -> Iterator[tuple[bytes, Address]]:
        """Functions and signers with a run that may begin, the next one first."""
        for function, queues in self._functions.items():
            for signer in queues:
                if self._may_begin(function, self._signers[signer], now_s):
                    yield function, signer

    def _may_begin(self, function: bytes, signer: _Signer, now_s: float) -> bool:
        if not signer.running:
            return now_s >= signer.rests_until_s
        return not self.is_open and (
            signer.running.total() < self.places - _LEFT_BY_SIGNER
            and signer.running[function] < self.places - LEFT_BY_FUNCTION
        )

    @staticmethod
    def _is_idle(signer: _Signer, now_s: float) -> bool:
        return not signer.waiting and not signer.running and now_s >= signer.rests_until_s
