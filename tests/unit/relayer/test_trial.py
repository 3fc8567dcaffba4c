"""Trials: what is due for them, and intents in plain words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from builders import cron, event, once
from each_row import each_row
from muniment.chains.nodes import Node
from muniment.chains.rpc import Failed
from muniment.guest.types import GuestIntent, GuestRun
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.types import FIRST, SECOND, Generation
from muniment.protocol.runs.payloads import EventPayload, event_payload, time_payload
from muniment.protocol.runs.texts import Engine
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import ms_of
from muniment.relayer.runner.forms import formed
from muniment.relayer.runner.pinning import Incomplete, Pins
from muniment.relayer.runner.wording import said
from muniment.relayer.schedule.due import Occurrence
from muniment.relayer.verify.trial import NO_TRIGGER, EventAsked, Trials, _due, made_up

CREATED = "2026-11-20T19:48:00.123Z"
NOON = 1_795_262_400_000  # 2026-11-21T12:00:00Z
SETTLER, TOKEN, OTHER = (Address.parse("0x" + pair * 20) for pair in ("22", "aa", "cc"))
TOPICS = tuple(Bytes32.parse("0x" + pair * 32) for pair in ("ab", "02"))


def trigger(config: dict[str, Any]) -> Trigger:
    return decode_record({**Trigger.example, "createdAt": CREATED, "config": config}, Trigger)


def occurrence(contract: Address = OTHER, chain_id: int = 8453, topics: tuple[Bytes32, ...] = TOPICS) -> Occurrence:
    log = EventPayload(chain_id, Bytes32.parse("0x" + "01" * 32), 4, contract, topics, HexString.parse("0x"))
    return Occurrence(log, 7, NOON // 1_000, Bytes32.parse("0x" + "05" * 32), 0)


def test_a_schedule_is_tried_at_its_newest_tick() -> None:
    wanted = trigger(cron(schedule="0 * * * *"))
    for moment, tick in ((NOON, NOON), (NOON + 3_599_999, NOON), (NOON - 1, NOON - 3_600_000)):
        due = _due(wanted, None, moment)
        assert (due.sig, due.kind, due.timestamp_ms, due.payload) == (wanted.sig, 0, tick, time_payload(tick))


def test_a_single_run_is_tried_at_its_date_or_its_registration() -> None:
    for start, at in ((NOON, NOON), (0, ms_of(CREATED))):
        due = _due(trigger(once(startDate=start)), None, NOON + 5)
        assert (due.kind, due.timestamp_ms, due.payload) == (2, at, time_payload(at))


def test_without_a_trigger_the_moment_or_the_event_is_due() -> None:
    due = _due(None, None, NOON + 7)
    assert (due.sig, due.kind, due.timestamp_ms, due.payload) == (NO_TRIGGER, 0, NOON + 7, time_payload(NOON + 7))
    found = occurrence()
    due = _due(None, found, NOON + 7)
    assert (due.sig, due.kind, due.timestamp_ms, due.payload) == (NO_TRIGGER, 1, NOON, event_payload(found.log))


def test_an_event_must_be_one_that_the_trigger_waits_for() -> None:
    wanted = trigger(event(contract=OTHER, topics=[["0x" + "AB" * 32], []]))
    due = _due(wanted, occurrence(), NOON)
    assert (due.sig, due.kind, due.timestamp_ms) == (wanted.sig, 1, NOON)
    for wrong, words in (
        (None, "name one with --event"), (occurrence(TOKEN), "waits for events of"),
        (occurrence(chain_id=10), "waits for events of"), (occurrence(topics=TOPICS[::-1]), "another topic"),
        (occurrence(topics=TOPICS[:1]), "topics"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            _due(wanted, wrong, NOON)
    with pytest.raises(ValueError, match="leave out --event"):
        _due(trigger(cron()), occurrence(), NOON)


@each_row("logs", [None, "0x", 7, {}])
async def test_a_receipt_without_a_list_of_logs_is_no_answer(logs: object) -> None:
    node = Node(1, "http://node")

    async def ask(_: Node, __: list[Any]) -> list[Any]:
        return [{"blockHash": "0x" + "01" * 32, "logs": logs}]

    nodes = cast("Any", {8453: SimpleNamespace(nodes=[node], ask=ask)})
    trials = Trials(sandbox=cast("Any", None), chains={}, nodes=nodes, now_ms=lambda: NOON, engine=Engine("tests"))
    asked = EventAsked(8453, Bytes32.parse("0x" + "05" * 32), 0)
    with pytest.raises(Incomplete, match="without a list of logs"):
        await trials._occurrence(Pins(nodes=nodes, now_ms=lambda: NOON), asked)


async def test_an_error_of_a_node_does_not_say_that_there_is_no_receipt() -> None:
    async def ask(node: Node, _: list[Any]) -> list[Any]:
        return [Failed(-32_000, f"node {node.number} is ill")]

    nodes = cast("Any", {8453: SimpleNamespace(nodes=[Node(n, "http://node") for n in (1, 2)], ask=ask)})
    trials = Trials(sandbox=cast("Any", None), chains={}, nodes=nodes, now_ms=lambda: NOON, engine=Engine("tests"))
    with pytest.raises(Incomplete, match=r"no node of chain 8453 answers .*node 2 is ill"):
        await trials._occurrence(
            Pins(nodes=nodes, now_ms=lambda: NOON), EventAsked(8453, Bytes32.parse("0x" + "05" * 32), 0)
        )


def test_inputs_that_no_trigger_can_have_are_named() -> None:
    inputs = {"chainId": "uint32", "token": "address"}
    good: dict[str, Any] = {"chainId": 8453, "token": TOKEN}
    assert made_up(OTHER, "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ", good, inputs).input == good
    for wrong, words in (
        ({"chainId": 1}, r"more inputs: token \(address\); it takes chainId \(uint32\), token \(address\)$"),
        ({**good, "more": 1}, r"no input more; it takes chainId \(uint32\), token \(address\)$"),
        ({**good, "chainId": 2**32}, "^chainId: "), ({**good, "token": "0x12"}, "^token: "),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            made_up(OTHER, "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ", wrong, inputs)


def words(body: dict[str, Any], generation: Generation, kind: Any, *, deadline: str = "1795262400") -> list[str]:
    shared = {
        "settler": SETTLER, "deadline": deadline, "nonce": "0x" + "07" * 32, "events": [], "user": OTHER,
        "feePayer": OTHER, "maxFees": body.pop("maxFees", [{"token": TOKEN, "amount": "5"}]),
    }  # fmt: skip
    sent = GuestRun(result="intents", intents=(GuestIntent(kind, {**shared, **body}),))
    run, (made,) = formed(sent, sig=NO_TRIGGER, min_validations=1, generations={SETTLER: generation})
    assert run.result == "intents"
    return said(made.intent)


@each_row("generation", [FIRST, SECOND])
def test_an_intent_is_said_in_words_in_both_forms(generation: Generation) -> None:
    transfers = [{"token": TOKEN, "amount": str(2**255), "recipient": OTHER}] * 2
    line = f"transfer {2**255} of {TOKEN} to {OTHER} on chain 8453"
    assert words({"chainId": 8453, "transfers": transfers}, generation, "transfer") == [
        line, line, f"for a fee of at most 5 of {TOKEN}",
        f"until 2026-11-21T12:00:00.000Z, at the settlement contract {SETTLER}",
    ]  # fmt: skip


def test_each_operation_is_said() -> None:
    swap = {
        "opType": 0, "user": OTHER, "sourceChain": 8453, "destinationChain": 10,
        "tokensIn": [{"token": TOKEN, "amount": "7"}],
        "tokensOut": [{"token": OTHER, "minAmount": "6", "recipient": TOKEN}],
    }  # fmt: skip
    call = {
        "opType": 2, "user": OTHER, "chainId": 10, "calls": [{"target": OTHER, "data": "0x1234567890", "value": "3"}],
    }  # fmt: skip
    dynamic = {
        "opType": 4, "user": OTHER, "chainId": 10,
        "calls": [{"target": OTHER, "value": "0", "selector": "0x12345678", "arguments": []}],
    }  # fmt: skip
    body = {"operations": [swap, call, dynamic], "maxFees": []}
    first, second, third, *rest = words(body, SECOND, "intent", deadline=str(2**200))
    assert first == f"swap 7 of {TOKEN} on chain 8453 for at least 6 of {OTHER} for {TOKEN} on chain 10"
    assert second == f"call {OTHER} with 5 bytes (0x12345678) and 3 wei on chain 10"
    assert third.startswith("operation of type 4 with ")
    assert rest == ["without a fee", f"until {1_000 * 2**200} ms after 1970, at the settlement contract {SETTLER}"]
