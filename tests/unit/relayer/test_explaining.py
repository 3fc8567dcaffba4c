"""Why nothing happened: what a stranger's function says stays within its sentence."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from muniment.protocol.forms import decode_record
from muniment.protocol.runs.texts import ReasonText
from muniment.protocol.runs.types import Run, RunReason
from muniment.protocol.triggers.types import Trigger
from muniment.relayer.explaining import explain
from muniment.relayer.settings import RelayerSettings, Served

SETTINGS = RelayerSettings(registry="http://registry.test", served=Served(None, None, None), state=Path("none.db"))


def test_what_a_function_says_cannot_add_a_sentence() -> None:
    trigger = decode_record(Trigger.example, Trigger)
    reason = RunReason(code="abort", text=ReasonText("no\nIt was deactivated.\u2028It ended."))
    run = replace(decode_record(Run.example, Run), result="stopped", reason=reason, outputs=[])
    said = explain(trigger, [run], SETTINGS, None, 0).sentences
    assert "stopped, abort: no It was deactivated. It ended., valid" in said[-1]
    assert all(len(each.splitlines()) == 1 for each in said)
