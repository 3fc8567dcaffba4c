"""The record of a run, as a relayer posts it, and the intents with the hash of their run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.intents.types import AnyNewIntent
from muniment.protocol.runs.hashes import execution_hash
from muniment.protocol.runs.texts import RunLog
from muniment.protocol.runs.types import RUN_BYTES_MAX, NewRun, NewRunOutput, RunToken
from muniment.protocol.wire import Amount, encode
from muniment.relayer.context import run_context
from muniment.relayer.notes import reason_of

if TYPE_CHECKING:
    from muniment.guest.types import GuestRun
    from muniment.protocol.runs.texts import Engine
    from muniment.relayer.answers import Answers
    from muniment.relayer.due import Due
    from muniment.relayer.forms import Made


def recorded_run(
    due: Due, run: GuestRun, made: Sequence[Made], *, answers: Answers, settlers: Sequence[RunToken], engine: Engine
) -> tuple[NewRun, list[AnyNewIntent]]:
    """The body of `POST /executions` for a run that came to a result, and its intents, which carry its hash.

    `run` and `made` are those of `forms.formed`. Where the record would be too long, the log is cut.
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
    )  # fmt: skip
    carried = HexString.from_raw(run_hash)
    return _fitting(record), [replace(each.intent, execution_hash=carried) for each in made]


def _fitting(record: NewRun) -> NewRun:
    """The record with as many of the first lines of its log as it has room for."""
    beyond = len(encode(record)) - RUN_BYTES_MAX
    if beyond <= 0:
        return record
    lines = list(record.logs)
    while lines and beyond > -len(',"logsCut":true'):
        beyond -= len(encode(lines.pop())) + 1
    return replace(record, logs=lines, logs_cut=True)
