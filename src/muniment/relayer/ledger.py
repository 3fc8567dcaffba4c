"""What became of runs, written into the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from muniment.relayer.journal.entries import TOLD_MS, State
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.runner.content import Content
from muniment.relayer.runner.notes import gap_of, life_of, lifetime, missed, reason_of, skipped
from muniment.relayer.runner.results import GivenUp, Made, NotYet, Outcome
from muniment.relayer.schedule.due import Gap
from muniment.relayer.schedule.rests import rest_ms

if TYPE_CHECKING:
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.intents.types import AnyNewIntent
    from muniment.protocol.runs.reasons import RunReasonCode
    from muniment.protocol.runs.texts import Engine
    from muniment.protocol.runs.types import NewRun
    from muniment.relayer.figures import Figures
    from muniment.relayer.journal.entries import Entry
    from muniment.relayer.runner.caps import Caps
    from muniment.relayer.schedule.due import Due

_log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Keeps results and notes, which are then published, and counts the failures in sequence of each trigger."""

    journal: Journal
    caps: Caps
    figures: Figures
    engine: Engine

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
                entry = self._keep_made(due, run, intents, now_ms)
                # A function that aborts has answered.
                is_failure = run.result == "stopped" and bool(run.reason) and run.reason.code != "abort"
                self._judge(due.sig, now_ms, is_failure=is_failure)
                return entry
            case _:
                return self._skip(due, outcome.code, now_ms)

    def note(self, gap: Gap, now_ms: int) -> None:
        """Keep the note of a gap; it is published with what is left."""
        entry = self.journal.entry(gap.sig, gap.kind, gap.payload)
        if entry is not None and entry.state is not State.PLANNED:
            return
        code, text = gap.why, ""
        if code == "gap" and entry is not None and entry.tries:
            code = "unanswered"
        if code == "too-late" and (known := self.journal.known(gap.sig)) is not None:
            text = lifetime(known.seen.life_ms)
        content = Content.of(missed(gap, code, self.engine, text), [])
        self.journal.note(gap, *content.bytes_and_hash(), now_ms)
        self.figures.add("runs_total", "missed")
        _log.warning("missed", trigger=gap.sig, ticks=gap.ticks, from_ms=gap.from_ms, to_ms=gap.to_ms, reason=code)
        # A chain that stands still is no failure of the trigger.
        if code == "unanswered" and entry is not None and entry.answer != "no-block":
            self._judge(gap.sig, now_ms, is_failure=True)

    def _keep_made(self, due: Due, run: NewRun, intents: Sequence[AnyNewIntent], now_ms: int) -> Entry | None:
        """Keep a run that was made, or the note that it is too late for one of its intents."""
        self.caps.count(run, now_ms)
        life_ms = None if not intents else life_of(due, intents)
        if life_ms is None:
            return self._keep(due, Content.of(run, intents), now_ms)
        if now_ms < due.timestamp_ms + life_ms:
            return self._keep(due, Content.of(run, intents), now_ms, life_ms=0)
        _log.warning("missed", trigger=due.sig, time_ms=due.timestamp_ms, reason="too-late", life_s=life_ms // 1_000)
        note = Content.of(missed(gap_of(due), "too-late", self.engine, lifetime(life_ms)), [])
        # Where the deadline had passed before the run was due, a later run may have another.
        return self._keep(due, note, now_ms, life_ms=max(0, life_ms))

    def tell(self, due: Due, code: RunReasonCode, text: str, now_ms: int) -> None:
        """Note events of a trigger that are not planned, the last of which is `due`, at most once an hour."""
        known, entry = self.journal.known(due.sig), self.journal.entry(due.sig, due.kind, due.payload)
        if entry is not None or known is None or 0 <= now_ms - known.told_ms < TOLD_MS:
            return
        run = skipped(due, code, self.engine)
        if code == "nodes-differ":
            run = missed(Gap(due.sig, due.kind, due.payload, 1, due.timestamp_ms, due.timestamp_ms), code, self.engine)
        run = replace(run, reason=reason_of(code, text))
        self.journal.ran(due, run.result, *Content.of(run, []).bytes_and_hash(), now_ms, is_told=True)
        self.figures.add("runs_total", run.result)
        _log.warning("events are not run", trigger=due.sig, reason=code, text=text)

    def _skip(self, due: Due, code: RunReasonCode, now_ms: int) -> Entry | None:
        """Note a run that is skipped; for reasons that stay, once an hour."""
        known, is_told = self.journal.known(due.sig), code != "other-block"
        if is_told and known is not None and 0 <= now_ms - known.told_ms < TOLD_MS:
            self.journal.give_up(due, is_decided=True)
            return None
        _log.warning("runs are skipped", trigger=due.sig, reason=code)
        return self._keep(due, Content.of(skipped(due, code, self.engine), []), now_ms, is_told=is_told)

    def _keep(
        self, due: Due, content: Content, now_ms: int, *, life_ms: int | None = None, is_told: bool = False
    ) -> Entry | None:
        body, hash_ = content.bytes_and_hash()
        self.journal.ran(due, content.run.result, body, hash_, now_ms, life_ms=life_ms, is_told=is_told)
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
