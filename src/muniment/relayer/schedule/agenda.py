"""What a relayer does next: triggers to look at, and runs that wait for their turns. The time is a parameter.

Times of looks are milliseconds since 1970; times of turns are seconds of a monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.schedule.wakes import Wakes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature
    from muniment.relayer.schedule.due import Due
    from muniment.relayer.schedule.turns import Turn, Turns

# The pause before a run that has no answer yet, or a publication that failed, is tried again.
RETRY_MS: Final = 5_000


@dataclass(slots=True, kw_only=True)
class Agenda:
    """Which triggers are looked at when, and which runs wait or go on.

    A trigger with ticks has one run at a time; each event has a run of its own.
    """

    turns: Turns
    _wakes: Wakes = field(default_factory=Wakes, init=False)
    _busy: set[Signature] = field(default_factory=set["Signature"], init=False)
    _busy_events: set[tuple[Signature, bytes]] = field(default_factory=set[tuple["Signature", bytes]], init=False)

    def look_at(self, sig: Signature, at_ms: int) -> None:
        """Look at a trigger at this time, and not at the time that was set before."""
        self._wakes.at(sig, at_ms)

    def forget(self, sig: Signature) -> None:
        """Do not look at a trigger again."""
        self._wakes.forget(sig)

    def to_look_at(self, now_ms: int, tracked: Collection[Signature]) -> Iterator[Signature]:
        """The triggers to look at now, each once: all that are `tracked` after the clock went back."""
        if self._wakes.is_back(now_ms):
            for sig in tracked:
                self._wakes.at(sig, 0)
        return self._wakes.due(now_ms)

    def is_busy(self, sig: Signature) -> bool:
        """Whether a run of a tick of this trigger waits or goes on."""
        return sig in self._busy

    def has_event(self, sig: Signature, payload: bytes) -> bool:
        """Whether the run of an event waits or goes on."""
        return (sig, payload) in self._busy_events

    @property
    def events(self) -> int:
        """The runs of events that wait or go on."""
        return len(self._busy_events)

    def wait(self, function: bytes, signer: Address, due: Due) -> None:
        """Let a run wait for its turn."""
        if due.kind == EVENT:
            self._busy_events.add((due.sig, due.payload))
        else:
            self._busy.add(due.sig)
        self.turns.put(function, signer, due)

    def ended(self, turn: Turn, seconds: float, now_s: float) -> None:
        """A run, which was taken from `turns`, ended after so many seconds."""
        due = turn.due
        self.turns.ended(turn, seconds, now_s)
        if due.kind == EVENT:
            self._busy_events.discard((due.sig, due.payload))
        else:
            self._busy.discard(due.sig)
