"""The closed list of reasons, and which results are verdicts."""

from __future__ import annotations

from muniment.guest import outcomes
from muniment.protocol.runs.reasons import ALL_REASONS, REASONS, RESULT_BYTES, VERDICTS, is_verdict


def test_each_reason_belongs_to_one_result() -> None:
    listed = [code for reasons in REASONS.values() for code in reasons]
    assert sorted(listed) == sorted(ALL_REASONS)
    assert set(REASONS) | {"intents", "nothing"} == set(RESULT_BYTES)


def test_a_run_is_stopped_for_the_reasons_of_the_sandbox() -> None:
    assert set(REASONS["stopped"]) == outcomes.VERDICTS | outcomes.NOTES


def test_verdicts_follow_from_bytes_and_blocks() -> None:
    verdicts = {code for code in REASONS["stopped"] if is_verdict("stopped", code)}  # pyright: ignore[reportArgumentType]
    assert verdicts == outcomes.VERDICTS
    assert is_verdict("intents", None)
    assert is_verdict("nothing", None)
    assert set(VERDICTS) == {"intents", "nothing", "stopped"}
    for result in ("missed", "skipped", "incomplete"):
        assert not any(is_verdict(result, code) for code in REASONS[result])  # pyright: ignore[reportArgumentType]


def test_the_bytes_of_results_are_those_of_the_definition() -> None:
    assert dict(RESULT_BYTES) == {"intents": 0, "nothing": 1, "stopped": 2, "missed": 3, "skipped": 4, "incomplete": 5}
