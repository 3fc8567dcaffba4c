"""Triggers: the list, each with the proof of its signature, its runs and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from muniment.protocol.errors import FunctionNotFound, Invalid
from muniment.protocol.evm.signature import Signature
from muniment.protocol.evm.topics import topic_in_words
from muniment.protocol.functions.types import Function
from muniment.protocol.intents.texts import ConfigSig
from muniment.protocol.runs.types import Run
from muniment.protocol.triggers.amounts import chains_of, kinds_of_inputs, money_of
from muniment.protocol.triggers.schedule import next_runs
from muniment.protocol.triggers.typed_data import CRON, EVENT
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.triggers.words import delta_in_words, fee_in_words, schedule_in_words, time_in_words
from muniment.protocol.wire import encode, ms_of
from muniment.service.console import beside, empty, reading, rows
from muniment.service.console.brief import trigger_line
from muniment.service.console.counts import nobody
from muniment.service.console.page import page
from muniment.service.console.parts import (
    ChoiceField,
    TextField,
    TimeField,
    action,
    badge,
    command,
    dated,
    facts,
    heading,
    identifier,
    link,
    listing_page,
    logged,
    note,
    refused_listing,
    relative,
    shortened,
    state,
    table,
    until,
)
from muniment.service.console.words import Tokens, is_active, value_of
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, root_from
from muniment.service.http.html.markup import NOTHING, Html, html, seen, strange, text_of
from muniment.service.http.query import QueryReader
from muniment.service.http.request import Request
from muniment.service.resources.intents.queries import IntentQuery
from muniment.service.resources.runs.queries import RunQuery
from muniment.service.resources.runs.routes import list_runs
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.resources.triggers.routes import get_trigger, list_triggers
from muniment.service.resources.triggers.store import fetch_protocols

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muniment.chains.catalogue import Chain
    from muniment.protocol.evm.address import Address

_QUERY: Final = QueryReader(TriggerQuery)
_FILTERS: Final = (
    ChoiceField("active", "State", (("true", "active"), ("false", "deactivated or ended"))),
    TextField("signer", "Signer"),
    TextField("functionCid", "Function"),
    TimeField("createdAfter", "After (UTC)"),
    TimeField("createdBefore", "Until (UTC)"),
)
# Intents and runs of a trigger that its page shows.
_INTENTS: Final = 10
_RUNS: Final = 5
# The newest intents and runs that are counted.
_COUNTED: Final = 100


@page("/console/triggers")
async def list_page(context: Context, request: Request) -> Page:
    """The triggers that match the filters, newest first."""
    root = root_from(request.path)
    try:
        query = reading.read_query(request, _QUERY)
    except Invalid as refusal:
        return refused_listing(request, "triggers", _FILTERS, refusal)
    found = await reading.listing(list_triggers, context, request, query, Trigger)
    known = await beside.of_triggers(context, request, found.records)
    none = empty.NO_MATCH if request.query else empty.no_triggers(root)
    shown = rows.triggers(found.records, root, context.clock.now_ms(), beside=known, none=none)
    end = action(f"{root}console/triggers/new", "Sign a trigger")
    return listing_page(request, "triggers", found, _FILTERS, shown, end=end)


@page("/console/triggers/{sig}")
async def trigger_page(context: Context, request: Request, sig: Signature) -> Page:
    """One trigger. Its script recovers the signer from the API's answer."""
    root, now_ms = root_from(request.path), context.clock.now_ms()
    trigger = await reading.record(get_trigger, context, request, sig, Trigger)
    led_to = await reading.intents(
        context, request, IntentQuery(config_sig=ConfigSig.parse(trigger.sig), limit=_INTENTS, generation="all")
    )
    query = RunQuery(trigger_sig=trigger.sig, limit=_RUNS)
    ran = await reading.listing(list_runs, context, request, query, Run)
    function = await _function(context, trigger)
    name = f"{function.name}" if function else shortened(str(trigger.function_cid))
    words = _in_words(trigger.config)
    does = trigger_line(trigger, Tokens(context.chains, context.holdings.tokens), context.chains)
    undone = (await beside.undone(context, request, [trigger], _COUNTED))[trigger.sig]
    body = html(
        '<a class="back" href="{}console/triggers">Triggers</a>{}{}{}{}{}{}{}{}{}{}{}{}{}{}',
        root, heading(
            html("{} <small>{}</small>", strange(name), words), end=_offer_to_end(trigger, name, does, now_ms), level=1
        ),
        html("<p>{}</p>", does) if does else None,
        note(trigger),
        await _badges(context, trigger), html('<p class="note">{}</p>', rows.undone(undone)) if undone else None,
        await nobody(context), _facts(context, trigger, function, root),
        _inputs(context, trigger),
        heading("Runs", end=link(f"{root}console/runs?triggerSig={trigger.sig}", "All of them")),
        rows.runs(ran.records, root, now_ms, none=_never_ran(trigger, now_ms)),
        heading("Intents that it led to", end=link(f"{root}console/intents?configSig={trigger.sig}", "All of them")),
        rows.intents(
            led_to.records, root, now_ms, beside=await beside.of_intents(context, request, led_to.records),
            none="None yet: a run that sends intents makes them, and the runs above say what came of each.",
            without="Function",
        ),
        _end(context, trigger),
        html("<details><summary>Typed data</summary><pre>{}</pre></details>", _typed_data(trigger)),
    )  # fmt: skip
    title = f"{seen(name)} {words}{', ' if does else ''}{text_of(does)}"
    return Page(title, body, "triggers", f"{root}triggers/{trigger.sig}", ("trigger.js", "logged.js"))


