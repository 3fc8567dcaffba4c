"""How a run that is made again differs from its record. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.runs.hashes import execution_hash
from muniment.protocol.runs.texts import REASON_TEXT_MAX, RUN_BYTES_MAX, RunLog
from muniment.protocol.wire import encode
from muniment.relayer.verify.accepting import posted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.guest.types import GuestRun
    from muniment.protocol.runs.texts import Engine
    from muniment.protocol.runs.types import NewRun, Run, RunInput
    from muniment.relayer.runner.forms import Made
    from muniment.relayer.verify.report import Report

# A record that does not name its rules was made before they had numbers.
_FIRST_RULES: Final = "1"
# Where another version of the engine may come to another end: what it counts, compiles and refuses.
_OF_THE_ENGINE: Final = frozenset({"fuel", "trap", "bad-module", "refused-import", "limit-code", "limit-memory"})


class Maker(NamedTuple):
    """The number of the rules of a run, and the version of wasmtime; empty for another engine."""

    rules: str
    wasmtime: str

    @classmethod
    def of(cls, engine: Engine) -> Maker:
        """What `muniment 0.3.0, wasmtime 40.0.0, rules 2` says."""
        versions: dict[str, str] = {}
        for part in engine.split(", "):
            name, _, versions[name] = part.rpartition(" ")
        return cls(versions.get("rules", _FIRST_RULES), versions.get("wasmtime", ""))


def compare(
    run: Run, made: GuestRun, intents: Sequence[Made], asked: Sequence[RunInput], engine: Engine, report: Report
) -> None:  # fmt: skip
    """Note in `report` how `made`, with its intents and questions, differs from `run`; `engine` is what made it."""
    there, here = Maker.of(run.engine), Maker.of(engine)
    code = run.reason.code if run.reason else ""
    if wrong := _end_fault(run, made, intents):
        depends = there.wasmtime != here.wasmtime and not _OF_THE_ENGINE.isdisjoint((code, made.reason))
        (report.doubts if depends else report.faults).append(
            f"{wrong}; it was made with another engine: {run.engine}" if depends else wrong
        )
        return
    if run.reason and run.reason.text != made.text[:REASON_TEXT_MAX]:
        if code == "abort" or run.engine == engine:
            report.faults.append(f"the text of the reason is another one here: {made.text[:200]}")
        else:
            report.omissions.append(f"the text of the reason: {run.engine} wrote it")
    report.faults.extend(filter(None, (_log_fault(run, made), _question_fault(run, asked))))
    if there.wasmtime != here.wasmtime:
        report.omissions.append(f"the fuel: {run.engine} counted it")
    elif int(run.fuel_used) != made.fuel_used:
        report.faults.append(f"the function uses {made.fuel_used} fuel here; the record has {run.fuel_used}")


def _end_fault(run: Run, made: GuestRun, intents: Sequence[Made]) -> str:
    """How the result, the intents or the reason differ; empty where they do not."""
    hashes = [each.hash for each in intents]
    computed = execution_hash(run.trigger_sig, run.trigger_type, run.trigger_data.raw, made.result, hashes)
    if computed != run.hash.raw:
        here, there = _told(made.result, made.reason, len(hashes)), _told(run.result, "", len(run.outputs))
        return f"the function gives another result here: {here}; the record has {there}"
    if run.reason and run.reason.code != made.reason:
        return f"the run stops for another reason here: {made.reason}; the record has {run.reason.code}"
    return ""


def _log_fault(run: Run, made: GuestRun) -> str:
    """What is wrong with the log, which may be cut only where the record has no room."""
    kept = len(run.logs)
    if list(run.logs) != list(made.logs[:kept]):
        return "the function logs other lines here"
    is_cut = made.logs_cut or kept < len(made.logs)
    if is_cut != (run.logs_cut is True):
        return f"the function logs {'more than' if is_cut else 'no more than'} the record has, which says otherwise"
    more = [RunLog.parse(line) for line in made.logs[: kept + 1]]
    if kept < len(made.logs) and _fits(replace(_longest(run), logs=more)):
        return "the record has room for lines of the log that it leaves out"
    return ""


def _question_fault(run: Run, asked: Sequence[RunInput]) -> str:
    """What is wrong with parameters that are left out, which is done only where the record has no room at all."""
    if run.inputs is UNSET or list(asked) == list(run.inputs):
        return ""
    is_possible = _fits(replace(_longest(run), logs=[], inputs=list(asked)))
    return "the record has room for parameters that it leaves out" if is_possible else ""


def _longest(run: Run) -> NewRun:
    """The body with which a run was recorded, with all that may have been in it."""
    return replace(posted(run), hash=run.hash, evidence=Bytes32.from_raw(bytes(32)))


def _fits(body: NewRun) -> bool:
    return len(encode(body)) <= RUN_BYTES_MAX


def _told(result: str, reason: str, count: int) -> str:
    if count:
        return f"{count} intent{'s' if count > 1 else ''}"
    return f"{result} ({reason})" if reason else result
