"""When triggers are looked at again. The time is a parameter, and may jump."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.protocol.evm.signature import Signature

# A smaller step back is the rounding of the registry's `Date`.
_BACK_MS: Final = 2_000


@dataclass(slots=True)
class Wakes:
    """For each trigger the time of its next look, in milliseconds since 1970. `latest_ms` is the last time seen."""

    latest_ms: int = field(default=0, init=False)
    _times: dict[Signature, int] = field(default_factory=dict["Signature", int], init=False)
    _heap: list[tuple[int, Signature]] = field(default_factory=list[tuple[int, "Signature"]], init=False)

    def at(self, sig: Signature, at_ms: int) -> None:
        """Look at a trigger at this time, and not at the time that was set before."""
        self._times[sig] = at_ms
        heapq.heappush(self._heap, (at_ms, sig))

    def forget(self, sig: Signature) -> None:
        """Do not look at a trigger again."""
        self._times.pop(sig, None)

    def is_back(self, now_ms: int) -> bool:
        """Whether the clock went back: then times that were set may be too late."""
        return now_ms < self.latest_ms - _BACK_MS

    def due(self, now_ms: int) -> Iterator[Signature]:
        """The triggers to look at now, each once."""
        self.latest_ms = now_ms
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, sig = heapq.heappop(self._heap)
            if self._times.get(sig) == at_ms:
                del self._times[sig]
                yield sig
