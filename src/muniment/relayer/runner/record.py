"""The record of a run, as a relayer posts it, and the intents with the hash of their run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.intents.types import AnyNewIntent
from muniment.protocol.runs.hashes import execution_hash
from muniment.protocol.runs.texts import RUN_BYTES_MAX, RunLog
from muniment.protocol.runs.types import NewRun, NewRunOutput, RunToken
from muniment.protocol.wire import Amount, encode
from muniment.relayer.runner.context import run_context
from muniment.relayer.runner.notes import reason_of

if TYPE_CHECKING:
    from muniment.guest.types import GuestRun
    from muniment.protocol.runs.texts import Engine
    from muniment.relayer.runner.answers import Answers
    from muniment.relayer.runner.forms import Made
    from muniment.relayer.schedule.due import Due


def recorded_run(
    due: Due, run: GuestRun, made: Sequence[Made], *, answers: Answers, settlers: Sequence[RunToken], engine: Engine,
    fee: int = 0,
) -> tuple[NewRun, list[AnyNewIntent]]:  # fmt: skip
    """The body of `POST /executions` for a run that came to a result, and its intents, which carry its hash.

    `run` and `made` are those of `forms.formed`, `fee` is what the relayer asks for. Where the record would be too
    long, the log is cut, and then what else it can do without.
    """
    hashes = [each.hash for each in made]
    run_hash = execution_hash(due.sig, due.kind, due.payload, run.result, hashes)
    record = NewRun(
        hash=Bytes32.from_raw(run_hash), trigger_sig=due.sig, trigger_type=due.kind,
        trigger_data=HexString.from_raw(due.payload), timestamp=due.timestamp_ms, result=run.result,
        reason=reason_of(run.reason, run.text) if run.reason else None, fuel_used=Amount(run.fuel_used),
        logs=[RunLog.parse(line) for line in run.logs], logs_cut=run.logs_cut, inputs=answers.inputs,
        context=run_context(settlers), blocks=answers.blocks,
        outputs=[NewRunOutput(hash=Bytes32.from_raw(each)) for each in hashes], engine=engine,
        fee=Amount(fee),
    )  # fmt: skip
    carried = HexString.from_raw(run_hash)
    return _fitting(record), [replace(each.intent, execution_hash=carried) for each in made]


def _fitting(record: NewRun) -> NewRun:
    """The record without what it has no room for: first the last lines of its log.

    Where that is not enough, the calls from which answers were made, since whoever verifies the run makes them again;
    then the parameters of questions that got no answer.
    """
    for shorter in (_whole, _without_calls, _without_questions):
        record = shorter(record)
        if len(encode(replace(record, logs=[], logs_cut=True))) <= RUN_BYTES_MAX:
            break
    beyond = len(encode(record)) - RUN_BYTES_MAX
    if beyond <= 0:
        return record
    # The last line of a function that aborts is its answer.
    kept = record.logs[-1:] if record.reason is not None and record.reason.code == "abort" else []
    lines = record.logs[: len(record.logs) - len(kept)]
    while lines and beyond > -len(',"logsCut":true'):
        beyond -= len(encode(lines.pop())) + 1
    return replace(record, logs=[*lines, *kept], logs_cut=True)


def _whole(record: NewRun) -> NewRun:
    return record


def _without_calls(record: NewRun) -> NewRun:
    return replace(record, inputs=[replace(each, calls=UNSET) for each in record.inputs])


def _without_questions(record: NewRun) -> NewRun:
    return replace(record, inputs=[each if each.answer.success else replace(each, params={}) for each in record.inputs])
