"""What became of runs, written into the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from muniment.relayer.journal.entries import State
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.runner.content import Content
from muniment.relayer.runner.notes import missed, skipped
from muniment.relayer.runner.results import GivenUp, Made, NotYet, Outcome
from muniment.relayer.schedule.rests import rest_ms

if TYPE_CHECKING:
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.reasons import RunReasonCode
    from muniment.protocol.runs.texts import Engine
    from muniment.relayer.figures import Figures
    from muniment.relayer.journal.entries import Entry
    from muniment.relayer.runner.caps import Caps
    from muniment.relayer.schedule.due import Due, Gap

# A note says once an hour that the runs of a trigger are skipped.
_TOLD_MS: Final = 3_600_000

_log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Keeps results and notes, which are then published, and counts the failures in sequence of each trigger."""

    journal: Journal
    caps: Caps
    figures: Figures
    engine: Engine
    # When it was last noted of a trigger that its runs are skipped, in milliseconds since 1970.
    _told: dict[Signature, int] = field(default_factory=dict["Signature", int], init=False)

    def keep(self, due: Due, outcome: Outcome, now_ms: int) -> Entry | None:
        """Keep what became of a run at its turn. The entry is to be published; None: nothing is."""
        match outcome:
            case NotYet(code, text):
                self.figures.add("failures_total", "incomplete")
                _log.info("no result yet", trigger=due.sig, time_ms=due.timestamp_ms, code=code, reason=text)
                return None
            case GivenUp(text):
                self.journal.give_up(due, is_decided=False)
                _log.warning("a run is given up", trigger=due.sig, time_ms=due.timestamp_ms, reason=text)
                return None
            case Made(run, intents):
                self.caps.count(run, now_ms)
                entry = self._keep(due, Content.of(run, intents), now_ms)
                self._judge(due.sig, now_ms, is_failure=run.result == "stopped")
                return entry
            case _:
                return self._skip(due, outcome.code, now_ms)

    def note(self, gap: Gap, delta_ms: int, now_ms: int) -> None:
        """Keep the note of a gap; it is published with what is left."""
        entry = self.journal.entry(gap.sig, gap.kind, gap.payload)
        if entry is not None and entry.state is not State.PLANNED:
            return
        code: RunReasonCode = "overtaken" if now_ms <= gap.to_ms + delta_ms else "gap"
        if entry is not None:
            code = "unanswered"
        content = Content.of(missed(gap, code, self.engine), [])
        self.journal.note(gap, *content.bytes_and_hash(), now_ms)
        self.figures.add("runs_total", "missed")
        _log.warning("missed", trigger=gap.sig, ticks=gap.ticks, from_ms=gap.from_ms, to_ms=gap.to_ms, reason=code)
        if code == "unanswered":
            self._judge(gap.sig, now_ms, is_failure=True)

    def _skip(self, due: Due, code: RunReasonCode, now_ms: int) -> Entry | None:
        """Note a run that is skipped; for reasons that stay, once an hour."""
        if code != "other-block" and now_ms - self._told.get(due.sig, 0) < _TOLD_MS:
            self.journal.give_up(due, is_decided=True)
            return None
        if code != "other-block":
            self._told[due.sig] = now_ms
        _log.warning("runs are skipped", trigger=due.sig, reason=code)
        return self._keep(due, Content.of(skipped(due, code, self.engine), []), now_ms)

    def _keep(self, due: Due, content: Content, now_ms: int) -> Entry | None:
        body, hash_ = content.bytes_and_hash()
        self.journal.ran(due, content.run.result, body, hash_, now_ms)
        self.figures.add("runs_total", content.run.result)
        return self.journal.entry(due.sig, due.kind, due.payload)

    def _judge(self, sig: Signature, now_ms: int, *, is_failure: bool) -> None:
        """Count the end of a run: after failures in sequence the trigger rests."""
        known = self.journal.known(sig)
        if known is None or not (is_failure or known.failures):
            return
        failures = known.failures + 1 if is_failure else 0
        pause_ms = rest_ms(failures)
        self.journal.failed(sig, failures, now_ms + pause_ms if pause_ms else 0)
        if pause_ms:
            _log.warning("the trigger rests after failures", trigger=sig, failures=failures, seconds=pause_ms // 1_000)
