"""Runs by the client: what it refuses of a registry that lies about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from feeding import Fed, answer
from lies import lies

from muniment.client import Forged, NotARegistry
from muniment.client.flows import runs
from muniment.client.steps import Flow
from run_bodies import CLAIMED, RELAYER, SIG, answered, hash_of, new_run

OUTPUTS = [{"hash": "0x" + "ab" * 32}, {"hash": "0x" + "cd" * 32}]
VERDICT = new_run(result="intents", outputs=OUTPUTS)
NOTE = new_run(result="stopped", reason={"code": "time", "text": ""})
OTHER_SIG = "0x" + "34" * 64 + "1b"
# What a listing leaves out.
WHOLE = ("inputs", "context")
# No lies: the default of a member, and a record that is shown twice.
UNTOLD = {"context.consensusThreshold removed", "records repeated"}
Start = Callable[[Any], Flow[Any]]


def listed(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in WHOLE}


def accepted(start: Start, truth: Any, claimed: list[str], *, is_list: bool = False) -> list[str]:
    """The lies about a run that a flow does not find; `truth` itself is accepted."""
    fed = Fed()

    def is_taken(record: Any) -> bool:
        try:
            fed.run(start(fed.session()), [answer([record] if is_list else record)])
        except (Forged, NotARegistry):  # a record without a member
            return False
        return True

    assert is_taken(truth)
    told = [(name, is_taken(lie)) for name, lie in lies(truth, claimed)]
    assert len(told) > 15
    return [name for name, taken in told if taken]


def test_every_lie_about_a_whole_run_is_refused() -> None:
    truth = answered(VERDICT)
    assert set(accepted(lambda session: runs.get(session, truth["hash"]), truth, CLAIMED)) == UNTOLD


def test_every_lie_about_a_listed_run_is_refused_but_those_about_blocks_and_records() -> None:
    truth = listed(answered(VERDICT))
    unproved = [*CLAIMED, "blocks", "records", "blocks.*", "relayer"]
    found = accepted(lambda session: runs.page(session, None, {}, -1), truth, unproved, is_list=True)
    assert found == []


def test_every_lie_about_a_recorded_run_is_refused() -> None:
    found = accepted(lambda session: runs.record(session, VERDICT), answered(VERDICT), CLAIMED)
    # The relayer has sent what it read, so the answer may leave it out.
    assert set(found) == {*UNTOLD, "inputs removed"}


def test_evidence_may_be_that_of_one_of_several_relayers_with_one_address() -> None:
    truth = answered(VERDICT)
    other = {**truth["records"][0], "evidence": "0x" + "77" * 32}
    fed = Fed()
    for records in ([other, truth["records"][0]], [truth["records"][0], other]):
        fed.run(runs.get(fed.session(), truth["hash"]), [answer({**truth, "records": records})])
    for records in ([], [other], [{**truth["records"][0], "relayer": "0x" + "77" * 20}]):
        with pytest.raises(Forged, match="other inputs than its relayer recorded"):
            fed.run(runs.get(fed.session(), truth["hash"]), [answer({**truth, "records": records})])


def test_a_whole_run_that_leaves_out_what_it_read_is_forged() -> None:
    truth = answered(VERDICT)
    for name in WHOLE:
        fed = Fed()
        with pytest.raises(Forged, match="without its inputs or its context"):
            fed.run(
                runs.get(fed.session(), truth["hash"]),
                [answer({each: value for each, value in truth.items() if each != name})],
            )


def test_a_note_may_be_answered_with_the_verdict_and_no_verdict_with_another() -> None:
    fed = Fed()
    assert fed.run(runs.record(fed.session(), NOTE), [answer(answered(VERDICT))]).result == "intents"
    assert fed.run(runs.record(fed.session(), NOTE), [answer(answered(NOTE))]).result == "stopped"
    other_note = new_run(result="skipped", reason={"code": "ended", "text": ""})
    for sent, shown in ((VERDICT, new_run()), (VERDICT, NOTE), (NOTE, other_note), (NOTE, new_run(1))):
        for verifies in (True, False):
            with pytest.raises(Forged):
                fed.run(runs.record(fed.session(verifies=verifies), sent), [answer(answered(shown))])


def test_a_note_about_a_cap_may_be_answered_with_an_earlier_one_of_the_trigger() -> None:
    first, second = (new_run(n, result="skipped", reason={"code": "run-cap", "text": ""}) for n in range(2))
    fed = Fed()
    assert fed.run(runs.record(fed.session(), second), [answer(answered(first))]).hash == hash_of(first)
    other = new_run(0, triggerSig=OTHER_SIG, result="skipped", reason={"code": "run-cap", "text": ""})
    for shown in (other, new_run(0, result="skipped", reason={"code": "ended", "text": ""})):
        with pytest.raises(Forged):
            fed.run(runs.record(fed.session(), second), [answer(answered(shown))])


def test_another_run_than_the_one_that_was_asked_for_is_forged() -> None:
    other = answered(new_run(1))
    for verifies in (True, False):
        fed = Fed()
        with pytest.raises(Forged, match="but got"):
            fed.run(runs.get(fed.session(verifies=verifies), hash_of(VERDICT)), [answer(other)])


@pytest.mark.parametrize(
    "filters", [{"triggerSig": OTHER_SIG}, {"relayer": "0x" + "77" * 20}, {"result": "missed"}], ids=str
)
def test_a_run_outside_the_filter_is_forged_or_left_out(filters: dict[str, str]) -> None:
    truth = listed(answered(VERDICT))
    fed, forged = Fed(), list[Forged]()
    with pytest.raises(Forged, match="a listing for the"):
        fed.run(runs.page(fed.session(), None, filters, -1), [answer([truth])])
    page = fed.run(runs.page(fed.session(), None, filters, -1, on_forged=forged.append), [answer([truth])])
    assert (len(page), len(forged)) == (0, 1)
    mine = {"triggerSig": SIG.upper().replace("0X", "0x"), "relayer": RELAYER.lower(), "result": "intents"}
    assert len(fed.run(runs.page(fed.session(), None, mine, -1), [answer([truth])])) == 1


def test_the_newest_runs_are_those_of_the_triggers_that_were_asked_for_each_once() -> None:
    fed, truth = Fed(), listed(answered(VERDICT))
    assert [*fed.run(runs.latest(fed.session(), [SIG, OTHER_SIG]), [answer([truth])])] == [SIG]
    assert fed.sent[-1].target == f"/executions?triggerSigs={SIG},{OTHER_SIG}&latest=1&limit=100"
    for asked, shown in (([OTHER_SIG], [truth]), ([SIG, OTHER_SIG], [truth, listed(answered(new_run(1)))])):
        with pytest.raises(Forged, match="was not asked for"):
            fed.run(runs.latest(fed.session(), asked), [answer(shown)])
    many = [f"0x{number:064x}{1:064x}1b" for number in range(1, 102)]
    assert fed.run(runs.latest(fed.session(), many), [answer([]), answer([])]) == {}


def test_an_orphaned_run_is_shown_as_such() -> None:
    truth = answered(VERDICT)
    gone = {**truth, "records": [{**truth["records"][0], "orphaned": True}]}
    fed = Fed()
    found = fed.run(runs.orphan(fed.session(), truth["hash"], 8453, "0x" + "02" * 32), [answer(gone)])
    assert found.records[0].orphaned is True
    assert fed.sent[-1].target == f"/executions/{truth['hash']}/orphan"
    assert fed.sent[-1].body == b'{"chainId":8453,"blockHash":"0x' + b"02" * 32 + b'"}'
    with pytest.raises(Forged, match="shows no record that says so"):
        fed.run(runs.orphan(fed.session(), truth["hash"], 8453, "0x" + "02" * 32), [answer(truth)])


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"timestamp": 1}, "another timestamp"),
        ({"triggerData": "0x01"}, "a payload that no trigger of its type has"),
        ({"triggerType": 1}, "a payload that no trigger of its type has"),
    ],
)
def test_what_made_a_run_due_is_what_its_hash_says(members: dict[str, Any], why: str) -> None:
    run, fed = new_run(**members), Fed()
    with pytest.raises(Forged, match=why):
        fed.run(runs.get(fed.session(), hash_of(run)), [answer(answered(run))])
