"""Whether a record is one that a registry may show: the rules by which runs are taken, and ticks that exist. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, to_builtins

from muniment.protocol.errors import Refusal
from muniment.protocol.forms import decode_record
from muniment.protocol.runs.hashes import hash_of
from muniment.protocol.runs.rules import Terms, check_run
from muniment.protocol.runs.types import NewRun
from muniment.protocol.triggers.schedule import count_runs, last_run
from muniment.protocol.triggers.typed_data import CRON
from muniment.protocol.wire import encode_text, ms_of

if TYPE_CHECKING:
    from muniment.protocol.runs.types import Run
    from muniment.protocol.triggers.types import Trigger


def posted(run: Run) -> NewRun:
    """The body with which a run was recorded; its hash and its evidence may have been in it. Raises `Invalid`."""
    members = to_builtins(run, enc_hook=encode_text)
    del members["hash"]
    return decode_record(members, NewRun)


def record_fault(run: Run, trigger: Trigger, now_ms: int) -> str:
    """Why no registry takes this record for this trigger at this time; empty if it does."""
    if run.trigger_sig != trigger.sig:
        return f"it is a run of another trigger, {run.trigger_sig}"
    if hash_of(run) != run.hash.raw:
        return "its hash is that of another run"
    try:
        terms = Terms(trigger.config, trigger.min_validations, ms_of(trigger.created_at))
    except ValueError:
        return f"its trigger was registered at no time: {trigger.created_at}"
    try:
        check_run(posted(run), terms, run.relayer, now_ms)
    except Refusal as refusal:
        return refusal.detail
    limit = int(trigger.execution_fee_limit)
    if limit and int(run.fee) > limit:
        return f"its fee, {run.fee}, is above the trigger's executionFeeLimit, {limit}"
    return ""


def gap_fault(run: Run, trigger: Trigger) -> str:
    """What is wrong with the ticks of a note of missed runs, of which the last one was due; empty for any other run."""
    if run.from_ms is UNSET or run.to_ms is UNSET or run.trigger_type != CRON:
        return ""
    schedule = trigger.config["schedule"]
    if last_run(schedule, run.from_ms) != run.from_ms:
        return "the schedule of this trigger has no run at the time of the first missed run"
    count = count_runs(schedule, run.from_ms - 1, run.to_ms)
    return "" if count == run.missed_count else f"the schedule has {count} runs then; the note has {run.missed_count}"
