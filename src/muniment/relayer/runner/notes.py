"""The records of runs that did not happen: what a relayer says about ticks that were missed or skipped. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.protocol.evm.hex import HexString
from muniment.protocol.runs.texts import REASON_TEXT_MAX, Engine, ReasonText
from muniment.protocol.runs.types import NewRun, RunReason

if TYPE_CHECKING:
    from muniment.protocol.runs.reasons import RunReasonCode
    from muniment.relayer.schedule.due import Due, Gap


def missed(gap: Gap, code: RunReasonCode, engine: Engine) -> NewRun:
    """The note of a gap."""
    return NewRun(
        trigger_sig=gap.sig, trigger_type=gap.kind, trigger_data=HexString.from_raw(gap.payload),
        timestamp=gap.to_ms, result="missed", reason=RunReason(code=code), missed_count=gap.ticks,
        from_ms=gap.from_ms, to_ms=gap.to_ms, engine=engine,
    )  # fmt: skip


def skipped(due: Due, code: RunReasonCode, engine: Engine) -> NewRun:
    """The note of a run that was due and that this relayer does not make."""
    return NewRun(
        trigger_sig=due.sig, trigger_type=due.kind, trigger_data=HexString.from_raw(due.payload),
        timestamp=due.timestamp_ms, result="skipped", reason=RunReason(code=code), engine=engine,
    )  # fmt: skip


def reason_of(code: RunReasonCode, text: str) -> RunReason:
    """A reason, with as much of the text as a record takes."""
    return RunReason(code=code, text=ReasonText.parse(text[:REASON_TEXT_MAX]))
