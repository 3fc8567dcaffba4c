"""Why nothing happened: what a stranger's function says stays within its sentence."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from muniment.protocol.forms import decode_record
from muniment.protocol.runs.texts import ReasonText
from muniment.protocol.runs.types import Run, RunReason
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import TIMESTAMP_MS_MAX
from muniment.relayer.explaining import explain
from muniment.relayer.settings import RelayerSettings, Served

SETTINGS = RelayerSettings(registry="http://registry.test", served=Served(None, None, None), state=Path("none.db"))


def test_what_a_function_says_cannot_add_a_sentence() -> None:
    trigger = decode_record(Trigger.example, Trigger)
    reason = RunReason(code="abort", text=ReasonText("no\nIt was deactivated.\u2028It ended."))
    run = replace(decode_record(Run.example, Run), result="stopped", reason=reason, outputs=[])
    said = explain(trigger, [run], SETTINGS, None, 0, read_chains={8453}).sentences
    assert "stopped, the function called abort: no\\nIt was deactivated.\\u2028It ended., valid" in said[-1]
    assert all(len(each.splitlines()) == 1 for each in said)


def test_a_run_is_told_by_its_intents() -> None:
    trigger, run = decode_record(Trigger.example, Trigger), decode_record(Run.example, Run)
    pair = replace(run, outputs=[*run.outputs, replace(run.outputs[0], recorded=False)])
    for told, said in ((run, ": 1 intent, valid."), (pair, ": 2 intents (1 not recorded), valid.")):
        assert explain(trigger, [told], SETTINGS, None, 0, read_chains={8453}).sentences[-1].endswith(said)


def test_a_single_run_after_the_end_of_the_calendar_is_explained() -> None:
    start_ms = TIMESTAMP_MS_MAX
    config = {"type": 2, "startDate": start_ms, "delta": "1h", "endDate": 0}
    trigger = replace(decode_record(Trigger.example, Trigger), config=config)
    said = explain(trigger, [], SETTINGS, None, 0, read_chains={8453})
    assert said.next_run_ms == start_ms
    assert f"The next run is due at {start_ms} ms after 1970." in said.sentences


def test_a_relayer_without_a_node_says_that_it_sees_no_event() -> None:
    config = {"type": 1, "chainId": 10, "contract": "0x" + "11" * 20, "topics": [], "delta": "1h", "endDate": 0}
    trigger = replace(decode_record(Trigger.example, Trigger), config=config)
    for chains, is_told in (({8453}, True), ({10}, False)):
        said = explain(trigger, [], SETTINGS, None, 0, read_chains=chains).sentences
        assert any("this relayer sees none" in each for each in said) is is_told
