"""The closed list of reasons, and which results are verdicts."""

from __future__ import annotations

from typing import get_args

from muniment.protocol.runs.reasons import REASONS, RESULT_BYTES, RunReasonCode, StopNote, StopVerdict, is_verdict


def test_each_reason_belongs_to_a_result() -> None:
    listed = [code for reasons in REASONS.values() for code in reasons]
    # Nodes may differ about an answer, and about an event.
    assert sorted(listed) == sorted([*get_args(get_args(RunReasonCode)[0]), "nodes-differ"])
    assert set(REASONS) | {"intents", "nothing"} == set(RESULT_BYTES)


def test_verdicts_follow_from_bytes_and_blocks() -> None:
    verdicts = {code for code in REASONS["stopped"] if is_verdict("stopped", code)}
    assert verdicts == set(get_args(StopVerdict))
    assert set(REASONS["stopped"]) == verdicts | set(get_args(StopNote))
    assert is_verdict("intents", None)
    assert is_verdict("nothing", None)
    for result in ("missed", "skipped", "incomplete"):
        assert not any(is_verdict(result, code) for code in REASONS[result])


def test_the_bytes_of_results_are_those_of_the_definition() -> None:
    assert dict(RESULT_BYTES) == {"intents": 0, "nothing": 1, "stopped": 2, "missed": 3, "skipped": 4, "incomplete": 5}