def _in_words(config: Mapping[str, Any]) -> str:
    """When it runs, in few words: `every day at 09:30`, or the schedule itself where there are none."""
    if config["type"] == CRON:
        schedule = str(config["schedule"])
        return schedule_in_words(schedule) or schedule
    return "on an event" if config["type"] == EVENT else "once"


def _facts(context: Context, trigger: Trigger, function: Function | None, root: str) -> Html:
    now_ms, limit = context.clock.now_ms(), str(trigger.execution_fee_limit)
    cid = identifier(trigger.function_cid, f"{root}console/functions/{trigger.function_cid}")
    named = html("{} {} ", strange(function.name), str(function.version)) if function else None
    first = facts([
        ("Signer", identifier(trigger.signer, f"{root}console/addresses/{trigger.signer}", whole=True)),
        ("Function", html("{}{}", named, cid)),
        ("When", _when(trigger.config, context.chains)),
        *_next_run(trigger, now_ms),
        (_end_named("Ends", "Ended", trigger, now_ms), _ends(trigger, now_ms)),
        ("Fee limit", html("none") if limit == "0" else html("{} for each run", fee_in_words(limit))),
    ])  # fmt: skip
    rest = facts([
        ("Signature", identifier(trigger.sig, whole=True)),
        ("Late by at most", html("{}", delta_in_words(str(trigger.config["delta"])))),
        ("Begins", _begin(trigger.config, now_ms)),
        ("Validations", html("{}", trigger.min_validations)),
        ("Version", html("{}", str(trigger.version))),
        ("Registered", dated(ms_of(trigger.created_at), now_ms)),
    ])  # fmt: skip
    return html("{}<details><summary>Its signature, version and validations</summary>{}</details>", first, rest)


def _end_named(words: str, then: str, trigger: Trigger, now_ms: int) -> Html:
    if trigger.deactivate_sig:
        return html("Signed to end")
    return until(words, then, trigger.end_date) if trigger.end_date > now_ms else html("{}", words)


def _ends(trigger: Trigger, now_ms: int) -> Html:
    return dated(trigger.end_date, now_ms) if trigger.end_date else html("never")


async def _function(context: Context, trigger: Trigger) -> Function | None:
    """The function of a trigger; None where this registry does not have it, as after an import."""
    try:
        return await reading.function(context, trigger.function_cid)
    except FunctionNotFound:
        return None


def _when(config: Mapping[str, Any], chains: Mapping[int, Chain]) -> Html:
    if config["type"] == CRON:
        words = schedule_in_words(str(config["schedule"]))
        return html("{}<code>{}</code> (UTC)", html("{}, ", words) if words else None, str(config["schedule"]))
    if config["type"] != EVENT:
        return html("once")
    chain = chains.get(int(config["chainId"]))
    topics = [
        html(
            "<li>topic {}: {}",
            number,
            [html("<div>{} {}</div>", identifier(each), topic_in_words(number, each)) for each in choices]
            or html("anything"),
        )
        for number, choices in enumerate(config["topics"])
    ]
    return html(
        "an event of {} on {}{}", identifier(str(config["contract"])),
        chain.name if chain else f"chain {config['chainId']}", html("<ul>{}</ul>", topics) if topics else NOTHING,
    )  # fmt: skip


def _next_runs(trigger: Trigger, now_ms: int) -> list[int]:
    """The next run of an active trigger with a schedule, in milliseconds since 1970; none for others."""
    if trigger.config["type"] != CRON or is_active(trigger, now_ms) != "active":
        return []
    return next_runs(str(trigger.config["schedule"]), now_ms, 1, trigger.end_date)


def _next_run(trigger: Trigger, now_ms: int) -> list[tuple[str, Html]]:
    """The next run as a fact, if time alone decides it."""
    if trigger.config["type"] != CRON or is_active(trigger, now_ms) != "active":
        return []
    if not (runs := _next_runs(trigger, now_ms)):
        return [("Next run", html("none before it ends"))]
    return [(until("Next run", "Run due", runs[0]), dated(runs[0], now_ms))]


