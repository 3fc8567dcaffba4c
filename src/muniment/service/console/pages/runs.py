"""Runs: the list, and each with its result, what it read and was told, its intents, and who recorded it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import Invalid
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.runs.outcomes import DECLINED, is_lost, lateness
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.runs.reasons import REASONS, RESULT_BYTES, is_verdict
from muniment.protocol.runs.types import Run
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import encode, ms_of
from muniment.service.console import beside, empty, reading, rows
from muniment.service.console.brief import trigger_line
from muniment.service.console.page import page
from muniment.service.console.parts import (
    ChoiceField,
    TextField,
    TimeField,
    command,
    dated,
    facts,
    heading,
    identifier,
    listing_page,
    note,
    refused_listing,
    relative,
    shortened,
    state,
    table,
)
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, root_from
from muniment.service.http.html.markup import NOTHING, Html, html, seen, strange
from muniment.service.http.query import QueryReader
from muniment.service.http.request import Request
from muniment.service.resources.intents.run_outputs import life_of
from muniment.service.resources.runs.queries import RunQuery
from muniment.service.resources.runs.routes import get_run, list_runs
from muniment.service.resources.triggers.routes import get_trigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.chains.catalogue import Chain
    from muniment.protocol.runs.types import RunAnswer, RunCall, RunInput

_QUERY: Final = QueryReader(RunQuery)
_FILTERS: Final = (
    ChoiceField("result", "Result", tuple((name, name) for name in RESULT_BYTES)),
    TextField("triggerSig", "Trigger"),
    TextField("relayer", "Relayer"),
    TimeField("createdAfter", "After (UTC)"),
    TimeField("createdBefore", "Until (UTC)"),
)
_TYPES: Final = ("by its schedule", "by an event", "once")
# Characters of an answer that a table shows at once.
_SHOWN_MAX: Final = 80
_GONE: Final = html('<div class="bad">says that the block is not canonical any more</div>')
_MEANING: Final = {
    "pending": "Fewer relayers than its trigger asks for have come to this result.",
    "valid": "As many relayers as its trigger asks for have come to this result.",
    "invalid": "The block that it was read from is not canonical any more.",
}


@page("/console/runs")
async def list_page(context: Context, request: Request) -> Page:
    """The runs that match the filters, newest first."""
    root = root_from(request.path)
    try:
        query = reading.read_query(request, _QUERY)
    except Invalid as refusal:
        return refused_listing(request, "runs", _FILTERS, refusal)
    found = await reading.listing(list_runs, context, request, query, Run)
    none = empty.NO_MATCH if request.query else empty.no_runs()
    known = await beside.of_runs(context, request, found.records)
    shown = rows.runs(found.records, root, context.clock.now_ms(), none=none, beside=known)
    return listing_page(request, "runs", found, _FILTERS, shown)


@page("/console/runs/{hash}")
async def run_page(context: Context, request: Request, hash: Bytes32) -> Page:
    """One run, whole."""
    root, now_ms = root_from(request.path), context.clock.now_ms()
    run = await reading.record(get_run, context, request, hash, Run)
    trigger = await reading.record(get_trigger, context, request, run.trigger_sig, Trigger)
    known = await beside.of_runs(context, request, [run])
    function = known.function(str(trigger.function_cid))
    name = function.name if function else shortened(str(trigger.function_cid))
    does, outcome = trigger_line(trigger, known.tokens, known.chains), rows.outcome_line(run)
    late = await _lateness(context, run, now_ms)
    body = html(
        '<a class="back" href="{}console/runs">Runs</a>{}{}{}{}{}{}{}{}{}{}{}{}{}',
        root, heading(
            html("Run of {} <small>{}</small>", strange(name), outcome), end=state(rows.outcome(run)), level=1
        ),
        html("<p>{}</p>", does) if does else None, note(trigger),
        _why(run), _lost(late), _facts(run, trigger, root, now_ms), _conflicts(run, root),
        html("{}{}", heading("Intents"), _outputs(run, root, late)),
        html("{}{}", heading("Questions and answers"), _questions(run.inputs or ())),
        html("{}{}", heading("Read at"), _blocks(run, context.chains)),
        html("{}{}", heading("Logs"), _logs(run)),
        html("{}{}", heading("Relayers"), _relayers(run, root, now_ms)),
        _again(run),
    )  # fmt: skip
    return Page(f"Run of {seen(name)}, {outcome} · {hash[:10]}", body, "runs", f"{root}executions/{hash}")


async def _lateness(context: Context, run: Run, now_ms: int) -> str:
    """Why an intent of the run is not recorded, as far as the records show it; empty where all are, or may still be."""
    if not is_lost(run, now_ms):
        return ""
    return lateness(run, await life_of(context.list_reader(), [run.trigger_sig.raw]))


def _why(run: Run) -> Html | None:
    if not run.reason:
        return None
    if rows.outcome(run) == DECLINED:
        return html('<p class="declined">The function declined to act. {}</p>', rows.said(run))
    words = REASONS.get(run.result, {}).get(run.reason.code, run.reason.code)
    text = html(": {}", strange(run.reason.text)) if run.reason.text else NOTHING
    return html('<p class="note">{}{}</p>', f"{words[:1].upper()}{words[1:]}", text)


def _facts(run: Run, trigger: Trigger, root: str, now_ms: int) -> Html:
    return facts([
        ("Hash", identifier(run.hash, whole=True)),
        ("Trigger", identifier(run.trigger_sig, f"{root}console/triggers/{run.trigger_sig}")),
        ("Signer", identifier(trigger.signer, f"{root}console/addresses/{trigger.signer}", whole=True)),
        ("Due", html("{}, {}", dated(run.timestamp, now_ms), _due(run))),
        ("Missed", _missed(run, now_ms)),
        ("Status", _status(run)),
        ("Validations", _validations(run, trigger)),
        ("Fuel", html("{}", f"{int(run.fuel_used):,}")),
        ("Fee", None if run.fee == "0" else html("{}", run.fee)),
        ("Made by", strange(run.engine)),
        ("Recorded", dated(ms_of(run.created_at), now_ms)),
    ])  # fmt: skip


def _is_verdict(run: Run) -> bool:
    return is_verdict(run.result, run.reason.code if run.reason else None)


def _status(run: Run) -> Html:
    if not rows.awaits_others(run):
        return html("a note of one relayer")
    return html('{} <span class="faint">{}</span>', state(run.status), _MEANING[run.status])


def _validations(run: Run, trigger: Trigger) -> Html | None:
    if not _is_verdict(run):
        return None
    return html("{}, its trigger asks for {}", run.validations, trigger.min_validations)


def _due(run: Run) -> Html:
    words = _TYPES[run.trigger_type]
    due = read_payload(run.trigger_type, run.trigger_data.raw)
    if not isinstance(due, EventPayload):
        return html("{}", words)
    return html(
        "{}: log {} of block {} on chain {}, by {}",
        words, due.index, identifier(due.block_hash), due.chain_id, identifier(due.contract),
    )  # fmt: skip


def _missed(run: Run, now_ms: int) -> Html | None:
    if not (run.missed_count and run.from_ms and run.to_ms):
        return None
    if run.missed_count == 1:
        return html("1 run, {}", dated(run.from_ms, now_ms))
    return html("{} runs, {} to {}", f"{run.missed_count:,}", dated(run.from_ms, now_ms), dated(run.to_ms, now_ms))


def _conflicts(run: Run, root: str) -> Html | None:
    if not run.conflicts:
        return None
    links = [html("<li>{}", identifier(each, f"{root}console/runs/{each}", whole=True)) for each in run.conflicts]
    return html(
        '{}<p class="note">Relayers came to different results for the same cause. One of them is wrong, or its nodes '
        "are: run it again.</p><ul>{}</ul>",
        heading("Conflicts"), links,
    )  # fmt: skip


def _lost(late: str) -> Html | None:
    return html('<p class="note">Not carried out: its intent was {}.</p>', late) if late else None


def _outputs(run: Run, root: str, late: str) -> Html:
    if not run.outputs:
        return html('<p class="empty">This run sent none.</p>')
    lost = html('<span class="faint">{}</span>', late.partition(":")[0] or "not recorded here")
    lines = [
        (
            identifier(each.hash, f"{root}console/intents/{each.hash}" if each.recorded else "", whole=True),
            html("recorded") if each.recorded else lost,
        )
        for each in run.outputs
    ]
    return table(("Intent", "Here"), lines, label="Intents")


def _questions(asked: Sequence[RunInput]) -> Html:
    if not asked:
        return html('<p class="empty">The function asked none.</p>')
    lines = [
        (
            html("<code>{}</code>", each.query), _given(each), _answer(each.answer),
            html("block {}", f"{each.block.number:,}") if each.block else html("–"), _calls(each.calls or ()),
        )
        for each in asked
    ]  # fmt: skip
    return table(("Question", "About", "Answer", "Read at", "Calls"), lines, label="Questions and answers")


def _given(asked: RunInput) -> Html:
    shown = [
        html("<div>{} {}</div>", name, _long(value if isinstance(value, str) else ", ".join(value)))
        for name, value in asked.params.items()
    ]
    return html("{}", shown) if shown else html("–")


def _answer(answer: RunAnswer) -> Html:
    if not answer.success:
        return html('<span class="bad">no answer</span>: {}', strange(answer.error or "without a reason"))
    data = answer.data or []
    return _long(data if isinstance(data, str) else encode(data).decode())


def _calls(calls: Sequence[RunCall]) -> Html:
    if not calls:
        return html("–")
    lines = [
        html("<li>{} {}: {}", identifier(each.to) if each.to else "code", _long(each.data), _long(each.answer))
        for each in calls
    ]
    return html("<details><summary>{}</summary><ol>{}</ol></details>", len(calls), lines)


def _long(text: str) -> Html:
    """A text of a stranger, which opens to its whole length."""
    if len(text) <= _SHOWN_MAX:
        return html('<span class="mono">{}</span>', strange(text))
    return html(
        '<details><summary><span class="mono">{}…</span></summary><pre>{}</pre></details>',
        strange(text[:_SHOWN_MAX]), strange(text),
    )  # fmt: skip


def _blocks(run: Run, chains: Mapping[int, Chain]) -> Html:
    if not run.blocks:
        return html('<p class="empty">It read no chain.</p>')
    lines = [
        (
            chains[each.chain_id].name if each.chain_id in chains else f"chain {each.chain_id}",
            f"{each.number:,}{', the head of a quiet chain' if each.quiet else ''}", identifier(each.hash),
        )
        for each in run.blocks
    ]  # fmt: skip
    return table(("Chain", "Block", "Hash"), lines, label="Blocks")


def _logs(run: Run) -> Html:
    if not run.logs:
        return html('<p class="empty">The function wrote none.</p>')
    cut = html('<p class="faint">The function wrote more than is kept.</p>') if run.logs_cut else NOTHING
    lines = [html("<tr><td>{}</tr>", strange(each)) for each in run.logs]
    return html('<div class="wide"><table class="logs" aria-label="Logs"><tbody>{}</table></div>{}', lines, cut)


def _relayers(run: Run, root: str, now_ms: int) -> Html:
    lines = [
        (
            html("{}{}", rows.relayer(each.relayer, root), _GONE if each.orphaned else None), identifier(each.evidence),
            relative(ms_of(each.created_at), now_ms),
        )
        for each in run.records
    ]  # fmt: skip
    return table(("Relayer", "Evidence", "Recorded"), lines, label="Relayers", numbers=("Recorded",))


def _again(run: Run) -> Html | None:
    if not _is_verdict(run):
        return None
    return html(
        "{}<p>That several relayers agree proves nothing to a stranger: one person may run them all. To know, run it "
        "again on your own machine, with nodes that you trust:</p>{}",
        heading("Run it again"), command(html("muniment runs verify {} --chains chains.toml", run.hash)),
    )  # fmt: skip
