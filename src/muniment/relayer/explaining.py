"""Why nothing happened, and when the next run is: what a registry and a journal say about a trigger. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from muniment.protocol.runs.reasons import REASONS
from muniment.protocol.triggers.typed_data import CRON, EVENT
from muniment.protocol.triggers.words import fee_in_words
from muniment.protocol.visible import visible
from muniment.protocol.wire import moment
from muniment.relayer.journal.entries import TOLD_MS, State
from muniment.relayer.schedule.due import Plan, Seen
from muniment.relayer.schedule.rests import rests_until

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from muniment.protocol.runs.types import Run
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.journal.entries import Entry, Known
    from muniment.relayer.settings import RelayerSettings

_STATES: Final = {
    State.PLANNED: "is planned and has no result yet",
    State.RAN: "has a result, which the registry does not have yet",
    State.PUBLISHED: "is published",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Sentences, and the time of the next run in milliseconds since 1970; None: there is none, or an event decides."""

    sentences: list[str]
    next_run_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a journal has of a trigger. `known` is None for one that the relayer never saw."""

    known: Known | None
    entries: Sequence[Entry]


def explain(
    trigger: Trigger, runs: Sequence[Run], settings: RelayerSettings, told: Told | None, now_ms: int,
    *, read_chains: Container[int], older: int = 0,
) -> Explanation:  # fmt: skip
    """Explain a trigger at `now_ms`. `runs` are its newest, `told` is None where no journal is.

    `read_chains` are the chains of which the relayer has a node, `older` is how many event triggers of its signer were
    registered before it.
    """
    plan = Plan.of(trigger)
    known = None if told is None else told.known
    reasons = _against(trigger, plan, settings, known, now_ms)
    if plan.kind == EVENT and older >= settings.event_triggers_per_signer_max:
        reasons.append(
            f"Its signer has {_counted(older, 'older event trigger')}, as many as this relayer reads "
            "(`event_triggers_per_signer_max`): its own events are not read."
        )
    if told is None:
        reasons.append(f"The journal {settings.state} is missing: this is what the registry has.")
    elif known is None and not reasons:
        reasons.append("This relayer has not seen the trigger yet: it does not run, or cannot reach the registry.")
    ticks, next_ms = _events(trigger, read_chains) if plan.kind == EVENT else _times(plan, known, now_ms)
    is_over = trigger.deactivate_sig is not UNSET or (known is not None and known.ended_ms is not None)
    if is_over:
        ticks, next_ms = [], None
    learned = [] if known is None or is_over else _learned(plan, known, now_ms)
    kept = () if told is None else map(_entry, told.entries)
    return Explanation([*reasons, *ticks, *learned, *kept, *_runs(runs)], next_ms)


def _against(trigger: Trigger, plan: Plan, settings: RelayerSettings, known: Known | None, now_ms: int) -> list[str]:
    """Why the trigger does not run."""
    lines: list[str] = []
    if trigger.deactivate_sig is not UNSET:
        lines.append(f"It was deactivated by {trigger.deactivate_sig}.")
    elif known is not None and known.ended_ms is not None:
        lines.append(
            f"This relayer saw its deactivation at {moment(known.ended_ms)}, and never runs it again, although the "
            "registry shows it as active."
        )
    if plan.end_ms and plan.end_ms < now_ms:
        lines.append(f"It ended at {moment(plan.end_ms)}.")
    if refused := settings.served.refused(trigger):
        lines.append(f"This relayer does not serve it: {refused}.")
    limit, fee = int(trigger.execution_fee_limit), settings.fee_of(trigger)
    if limit and fee > limit:
        lines.append(
            f"The fee of this relayer, {fee_in_words(str(fee))}, is above its executionFeeLimit, "
            f"{fee_in_words(str(limit))}."
        )
    if known is not None and (until_ms := rests_until(known.rests_until_ms, now_ms)) > now_ms:
        lines.append(
            f"It rests until {moment(until_ms)} after {known.failures} failures in a row; what is due until then and "
            "cannot run later is missed (resting)."
        )
    elif known is not None and known.failures:
        lines.append(f"It has failed {_counted(known.failures, 'time')} in a row.")
    return lines


def _events(trigger: Trigger, read_chains: Container[int]) -> tuple[list[str], None]:
    """What it waits for. The time of the next run is unknown."""
    contract, chain_id = trigger.config["contract"], int(trigger.config["chainId"])
    if chain_id in read_chains:
        return [f"It waits for events of {contract} on chain {chain_id}."], None
    lacks = "it has no node of that chain (`rpc_urls` in its `chains_file`)"
    return [f"It is due after events of {contract} on chain {chain_id}, and this relayer sees none: {lacks}."], None


def _times(plan: Plan, known: Known | None, now_ms: int) -> tuple[list[str], int | None]:
    """What is due now, and the time of the next run."""
    seen = Seen(now_ms) if known is None else known.seen
    look = plan.look(seen, now_ms)
    lines: list[str] = []
    if look.due is not None:
        may = f"The run of {moment(look.due.timestamp_ms)} may start now, until {moment(look.due.until_ms)}"
        order = ": runs of ticks that are still open follow one another, the oldest first" if plan.kind == CRON else ""
        lines.append(f"{may}{order}.")
    lines += [
        f"{_counted(gap.ticks, 'run')} missed, from {moment(gap.from_ms)} to {moment(gap.to_ms)}: "
        f"{REASONS['missed'][gap.why]}."
        for gap in look.gaps
    ]
    next_ms = look.wake_ms if plan.kind == CRON or look.due is None else None
    if next_ms is not None:
        lines.append(f"The next run is due at {moment(next_ms)}.")
    elif look.due is None:
        lines.append("There is no further run.")
    return lines, next_ms


def _learned(plan: Plan, known: Known, now_ms: int) -> list[str]:
    """What earlier runs mean for later ones."""
    seen, learned = known.seen, list[str]()
    if seen.life_ms:
        learned.append(
            f"A run was too late for its intents, which are good for {seen.life_ms // 1_000} seconds after it is due: "
            f"later runs start at most {seen.late_ms(plan.delta_ms) // 1_000} seconds late."
        )
    if seen.sent_ms and plan.kind == CRON:
        learned.append(f"Its last run with intents ended at {moment(seen.sent_ms)}: what was due before is overtaken.")
    if known.told_ms and 0 <= now_ms - known.told_ms < TOLD_MS:
        learned.append(f"At {moment(known.told_ms)} it was noted that runs are skipped; that is said once an hour.")
    return learned


def _entry(entry: Entry) -> str:
    result = f" ({entry.result})" if entry.result else ""
    waits = ""
    if entry.state is State.PLANNED and entry.tries:
        is_over = entry.next_ms > entry.until_ms
        next_try = "there is no further try" if is_over else f"next try at {moment(entry.next_ms)}"
        waits = f": tried {_counted(entry.tries, 'time')}, {entry.answer}; {next_try}"
    return f"In the journal the run of {moment(entry.timestamp_ms)} {_STATES[entry.state]}{result}{waits}."


def _runs(runs: Sequence[Run]) -> list[str]:
    return [_run(each) for each in runs] or ["The registry has no run of it."]


def _run(run: Run) -> str:
    # What a function says when it aborts is one line here, or it could add sentences of its own.
    text = "" if run.reason is UNSET else run.reason.text
    said = visible(text)
    words = "" if run.reason is UNSET else REASONS.get(run.result, {}).get(run.reason.code, run.reason.code)
    reason = f", {words}{f': {said}' if said else ''}" if words else ""
    missing = sum(not each.recorded for each in run.outputs)
    result = _counted(len(run.outputs), "intent") if run.outputs else run.result
    lacks = f" ({missing} not recorded)" if missing else ""
    conflicts = f"; in conflict with {_counted(len(run.conflicts), 'other verdict')}" if run.conflicts else ""
    return f"Run of {moment(run.timestamp)}: {result}{reason}{lacks}, {run.status}{conflicts}."


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
