"""The records of runs that did not happen: what a relayer says about ticks that were missed or skipped. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muniment.protocol.evm.hex import HexString
from muniment.protocol.runs.outcomes import span
from muniment.protocol.runs.texts import REASON_TEXT_MAX, Engine, ReasonText
from muniment.protocol.runs.types import NewRun, RunReason
from muniment.relayer.schedule.due import Due, Gap

if TYPE_CHECKING:
    from muniment.protocol.intents.types import AnyNewIntent
    from muniment.protocol.runs.reasons import RunReasonCode


def missed(gap: Gap, code: RunReasonCode, engine: Engine, text: str = "") -> NewRun:
    """The note of a gap."""
    return NewRun(
        trigger_sig=gap.sig, trigger_type=gap.kind, trigger_data=HexString.from_raw(gap.payload),
        timestamp=gap.to_ms, result="missed", reason=reason_of(code, text), missed_count=gap.ticks,
        from_ms=gap.from_ms, to_ms=gap.to_ms, engine=engine,
    )  # fmt: skip


def skipped(due: Due, code: RunReasonCode, engine: Engine) -> NewRun:
    """The note of a run that was due and that this relayer does not make."""
    return NewRun(
        trigger_sig=due.sig, trigger_type=due.kind, trigger_data=HexString.from_raw(due.payload),
        timestamp=due.timestamp_ms, result="skipped", reason=RunReason(code=code), engine=engine,
    )  # fmt: skip


def gap_of(due: Due) -> Gap:
    """A run that was due, as a gap of one."""
    return Gap(due.sig, due.kind, due.payload, 1, due.timestamp_ms, due.timestamp_ms)


def life_of(due: Due, intents: Sequence[AnyNewIntent]) -> int:
    """How long after a run was due the first deadline of its intents is, in milliseconds."""
    return min(1_000 * int(each.deadline) for each in intents) - due.timestamp_ms


def lifetime(life_ms: int) -> str:
    """The shortest life of the intents of a run, in words."""
    if life_ms <= 0:
        return "the deadline of an intent is not after the time when the run was due"
    return f"the function gives its intents {span(life_ms // 1_000)} from when they are due"


def reason_of(code: RunReasonCode, text: str) -> RunReason:
    """A reason, with as much of the text as a record takes."""
    return RunReason(code=code, text=ReasonText.parse(text[:REASON_TEXT_MAX]))
