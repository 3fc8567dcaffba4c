"""The record of a run: its hash, its reason, and a log that is cut where the record would be too long."""

from __future__ import annotations

from typing import Any

import msgspec

from muniment.chains.catalogue import SECOND_SETTLER
from muniment.guest.types import GuestRun
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.types import NewOperationsIntent
from muniment.protocol.runs.hashes import execution_hash
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.runs.texts import RUN_BYTES_MAX, Engine, ReasonText
from muniment.protocol.runs.types import NewRun, RunAnswer, RunCall, RunInput, RunToken
from muniment.protocol.wire import encode
from muniment.relayer.runner.answers import Answers
from muniment.relayer.runner.forms import Made
from muniment.relayer.runner.pinning import Pin, Pins
from muniment.relayer.runner.record import recorded_run
from muniment.relayer.schedule.due import Due

SIG = Signature.parse("0x" + "11" * 64 + "1b")
TICK_MS = 1_795_262_400_000
DUE = Due(SIG, 0, time_payload(TICK_MS), TICK_MS, TICK_MS + 60_000)
SETTLERS = [RunToken(address=SECOND_SETTLER, chain_id=8453)]
PIN = Pin(8453, 38_000_000, bytes(32), TICK_MS // 1_000 - 1)


def recorded(run: GuestRun, made: list[Made] | None = None, fee: int = 0, **members: Any) -> tuple[NewRun, list[Any]]:
    answers = Answers(pins=Pins(nodes={}, now_ms=lambda: 0), timestamp_ms=TICK_MS, pinned={8453: PIN}, **members)
    return recorded_run(DUE, run, made or [], answers=answers, settlers=SETTLERS, engine=Engine("tests"), fee=fee)


def test_a_stopped_run_has_its_reason_and_no_outputs() -> None:
    run = GuestRun(result="stopped", reason="abort", text="too dear", fuel_used=7, logs=("[Info] 1",), logs_cut=True)
    record, intents = recorded(run)
    assert record.reason is not None
    assert (record.result, record.reason.code, record.reason.text) == ("stopped", "abort", "too dear")
    assert (record.fuel_used, record.logs, record.logs_cut) == ("7", ["[Info] 1"], True)
    assert (record.trigger_data, record.timestamp) == (HexString.from_raw(DUE.payload), TICK_MS)
    assert (record.blocks, record.context.settlers) == ([PIN.block()], SETTLERS)
    assert record.hash == Bytes32.from_raw(execution_hash(SIG, 0, DUE.payload, "stopped"))
    assert (record.outputs, intents) == ([], [])


def test_intents_carry_the_hash_of_their_run() -> None:
    intent = decode_record(NewOperationsIntent.example, NewOperationsIntent)
    assert isinstance(intent, NewOperationsIntent)
    hashes = [bytes([number]) * 32 for number in (1, 2)]
    record, intents = recorded(GuestRun(result="intents"), [Made(each, intent) for each in hashes])
    assert [each.hash for each in record.outputs] == [Bytes32.from_raw(each) for each in hashes]
    assert record.hash == Bytes32.from_raw(execution_hash(SIG, 0, DUE.payload, "intents", hashes))
    assert [each.execution_hash for each in intents] == [record.hash] * 2


def test_a_record_that_would_be_too_long_has_a_shorter_log() -> None:
    question = RunInput(
        query="evmCall", params={"data": "0x"}, answer=RunAnswer(success=True, data="0x" + "ab" * 65_000)
    )
    lines = tuple('[Info] "' + '"' * 3_000 for _ in range(60))
    record, _ = recorded(GuestRun(result="nothing", logs=lines), inputs=[question])
    assert RUN_BYTES_MAX - 7_000 < len(encode(record)) <= RUN_BYTES_MAX
    assert record.logs_cut
    assert list(lines[: len(record.logs)]) == record.logs
    whole, _ = recorded(GuestRun(result="nothing", logs=lines[:10]), inputs=[question])
    assert (len(whole.logs), whole.logs_cut) == (10, False)


def test_what_a_function_aborted_with_stays_in_a_log_that_is_cut() -> None:
    logs = ("\\" * 4_000,) * 40 + ("[Error] too dear",)
    run = GuestRun(result="stopped", reason="abort", text="too dear", logs=logs)
    record, _ = recorded(run)
    assert len(encode(record)) <= RUN_BYTES_MAX
    assert record.logs_cut
    assert record.logs[-1] == "[Error] too dear"


def test_a_record_has_room_for_its_fee() -> None:
    record, _ = recorded(GuestRun(result="nothing", logs=("[Info] short",) * 20_000), fee=2**256 - 1)
    assert RUN_BYTES_MAX - 40 < len(encode(record)) <= RUN_BYTES_MAX
    assert record.fee == str(2**256 - 1)


def test_calls_that_a_record_has_no_room_for_are_left_out() -> None:
    call = RunCall(data=HexString("0x" + "ab" * 4_000), block=PIN.block(), answer=HexString("0x" + "cd" * 4_000))
    params: dict[str, str | list[str]] = {"owner": "0x" + "01" * 20}
    question = RunInput(query="relevantTokens", params=params, answer=RunAnswer(success=True, data="1"), calls=[call])
    whole, _ = recorded(GuestRun(result="nothing", logs=("[Info] 1",)), inputs=[question] * 16)
    assert whole.inputs == [question] * 16
    record, _ = recorded(GuestRun(result="nothing", logs=("[Info] 1",)), inputs=[question] * 17)
    assert len(encode(record)) <= RUN_BYTES_MAX
    assert record.inputs == [msgspec.structs.replace(question, calls=msgspec.UNSET)] * 17
    assert record.logs == ["[Info] 1"]


def test_questions_without_an_answer_that_a_record_has_no_room_for_lose_their_parameters() -> None:
    refused = RunAnswer(success=False, error=ReasonText("not answered"))
    question = RunInput(query="svmAccountsInfo", params={"publicKeys": ["x" * 500] * 500}, answer=refused)
    answered = RunInput(query="evmCall", params={"data": "0x"}, answer=RunAnswer(success=True, data="0x01"))
    record, _ = recorded(GuestRun(result="nothing"), inputs=[question, question, answered])
    assert len(encode(record)) <= RUN_BYTES_MAX
    assert [each.params for each in record.inputs] == [{}, {}, {"data": "0x"}]


def test_a_record_is_read_as_it_was_written() -> None:
    record, _ = recorded(GuestRun(result="nothing"))
    assert decode_record(msgspec.json.decode(encode(record)), NewRun) == record
    assert Address.parse(SECOND_SETTLER) == record.context.settlers[0].address