def _never_ran(trigger: Trigger, now_ms: int) -> Html:
    """The sentence in the place of runs, with what the next one waits for."""
    kind = trigger.config["type"]
    if is_active(trigger, now_ms) != "active":
        due = NOTHING
    elif kind == CRON:
        runs = _next_runs(trigger, now_ms)
        due = html(" {} {}.", until("Next due", "It was due", runs[0]), dated(runs[0], now_ms)) if runs else NOTHING
    elif kind == EVENT:
        due = html(" The next one is due with the next event.")
    else:
        start_ms = int(trigger.config["startDate"]) or ms_of(trigger.created_at)
        said = until("Next due", "It was due", start_ms) if start_ms > now_ms else html("It was due")
        due = html(" {} {}.", said, dated(start_ms, now_ms))
    start = command(html("muniment relayer explain {}", trigger.sig))
    return html("No relayer has recorded a run.{} Where a relayer runs, this says why not:{}", due, start)


def _begin(config: Mapping[str, Any], now_ms: int) -> Html | None:
    start = int(config.get("startDate", 0))
    return dated(start, now_ms) if start else None


async def _badges(context: Context, trigger: Trigger) -> Html:
    """Its state, and whether its signature and the log were checked, in one line.

    A script checks; details are folded. A renamed registry keeps earlier triggers under the domain of its former name.
    """
    now_ms = context.clock.now_ms()
    protocols = await fetch_protocols(context.database, [trigger.sig])
    protocol = protocols.get(trigger.sig.raw, context.settings.protocol_name)
    signature = html(
        '<section class="check" id="proof" data-sig="{}" data-signer="{}" data-protocol="{}">'
        "<h2>Did this signer sign this?</h2>"
        '<p class="verdict" aria-live="polite">This registry says that <code>{}</code> did. '
        "With a script this page computes the digest, and recovers the signer from the signature.</p></section>",
        trigger.sig, str(trigger.signer), protocol, str(trigger.signer),
    )  # fmt: skip
    log = logged(context, f"triggers/{trigger.sig}", protocol)
    condition = is_active(trigger, now_ms)
    has_end = condition == "active" and trigger.end_date
    return html(
        '<div class="badges"><p>{}</p>{}{}{}</div>',
        state(condition), badge("Signature", signature), badge("Log", log) if log else None,
        html("<p>{} {}</p>", _end_named("ends", "ended", trigger, now_ms), relative(trigger.end_date, now_ms))
        if has_end
        else None,
    )  # fmt: skip


def _inputs(context: Context, trigger: Trigger) -> Html:
    tokens, kinds = Tokens(context.chains, context.holdings.tokens), kinds_of_inputs(trigger.types)
    chain_ids = set(chains_of(trigger.input, kinds).values())
    money = {each.names[0]: each for each in money_of(trigger.input, kinds, tokens.catalogue) if each.figure}

    def named(token: Address) -> str:
        symbol = tokens.symbol(token, chain_ids)
        names = [chain.name for each in chain_ids if (chain := context.chains.get(each))]
        return f"{symbol} on {' and '.join(sorted(names))}" if symbol else ""

    if not trigger.input:
        return html('{}<p class="empty">The function takes none.</p>', heading("Inputs"))
    lines = [
        (
            html("<code>{}</code>", strange(name)),
            html("<code>{}</code>", strange(kinds.get(name, ""))),
            html(
                "{}{}",
                html("<div>{}</div>", tokens.money(money[name])) if name in money else None,
                None
                if name in money and kinds[name] != "TokenAmount"
                else value_of(value, kinds.get(name, ""), context.chains, name, named),
            ),
        )
        for name, value in trigger.input.items()
    ]
    return html("{}{}", heading("Inputs"), table(("Name", "Type", "Value"), lines, label="Inputs"))


def _end(context: Context, trigger: Trigger) -> Html | None:
    if not trigger.deactivate_sig:
        return None
    return html(
        '{}<p id="ended" data-deactivation="{}">The owner ended it for ever by the signature {}.</p>{}',
        heading("Deactivated"), trigger.deactivate_sig, identifier(trigger.deactivate_sig),
        logged(context, f"deactivations/{trigger.deactivate_sig}", is_end=True),
    )  # fmt: skip


def _offer_to_end(trigger: Trigger, name: str, does: Html | None, now_ms: int) -> Html:
    """The place for the button that ends it, which needs a script, with the words for what stops."""
    if is_active(trigger, now_ms) != "active":
        return NOTHING
    runs = _next_runs(trigger, now_ms)
    lost = f"; its next run, on {time_in_words(runs[0])}, does not happen" if runs else ""
    return html(
        '<div id="deactivate" data-words="{}"></div>',
        f"{seen(f'{name}, {_in_words(trigger.config)}{lost}')}{'; inputs: ' if does else ''}{text_of(does)}",
    )


def _typed_data(trigger: Trigger) -> str:
    return encode({"types": trigger.types, "input": trigger.input, "config": trigger.config}).decode()
