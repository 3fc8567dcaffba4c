"""The commands of `muniment runs` that use a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from muniment.cli.client.listing import list_options, now_ms, show_newest, sum_up
from muniment.cli.client.service import opened, service_options
from muniment.cli.client.short_ids import whole_run, whole_trigger
from muniment.cli.output import (
    Column,
    ago,
    counted,
    print_note,
    shape_options,
    short,
    short_address,
    show_all,
    show_one,
)

if TYPE_CHECKING:
    from muniment.client import Registry
    from muniment.protocol.runs.types import NewRun, Run, RunAnswer, RunBlock, RunInput, RunRecord

_CLAIMED: Final = "(as the service says)"
_EMPTY: Final = "no runs: `muniment relayer explain SIG` says why a relayer did not run a trigger"
_RESULTS: Final = ("intents", "nothing", "stopped", "missed", "skipped", "incomplete")
TYPES: Final = ("cron", "event", "once")
# Characters of an answer; `--json` has all of them.
_ANSWER_MAX: Final = 120


@click.command("list")
@click.option("--trigger", "triggers", metavar="SIG", multiple=True, help="Only those of this trigger.")
@click.option("--latest", is_flag=True, help="Only the newest of each --trigger, which can be repeated.")
@click.option("--relayer", metavar="ADDRESS", help="Only those that this relayer recorded.")
@click.option("--result", type=click.Choice(_RESULTS), help="Only those with this result.")
@service_options
@list_options
def list_runs(
    *, triggers: tuple[str, ...], latest: bool, relayer: str | None, result: Any, limit: int | None, every: bool,
    as_json: bool | None, whole: bool, **flags: Any,
) -> None:  # fmt: skip
    """List runs, the newest first. The hash of each is computed again.

    JSON leaves out what each run read and all but the first 50 lines of its log, or with --all nothing.
    """
    _check_usage(triggers, latest=latest, has_filter=bool(relayer or result or limit or every))
    with opened(flags) as registry:
        sigs, columns = [whole_trigger(registry, each, flags) for each in triggers], _columns(whole=whole)
        if latest:
            found = registry.runs.latest(sigs).values()
            show_all(found, columns, as_json=as_json, empty=_EMPTY, fits=not whole)
            return
        printed = show_newest(
            lambda size: registry.runs.list(
                trigger_sig=sigs[0] if sigs else None, relayer=relayer, result=result, newest_first=True, limit=size
            ),
            columns, limit=limit, every=every, as_json=as_json, whole=whole, empty=_EMPTY,
            complete=lambda run: _complete(registry, run),
        )  # fmt: skip
    if words := sum_up(printed):
        print_note(words)


@click.command("show")
@click.argument("hash_", metavar="HASH")
@service_options
@shape_options
def show_run(hash_: str, *, as_json: bool | None, **flags: Any) -> None:
    """Show a run: what came of it, what it read, who recorded it.

    Its hash and its relayer's evidence are computed again. The answers themselves are a claim.
    """
    with opened(flags) as registry:
        run = registry.runs.get(whole_run(registry, hash_))
    show_one(run, _members(run), as_json=as_json)


COMMANDS: Final = (list_runs, show_run)


def _complete(registry: Registry, run: Run) -> Run | None:
    """A run of a listing with all that it read and logged; None if it was removed since."""
    from muniment.protocol.errors import RunNotFound

    try:
        return registry.runs.get(run.hash)
    except RunNotFound:
        return None


def _check_usage(triggers: tuple[str, ...], *, latest: bool, has_filter: bool) -> None:
    if latest and not triggers:
        raise click.UsageError("--latest needs at least one --trigger")
    if latest and has_filter:
        raise click.UsageError("--latest is one run of each --trigger: it excludes --relayer, --result, --limit, --all")
    if len(triggers) > 1 and not latest:
        raise click.UsageError("several --trigger need --latest")


def _outcome(run: Run) -> str:
    """The result, or `declined` where the function itself ended the run."""
    from muniment.protocol.runs.outcomes import outcome_of

    return outcome_of(run.result, run.reason.code if run.reason else None)


def _why(run: Run) -> str:
    """The words of a function that declined, the code of another reason, or that the intent came too late."""
    if run.reason:
        return (_outcome(run) != run.result and run.reason.text) or run.reason.code
    return _lateness(run).partition(":")[0]


def _lateness(run: Run) -> str:
    """Why an intent of a run is not recorded; empty where all are, or may still be."""
    from muniment.protocol.runs.outcomes import is_lost, lateness

    return lateness(run) if is_lost(run, now_ms()) else ""


def _columns(*, whole: bool) -> list[Column]:
    from muniment.protocol.wire import moment

    return [
        Column("HASH", lambda each: short(each.hash, whole=whole)),
        Column("TRIGGER", lambda each: short(each.trigger_sig, whole=whole)),
        Column("RESULT", _outcome, is_status=True), Column("REASON", _why, may_be_cut=True),
        Column("STATUS", lambda each: each.status, is_status=True),
        Column("DUE", lambda each: ago(moment(each.timestamp))), Column("INTENTS", lambda each: str(len(each.outputs))),
        Column("RECORDED", lambda each: ago(each.created_at)),
        Column("RELAYER", lambda each: short_address(each.relayer, whole=whole)),
    ]  # fmt: skip


def _members(run: Run) -> dict[str, str]:
    lost = _lateness(run).partition(":")[0] or "not recorded here"
    shown = {
        "hash": run.hash, "trigger": run.trigger_sig, "due": _due(run), "result": _result(run), **_came_of(run),
        "status": f"{run.status}, {counted(run.validations, 'validation')} {_CLAIMED}",
        "intents": "\n".join(
            f"{each.hash}{'' if each.recorded else f', {lost}'} {_CLAIMED}" for each in run.outputs
        ),
        **read_and_logged(run),
        "relayers": "\n".join(f"{_relayer(each)} {_CLAIMED}" for each in run.records),
        "conflicts": "\n".join(run.conflicts),
        "fee": run.fee, "engine": run.engine,
    }  # fmt: skip
    return {name: text or "none" for name, text in shown.items()}


def read_and_logged(run: Run | NewRun) -> dict[str, str]:
    """The blocks, questions, fuel and log of a run, for people."""
    logs = [*run.logs, *(["(the function logged more)"] if run.logs_cut else [])]
    return {
        "read at": "\n".join(map(_block_line, run.blocks)),
        "questions": "\n".join(map(_question_line, run.inputs or ())),
        "fuel": run.fuel_used,
        "log": "\n".join(logs),
    }


def _due(run: Run) -> str:
    from muniment.protocol.runs.payloads import EventPayload, read_payload
    from muniment.protocol.wire import moment

    due_at = moment(run.timestamp)
    shown = f"{due_at}, {ago(due_at)}, {TYPES[run.trigger_type]}"
    due = read_payload(run.trigger_type, run.trigger_data.raw)
    if isinstance(due, EventPayload):
        return f"{shown}: log {due.index} of block {due.block_hash} on chain {due.chain_id}, by {due.contract}"
    return shown


def _came_of(run: Run) -> dict[str, str]:
    """That a run was declined, or why it was not carried out; empty for any other."""
    if _outcome(run) != run.result:
        return {"outcome": f"{_outcome(run)} by the function"}
    late = _lateness(run)
    words = f"its intent was {late}" if late else sum_up([run]).partition(": ")[2]
    return {"outcome": f"not carried out: {words}"} if words else {}


def _result(run: Run) -> str:
    from muniment.protocol.runs.reasons import REASONS
    from muniment.protocol.wire import moment

    if not run.reason:
        return run.result
    words = REASONS.get(run.result, {}).get(run.reason.code, "")
    missed = f" ({counted(run.missed_count, 'run')} from {moment(run.from_ms)} to {moment(run.to_ms)})" if (
        run.missed_count and run.from_ms and run.to_ms
    ) else ""  # fmt: skip
    text = f": {run.reason.text}" if run.reason.text else ""
    return f"{run.result}, {run.reason.code}: {words}{text}{missed} {_CLAIMED}"


def _block_line(block: RunBlock) -> str:
    quiet = ", the head of a quiet chain" if block.quiet else ""
    return f"chain {block.chain_id}, block {block.number}, {block.hash}{quiet}"


def _question_line(asked: RunInput) -> str:
    given = ", ".join(
        f"{name} {value if isinstance(value, str) else ' '.join(value)}" for name, value in asked.params.items()
    )
    return f"{asked.query} {given}: {_answer(asked.answer)}"


def _answer(answer: RunAnswer) -> str:
    from muniment.protocol.wire import encode

    if not answer.success:
        return f"no answer: {answer.error or 'without a reason'}"
    text = answer.data if isinstance(answer.data, str) else encode(answer.data or []).decode()
    return text if len(text) <= _ANSWER_MAX else f"{text[:_ANSWER_MAX]}… ({len(text)} characters)"


def _relayer(record: RunRecord) -> str:
    gone = ", who said that its block is not canonical any more" if record.orphaned else ""
    return f"{record.relayer}, {ago(record.created_at)}{gone}, evidence {record.evidence}"
