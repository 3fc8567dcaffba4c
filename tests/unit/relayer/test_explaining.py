"""Why nothing happened: what a stranger's function says stays within its sentence."""

from __future__ import annotations

from dataclasses import replace as replace_entry
from pathlib import Path

from msgspec.structs import replace

from muniment.protocol.forms import decode_record
from muniment.protocol.runs.texts import ReasonText
from muniment.protocol.runs.types import Run, RunReason
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import TIMESTAMP_MS_MAX, moment
from muniment.relayer.explaining import Told, explain
from muniment.relayer.journal.entries import Entry, Known, State
from muniment.relayer.schedule.due import Seen
from muniment.relayer.settings import RelayerSettings, Served

SETTINGS = RelayerSettings(registry="http://registry.test", served=Served(None, None, None), state=Path("none.db"))


MINUTE = 60_000
NOON = 1_795_176_000_000


def told(trigger: Trigger, *entries: Entry, rests_until_ms: int = 0, told_ms: int = 0, **seen: int) -> list[str]:
    """What is explained at noon of a trigger that the journal knows."""
    known = Known(Seen(NOON - 60 * MINUTE, **seen), 3 if rests_until_ms else 0, rests_until_ms, None, told_ms)
    return explain(trigger, [], SETTINGS, Told(known=known, entries=entries), NOON, read_chains={8453}).sentences


def each_minute() -> Trigger:
    created = moment(NOON - 120 * MINUTE)
    config = {"type": 0, "schedule": "* * * * *", "delta": "10m", "endDate": 0}
    return replace(decode_record(Trigger.example, Trigger), config=config, created_at=created)


def test_the_oldest_tick_that_can_still_run_is_first_and_gaps_have_their_reasons() -> None:
    said = told(each_minute(), decided_ms=NOON - 20 * MINUTE, sent_ms=NOON - 18 * MINUTE)
    first = next(each for each in said if each.startswith("The run of"))
    assert first.startswith(f"The run of {moment(NOON - 9 * MINUTE)} may start now")
    assert "the oldest first" in first
    assert any("overtaken" in each and moment(NOON - 18 * MINUTE) in each for each in said)
    missed = [each for each in said if " missed, from " in each]
    assert [each.rpartition(": ")[2] for each in missed][:2] == [
        "an earlier run sent intents meanwhile, or more than ten runs were due at once.",
        "no relayer of this operator ran then.",
    ]


def test_a_run_without_a_result_tells_its_tries_and_the_next_one() -> None:
    entry = Entry(
        sig=each_minute().sig, kind=0, payload=b"", timestamp_ms=NOON, until_ms=NOON + 10 * MINUTE, state=State.PLANNED,
        tries=3, next_ms=NOON + MINUTE, answer="no-answer", result="", body=b"", hash=b"", written_ms=NOON, event=b"",
    )  # fmt: skip
    said = told(each_minute(), entry)
    assert any(f": tried 3 times, no-answer; next try at {moment(NOON + MINUTE)}." in each for each in said)
    said = told(each_minute(), replace_entry(entry, next_ms=NOON + 11 * MINUTE))
    assert any(": tried 3 times, no-answer; there is no further try." in each for each in said)


def test_rests_too_late_runs_and_notes_are_told() -> None:
    said = told(each_minute(), rests_until_ms=NOON + 5 * MINUTE, life_ms=300_000, told_ms=NOON - MINUTE)
    assert any(f"rests until {moment(NOON + 5 * MINUTE)} after 3 failures" in each for each in said)
    assert any("good for 300 seconds" in each and "at most 299 seconds late" in each for each in said)
    assert any("skipped; that is said once an hour" in each for each in said)
    ahead = told(each_minute(), rests_until_ms=NOON + 500 * MINUTE)  # by a clock that was ahead
    assert not any("rests until" in each for each in ahead)


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


def test_a_trigger_above_the_number_of_its_signer_is_told() -> None:
    config = {"type": 1, "chainId": 10, "contract": "0x" + "11" * 20, "topics": [], "delta": "1h", "endDate": 0}
    trigger = replace(decode_record(Trigger.example, Trigger), config=config)
    for older, is_told in ((99, False), (100, True)):
        said = explain(trigger, [], SETTINGS, None, 0, read_chains={10}, older=older).sentences
        assert any("100 older event triggers" in each for each in said) is is_told
