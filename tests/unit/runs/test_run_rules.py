"""What a run must have in common with its trigger, with the time, and in itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from builders import Wallet, cron, event, once
from each_row import each_row
from muniment.protocol.errors import BodyTooLarge, InvalidRun, RunMismatch, SignatureMismatch
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import personal_digest, sign
from muniment.protocol.forms import decode_record
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.runs.reasons import REASONS
from muniment.protocol.runs.rules import CheckedRun, Terms, check_run
from muniment.protocol.runs.types import NewRun
from runs_world import BLOCK, TICK, event_body, run_body, skipped, stopped, with_intents

SIG = "0x" + "1" * 128 + "1b"
HEX32 = "0x" + "ab" * 32
CREATED = TICK - 4 * 60 * 60 * 1000
MINUTE = 60_000
RELAYER = Wallet(5)
CALL = {"to": "0x" + "01" * 20, "data": "0x", "block": BLOCK, "answer": "0x"}
INPUT: dict[str, Any] = {
    "query": "evmCall", "params": {"chainId": "8453", "tokens": ["a", "b"]},
    "answer": {"success": True, "data": "0x"}, "block": BLOCK, "calls": [CALL],
}  # fmt: skip


def trigger(config: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"sig": SIG, "config": config or cron()}


def checked(
    body: dict[str, Any], config: dict[str, Any] | None = None, *, now_ms: int = TICK, relayer: str | None = None
) -> CheckedRun:
    terms = Terms(config or cron(), 1, CREATED)
    return check_run(decode_record(body, NewRun), terms, Address.parse(relayer) if relayer else None, now_ms)


def refusal_of(body: dict[str, Any], config: dict[str, Any] | None = None, **given: Any) -> tuple[str, str | None]:
    """The detail and the pointer of a refusal."""
    with pytest.raises(InvalidRun) as caught:
        checked(body, config, **given)
    assert len(caught.value.faults) == 1
    return caught.value.detail, caught.value.faults[0].pointer


def missed(count: int = 1, since: int = TICK, until: int = TICK) -> dict[str, Any]:
    return {
        "result": "missed", "reason": {"code": "gap"}, "missedCount": count, "from": since, "to": until,
    }  # fmt: skip


def at(time_ms: int) -> dict[str, Any]:
    return {"timestamp": time_ms, "triggerData": f"0x{time_payload(time_ms).hex()}"}


@each_row(
    "changes",
    [
        {}, with_intents(HEX32, SIG[:66]), stopped(), stopped("time", "after 10 s"), skipped("run-cap"), missed(),
        missed(3, TICK - 2 * MINUTE, TICK), {"result": "incomplete", "reason": {"code": "no-block"}},
        {"inputs": [INPUT], "blocks": [BLOCK]}, {"inputs": [{**INPUT, "answer": {"success": False, "error": "no"}}],
        "blocks": [BLOCK, {**BLOCK, "chainId": 1, "quiet": True}]},
    ],
)  # fmt: skip
def test_a_run_of_a_schedule_is_accepted(changes: dict[str, Any]) -> None:
    body = run_body(trigger(), **changes)
    done = checked(body)
    assert done.is_verdict == (done.new.result in {"intents", "nothing"} or changes == stopped())
    # With the hashes that were computed it is the same.
    named = {**body, "hash": f"0x{done.hash.hex()}", "evidence": f"0x{done.evidence.hex()}"}
    assert (checked(named).hash, checked(named).evidence) == (done.hash, done.evidence)


@each_row(("name", "wrong"), [("hash", HEX32), ("evidence", HEX32)])
def test_a_wrong_hash_is_refused_with_the_right_one(name: str, wrong: str) -> None:
    body = run_body(trigger())
    right = getattr(checked(body), name)
    with pytest.raises(RunMismatch) as caught:
        checked({**body, name: wrong})
    assert caught.value.facts == {"computed": f"0x{right.hex()}"}
    assert caught.value.faults[0].pointer == f"/{name}"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "type of another trigger": ({"triggerType": 2}, "/triggerType"),
    "payload of another size": ({"triggerData": "0x01"}, "/triggerData"),
    "other time": ({"timestamp": TICK - MINUTE}, "/timestamp"),
    "not on the schedule": (at(TICK - MINUTE), "/timestamp"),
    "milliseconds after a tick": (at(TICK + 1), "/timestamp"),
    "outputs of nothing": ({"outputs": [{"hash": HEX32}]}, "/outputs"),
    "no outputs of intents": ({"result": "intents"}, "/outputs"),
    "an output twice": (with_intents(HEX32, HEX32), "/outputs/1/hash"),
    "no reason": ({"result": "stopped"}, "/reason"),
    "a reason of nothing": ({"reason": {"code": "abort"}}, "/reason"),
    "a reason of another result": ({"result": "skipped", "reason": {"code": "abort"}}, "/reason/code"),
    "a count of nothing": ({"missedCount": 1}, "/missedCount"),
    "missed without a count": ({**missed(), "missedCount": None}, "/missedCount"),
    "missed without its start": ({**missed(), "from": None}, "/from"),
    "missed without its end": ({**missed(), "to": None}, "/to"),
    "missed until another time": (missed(1, TICK - MINUTE, TICK - MINUTE), "/to"),
    "missed backwards": (missed(1, TICK + 1, TICK), "/from"),
    "missed before the trigger": (missed(1, CREATED, TICK), "/from"),
    "missed more than possible": (missed(3, TICK - MINUTE, TICK), "/missedCount"),
    "a chain twice": ({"blocks": [BLOCK, {**BLOCK, "number": 1}]}, "/blocks"),
    "a block that is not listed": ({"inputs": [INPUT]}, "/inputs/0/block"),
    "another block of the chain": ({"inputs": [INPUT], "blocks": [{**BLOCK, "number": 1}]}, "/inputs/0/block"),
    "a call at another block": (
        {"inputs": [{**INPUT, "calls": [CALL, {**CALL, "block": {**BLOCK, "chainId": 1}}]}], "blocks": [BLOCK]},
        "/inputs/0/calls/1/block",
    ),
    "a success with an error": (
        {"inputs": [{"query": "api", "params": {}, "answer": {"success": True, "data": "", "error": "x"}}]},
        "/inputs/0/answer",
    ),
    "a success without data": (
        {"inputs": [{"query": "api", "params": {}, "answer": {"success": True}}]}, "/inputs/0/answer",
    ),
    "a failure with data": (
        {"inputs": [{"query": "api", "params": {}, "answer": {"success": False, "data": "", "error": ""}}]},
        "/inputs/0/answer",
    ),
    "a failure without an error": (
        {"inputs": [{"query": "api", "params": {}, "answer": {"success": False}}]}, "/inputs/0/answer",
    ),
    "a long log": ({"logs": ["é" * 3_000] * 11}, "/logs"),
}  # fmt: skip


@each_row("case", REFUSED)
def test_a_run_that_breaks_a_rule_is_refused(case: str) -> None:
    changes, pointer = REFUSED[case]
    assert refusal_of(run_body(trigger(), **changes))[1] == pointer


def test_a_refusal_names_the_reasons_to_choose_from() -> None:
    detail, _ = refusal_of(run_body(trigger(), result="incomplete"))
    assert all(code in detail for code in REASONS["incomplete"])


def test_a_tick_is_after_the_registration_and_not_in_the_future_and_before_the_end() -> None:
    body = run_body(trigger())
    assert checked(body, now_ms=TICK - MINUTE)
    assert "future" in refusal_of(body, now_ms=TICK - MINUTE - 1)[0]
    early = run_body(trigger(), TICK - 6 * 60 * MINUTE)
    assert "before the registration" in refusal_of(early)[0]
    assert checked(body, cron(endDate=TICK))
    assert "after the end" in refusal_of(body, cron(endDate=TICK - 1))[0]


def test_a_once_trigger_runs_at_its_start_or_its_registration() -> None:
    config = once()
    assert checked(run_body(trigger(config), CREATED), config)
    assert refusal_of(run_body(trigger(config), CREATED + 1), config)[1] == "/timestamp"
    later = once(startDate=TICK)
    assert checked(run_body(trigger(later), TICK), later)
    assert refusal_of(run_body(trigger(later), CREATED), later)[1] == "/timestamp"
    as_text = once(startDate=str(TICK))
    assert checked(run_body(trigger(as_text), TICK), as_text)


def test_an_event_is_one_that_the_trigger_names() -> None:
    config = event()
    assert checked(event_body(trigger(config)), config)
    for other in (event(chainId=1), event(contract=Wallet(98).address), event(topics=[["0x" + "cd" * 32]])):
        assert refusal_of(event_body(trigger(config)), other)[1] == "/triggerData"
    # The event has two topics.
    for topics in ([[], [], [HEX32]], [[], [], []]):
        assert refusal_of(event_body(trigger(config)), event(topics=topics))[1] == "/triggerData"
    assert checked(event_body(trigger(config)), event(topics=[[HEX32.replace("ab", "AB")], []]))
    assert checked(event_body(trigger(config)), event(topics=[]))
    for time_ms in (CREATED, CREATED - MINUTE):
        detail, pointer = refusal_of(event_body(trigger(config), timestamp=time_ms), config)
        assert (detail, pointer) == ("the run is before the registration of its trigger", "/timestamp")


def test_an_event_is_missed_alone() -> None:
    config = event()
    body = event_body(trigger(config), result="missed", reason={"code": "unanswered"})
    times = {"from": body["timestamp"], "to": body["timestamp"]}
    assert checked({**body, "missedCount": 1, **times}, config)
    assert refusal_of({**body, "missedCount": 2, **times}, config)[1] == "/missedCount"


def test_a_signature_is_by_the_address_of_the_operator_over_the_hash() -> None:
    body = run_body(trigger())
    signature = str(sign(personal_digest(checked(body).hash), RELAYER.key))
    assert checked({**body, "signature": signature}, relayer=RELAYER.address)
    for other in (None, Wallet(6).address):
        with pytest.raises(SignatureMismatch) as caught:
            checked({**body, "signature": signature}, relayer=other)
        assert caught.value.faults[0].pointer == "/signature"
    with pytest.raises(SignatureMismatch):
        checked({**body, **stopped(), "signature": signature}, relayer=RELAYER.address)


def test_a_record_has_at_most_256_kib() -> None:
    def of(length: int) -> dict[str, Any]:
        data = "0x" + "0" * length
        return run_body(trigger(), inputs=[{"query": "api", "params": {}, "answer": {"success": True, "data": data}}])

    assert checked(of(250_000))
    with pytest.raises(BodyTooLarge):
        checked(of(262_000))


SPELLINGS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "defaults": lambda body: {**body, "inputs": [], "context": {}, "blocks": [], "outputs": [], "solverFees": []},
    "what GET adds": lambda body: {**body, "status": "valid", "records": [], "conflicts": [], "validations": 9},
    "upper case": lambda body: {**body, "triggerSig": body["triggerSig"].upper().replace("0X", "0x")},
}


@each_row("spelling", SPELLINGS)
def test_other_spellings_are_the_same_run(spelling: str) -> None:
    body = run_body(trigger())
    assert checked(SPELLINGS[spelling](body)).hash == checked(body).hash
    assert checked(SPELLINGS[spelling](body)).evidence == checked(body).evidence
