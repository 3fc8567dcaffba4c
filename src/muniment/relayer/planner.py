"""Plans the runs that are due, and notes those that were missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.runner.notes import gap_of
from muniment.relayer.runner.results import LATE
from muniment.relayer.schedule.agenda import RETRY_MS
from muniment.relayer.schedule.due import Due
from muniment.relayer.schedule.rests import rests_until
from muniment.relayer.schedule.tries import next_try

if TYPE_CHECKING:
    from muniment.protocol.evm.signature import Signature
    from muniment.relayer.figures import Figures
    from muniment.relayer.journal.sqlite import Journal
    from muniment.relayer.ledger import Ledger
    from muniment.relayer.lives.following import Following, Tracked
    from muniment.relayer.schedule.agenda import Agenda

# Runs of events that wait at once, and notes of missed ones that are made at once; the others are in the journal.
_EVENTS_AT_ONCE: Final = 500
_MISSED_AT_ONCE: Final = 100


@dataclass(slots=True, kw_only=True)
class Planner:
    """Looks at triggers, and brings what is due from their plans into the journal and onto the agenda."""

    journal: Journal
    following: Following
    agenda: Agenda
    ledger: Ledger
    figures: Figures
    steady_s: Callable[[], float]
    # When planned runs of events are taken up next, by the monotonic clock, and whether the journal has more of them.
    _events_s: float = field(default=0.0, init=False)
    _has_more: bool = field(default=False, init=False)

    def see(self, sig: Signature) -> None:
        """A trigger appeared, ended or returned."""
        if sig in self.following.tracked:
            self.agenda.look_at(sig, 0)
        else:
            self.agenda.forget(sig)
        self.figures.show("triggers", len(self.following.tracked))

    def see_events(self) -> None:
        """Take up planned runs of events with the next look."""
        self._events_s = 0.0

    def look_again(self, due: Due, code: str, now_ms: int) -> None:
        """After a run ended: at once, or after a pause where it has no result, for the reason `code`."""
        at_ms = 0
        if code not in ("", LATE):
            entry = self.journal.entry(due.sig, due.kind, due.payload)
            tries = 1 if entry is None else entry.tries + 1
            try:
                self.journal.tried(due, code, next_try(code, tries, now_ms, due.until_ms))
            except Exception as error:  # noqa: BLE001 - such as a full disk: the trigger must be looked at again
                self.figures.fail("internal", "cannot keep that a run was tried", error, trigger=due.sig)
                at_ms = now_ms + RETRY_MS
        if due.sig in self.following.tracked and due.kind != EVENT:
            self.agenda.look_at(due.sig, at_ms)

    def look(self, now_ms: int, last_ms: int | None = None) -> bool:
        """Plan the runs that are due, and let them wait for their turns; whether each trigger could be looked at.

        With `last_ms` neither what became due after it nor what is tried again after it: both may come without an end.
        """
        last_ms = now_ms if last_ms is None else last_ms
        dues: list[Due] = []
        done = True
        for sig in self.agenda.to_look_at(now_ms, self.following.tracked.keys()):
            try:
                if (due := self._look_at(sig, now_ms, last_ms)) is not None:
                    dues.append(due)
            except Exception as error:  # noqa: BLE001 - it must not keep the others from their runs
                self.figures.fail("internal", "cannot look at a trigger", error, trigger=sig)
                self.agenda.look_at(sig, now_ms + RETRY_MS)
                done = False
        if dues:
            self._plan(dues, now_ms)
        self._take_events(now_ms, last_ms)
        self.figures.show("runs_waiting", self.agenda.turns.count)
        return done

    def _plan(self, dues: Sequence[Due], now_ms: int) -> None:
        try:
            self.journal.plan(dues, now_ms)
        except Exception:  # such as a full disk
            for due in dues:
                self.agenda.look_at(due.sig, now_ms + RETRY_MS)
            raise
        for due in dues:
            self._wait(self.following.tracked[due.sig], due)

    def _wait(self, tracked: Tracked, due: Due) -> None:
        self.agenda.wait(Cid.parse(tracked.trigger.function_cid).digest, tracked.trigger.signer, due)

    def _take_events(self, now_ms: int, last_ms: int) -> None:
        """Let planned runs of events wait for their turns; those whose time is over are missed."""
        places = self.agenda.turns.places
        has_room = self._has_more and self.agenda.turns.waiting < places
        if self.agenda.events >= 2 * _EVENTS_AT_ONCE or not (has_room or self.steady_s() >= self._events_s):
            return
        self._events_s = self.steady_s() + RETRY_MS / 1_000
        self._miss_events(now_ms)
        entries = self.journal.waiting_events(_EVENTS_AT_ONCE, places, now_ms)
        new = [
            each for each in entries if each.next_ms <= last_ms and not self.agenda.has_event(each.sig, each.payload)
        ]
        self._has_more = bool(entries)  # also where all wait already: others of theirs may come after them
        for entry in new:
            tracked = self.following.tracked.get(entry.sig)
            known = self.journal.known(entry.sig)
            if tracked is None or known is None:
                self.journal.give_up_all(entry.sig)
            elif now_ms > entry.timestamp_ms + known.seen.late_ms(tracked.plan.delta_ms):
                self.ledger.note(gap_of(entry.due)._replace(why="too-late"), now_ms)
            else:
                self._wait(tracked, entry.due)

    def _miss_events(self, now_ms: int) -> None:
        """Note events whose time is over; one that cannot be noted is given up, or it would stay the first of all."""
        for entry in self.journal.overdue_events(_MISSED_AT_ONCE, now_ms):
            if entry.sig not in self.following.tracked:
                self.journal.give_up_all(entry.sig)
            elif not self.agenda.has_event(entry.sig, entry.payload):
                known = self.journal.known(entry.sig)
                rested = known is not None and entry.until_ms < min(known.rests_until_ms, now_ms)
                try:
                    self.ledger.note(gap_of(entry.due)._replace(why="resting" if rested else "gap"), now_ms)
                except ValueError as error:  # such as a log that no record takes
                    self.figures.fail("internal", "cannot note a missed event", error, trigger=entry.sig)
                    self.journal.give_up(entry.due, is_decided=False)

    def _look_at(self, sig: Signature, now_ms: int, last_ms: int) -> Due | None:
        tracked, known = self.following.tracked.get(sig), self.journal.known(sig)
        if tracked is None or known is None or known.ended_ms is not None or self.agenda.is_busy(sig):
            return None
        if (until_ms := rests_until(known.rests_until_ms, now_ms)) > now_ms:
            self.agenda.look_at(sig, until_ms)
            return None
        look = tracked.plan.look(known.seen, now_ms)
        for gap in look.gaps:
            self.ledger.note(gap, now_ms)
        due, wake_ms = look.due, look.wake_ms
        if due is not None:
            planned = self.journal.entry(sig, due.kind, due.payload)
            next_ms = due.timestamp_ms if planned is None else max(planned.next_ms, due.timestamp_ms)
            if next_ms <= last_ms:
                return due
            wake_ms = max(now_ms + 1, min(next_ms, due.until_ms + 1))
        if wake_ms is not None:
            self.agenda.look_at(sig, wake_ms)
        return None
