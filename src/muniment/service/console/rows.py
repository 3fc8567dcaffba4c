"""Rows of triggers, runs, intents and functions, for the tables of several pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from muniment.protocol.intents.lifecycle import INTENT_MOVES
from muniment.protocol.intents.operations import kinds_of
from muniment.protocol.log.types import LogShown
from muniment.protocol.runs.outcomes import DECLINED, is_lost, lateness, outcome_of, why_intent_undone
from muniment.protocol.runs.reasons import is_verdict
from muniment.protocol.wire import DATED_MS_MAX, iso_time, ms_of
from muniment.service.console import reading
from muniment.service.console.beside import SIGNED_MAX, sig_of
from muniment.service.console.brief import intent_line, next_run, trigger_line, when
from muniment.service.console.parts import absolute, identifier, relative, shortened, state, table
from muniment.service.console.words import clipped, counted, is_active
from muniment.service.http.html.markup import NOTHING, Html, html, seen, strange
from muniment.service.resources.log.routes import get_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.protocol.functions.types import Function
    from muniment.protocol.intents.types import AnyIntent
    from muniment.protocol.runs.types import Run
    from muniment.protocol.triggers.types import Trigger
    from muniment.service.console.beside import Beside
    from muniment.service.context import Context
    from muniment.service.http.html.markup import Value
    from muniment.service.resources.triggers.counting import Signed

_TRIGGER: Final = ("Trigger", "When", "State", "Signer", "Registered")
_RUN: Final = ("Run", "Result", "Status", "Relayer", "Due")
_INTENT: Final = ("Intent", "Function", "Status", "User", "Arrived")
_FUNCTION: Final = ("Function", "Signed with it", "Creator", "Deployed")
_IN_CONFLICT: Final = html(', <span class="bad">in conflict</span>')
# Characters of a text of a stranger in a row.
_TEXT_MAX: Final = 100


def triggers(
    listed: Sequence[Trigger], root: str, now_ms: int, *, beside: Beside, none: Value, without: str = ""
) -> Html:
    """Triggers as a table, or the sentence `none`; `root` leads from the page to the root of the service.

    `without` is the name of a column that the page says already.
    """
    if not listed:
        return html('<div class="empty">{}</div>', none)
    rows = [
        (
            _trigger(each, root, beside),
            html("{}{}", when(each.config, beside.chains), _next(each, now_ms)),
            html(
                "{}{}{}",
                _filtered(
                    word := is_active(each, now_ms), f"{root}console/triggers?active={str(word == 'active').lower()}"
                ),
                _last(beside.runs[each.sig], root, now_ms) if each.sig in beside.runs else None,
                undone(beside.undone.get(each.sig, ())),
            ),
            identifier(each.signer, f"{root}console/addresses/{each.signer}"),
            relative(ms_of(each.created_at), now_ms),
        )
        for each in listed
    ]
    return _without(without, _TRIGGER, rows, label="Triggers", numbers=("Registered",))


def undone(words: Sequence[str]) -> Html:
    """What was not carried out, a line each; a row shows the commonest reason, and on a phone the number alone."""
    lines = [(count, colon, *why.partition(" · ")) for count, colon, why in (each.partition(": ") for each in words)]
    return html(
        "{}", [html('<span class="undone">{}<span>{}{}</span><span>{}{}</span></span>', *each) for each in lines]
    )


def _trigger(trigger: Trigger, root: str, beside: Beside) -> Html:
    """The function and what it is given; below, the note, which nobody signed, and the signature."""
    function = beside.function(str(trigger.function_cid))
    name = strange(function.name) if function else html("Function {}", shortened(trigger.function_cid))
    return html(
        '<a class="row" href="{}console/triggers/{}">{}</a>{}{}<span class="sub">“{}” {}</span>',
        root, trigger.sig, name, html(" <small>{}</small>", str(function.version)) if function else None,
        html('<span class="does">{}</span>', line)
        if (line := trigger_line(trigger, beside.tokens, beside.chains))
        else None,
        brief_text(trigger.description), identifier(trigger.sig),
    )  # fmt: skip


def _next(trigger: Trigger, now_ms: int) -> Html | None:
    run = next_run(trigger, now_ms)
    return html('<span class="sub">{}</span>', run) if run else None


def brief_text(text: str) -> Html:
    """A stranger's text, clipped so that it takes no more room than others."""
    return strange(clipped(text, _TEXT_MAX))


def _filtered(word: str, href: str) -> Html:
    """A state that leads to all records in this state."""
    return html('<a class="state {}" href="{}">{}</a>', word, href, word)


def _without(name: str, names: Sequence[str], rows: Sequence[Sequence[Value]], **options: Any) -> Html:
    """A table without the column `name`."""
    kept = [number for number, each in enumerate(names) if each != name]
    shown = [[row[number] for number in kept] for row in rows]
    return table([names[number] for number in kept], shown, is_list=True, **options)


def runs(
    listed: Sequence[Run], root: str, now_ms: int, *, none: Value, beside: Beside | None = None
) -> Html:  # fmt: skip
    """Runs as a table, or the sentence `none`; without `beside` the page says whose trigger they are of."""
    if not listed:
        return html('<div class="empty">{}</div>', none)
    rows = [
        (
            html(
                '<a class="row" href="{}console/runs/{}">{}{}</a>{}<span class="sub">{}{}</span>',
                root, each.hash, _whose(each, beside), outcome_line(each),
                html("{}{}", _does(each, beside), _words(each, now_ms)), identifier(each.hash),
                html(" of {}", identifier(each.trigger_sig, f"{root}console/triggers/{each.trigger_sig}"))
                if beside
                else None,
            ),
            _filtered(outcome(each), f"{root}console/runs?result={each.result}"),
            _status(each),
            relayer(each.relayer, root),
            html(
                '{}<span class="sub">recorded {}</span>',
                relative(each.timestamp, now_ms), relative(ms_of(each.created_at), now_ms),
            ),
        )
        for each in listed
    ]  # fmt: skip
    return table(_RUN, rows, label="Runs", numbers=("Due",), is_list=True)


def _whose(run: Run, beside: Beside | None) -> Html | None:
    """The function of the trigger of a run."""
    trigger = beside.triggers.get(run.trigger_sig) if beside else None
    if beside is None or trigger is None:
        return None
    function = beside.function(str(trigger.function_cid))
    return html("{}: ", strange(function.name) if function else shortened(trigger.function_cid))


def _does(run: Run, beside: Beside | None) -> Html | None:
    """What the trigger of a run may do."""
    trigger = beside.triggers.get(run.trigger_sig) if beside else None
    line = trigger_line(trigger, beside.tokens, beside.chains) if beside and trigger else None
    return html('<span class="does">{}</span>', line) if line else None


def outcome_line(run: Run) -> str:
    """`2 intents`, `declined`, `missed, gap`."""
    if run.outputs:
        return counted(len(run.outputs), "intent")
    is_said = run.reason and outcome(run) != DECLINED
    return f"{run.result}, {run.reason.code}" if is_said and run.reason else outcome(run)


def _words(run: Run, now_ms: int) -> Html | None:
    """What a function said when it declined, or that an intent came too late or is not recorded."""
    if is_lost(run, now_ms):
        return html('<span class="sub">{}</span>', lateness(run))
    return html('<span class="sub">{}</span>', words) if (words := said(run)) else None


def outcome(run: Run) -> str:
    """The result of a run as a word, `declined` where the function itself ended it."""
    return outcome_of(run.result, run.reason.code if run.reason else None)


def said(run: Run) -> Html | None:
    """The words with which a function declined."""
    is_said = run.reason and run.reason.text and outcome(run) == DECLINED
    return html("“{}”", brief_text(run.reason.text)) if is_said and run.reason else None


def awaits_others(run: Run) -> bool:
    """Whether other relayers are to come to the same result: a note stays `pending` for ever."""
    return run.status != "pending" or is_verdict(run.result, run.reason.code if run.reason else None)


def _status(run: Run) -> Html:
    if not awaits_others(run):
        return html("note")
    return html("{}{}", state(run.status), _IN_CONFLICT if run.conflicts else None)


def relayer(address: str, root: str) -> Html:
    """The address of a relayer, or that it has none."""
    if int(address, 16) == 0:
        return html('<span class="faint">unnamed</span>')
    return identifier(address, f"{root}console/runs?relayer={address}")


def _last(run: Run, root: str, now_ms: int) -> Html:
    return html(
        '<span class="sub">last run <span class="state {}"><a href="{}console/runs/{}">{}</a></span> {}</span>',
        outcome(run), root, run.hash, outcome(run), relative(run.timestamp, now_ms),
    )  # fmt: skip


def intents(
    listed: Sequence[AnyIntent], root: str, now_ms: int, *, beside: Beside, none: Value, without: str = ""
) -> Html:
    """Intents as a table, or the sentence `none`; `without` is the name of a column that the page says already."""
    if not listed:
        return html('<div class="empty">{}</div>', none)
    rows = [
        (
            html(
                '<a class="row" href="{}console/intents/{}">{}</a><span class="sub">{} {}</span>',
                root, each.hash, intent_line(each, beside.tokens), ", ".join(kinds_of(each)),
                identifier(each.hash),
            ),
            _function_of(each, root, beside),
            html(
                "{}{}{}", _filtered(each.status, f"{root}console/intents?status={each.status}"), _due(each, now_ms),
                html('<span class="undone">{}</span>', why) if (why := why_intent_undone(each)) else None,
            ),
            identifier(user := user_of(each), f"{root}console/addresses/{user}"),
            relative(ms_of(each.created_at), now_ms),
        )
        for each in listed
    ]  # fmt: skip
    return _without(without, _INTENT, rows, label="Intents", numbers=("Arrived",))


def _function_of(intent: AnyIntent, root: str, beside: Beside) -> Html:
    """The function of the trigger of an intent."""
    trigger = beside.triggers.get(sig := sig_of(intent))
    if trigger is None:
        return html("–")
    function = beside.function(str(trigger.function_cid))
    name = strange(function.name) if function else html("{}", shortened(trigger.function_cid))
    return html('<a href="{}console/triggers/{}" title="Its trigger">{}</a>', root, sig, name)


def _due(intent: AnyIntent, now_ms: int) -> Html | None:
    """The deadline of an intent that is still open."""
    if not INTENT_MOVES[intent.status]:
        return None
    return html('<span class="sub">deadline {}</span>', deadline(intent, now_ms))


def functions(
    listed: Sequence[Function], root: str, now_ms: int, *, signed: Mapping[bytes, Signed], none: Value,
    without: str = "",
) -> Html:  # fmt: skip
    """Functions as a table, or the sentence `none`; `signed` counts the triggers by the digest of the function."""
    if not listed:
        return html('<div class="empty">{}</div>', none)
    rows = [
        (
            html(
                '<a class="row" href="{}console/functions/{}">{}</a> <small>{}</small><span class="does">{}</span>'
                '<span class="sub">{}</span>',
                root, each.cid, strange(each.name), str(each.version), brief_text(each.description),
                identifier(each.cid),
            ),
            _signed(each, root, signed.get(each.cid.digest)),
            identifier(each.creator, f"{root}console/addresses/{each.creator}"),
            relative(ms_of(each.created_at), now_ms),
        )
        for each in listed
    ]  # fmt: skip
    return _without(without, _FUNCTION, rows, label="Functions", numbers=("Deployed",))


def _signed(function: Function, root: str, count: Signed | None) -> Html:
    if count is None or not count.triggers:
        return html('<span class="faint">no active trigger</span>')
    more = " or more" if count.triggers >= SIGNED_MAX else ""
    return html(
        '<a href="{}console/triggers?functionCid={}&active=true">{}{} active trigger{}</a> of {}{} signer{}',
        root, function.cid, count.triggers, more, "" if count.triggers == 1 else "s",
        count.signers, more, "" if count.signers == 1 else "s",
    )  # fmt: skip


def user_of(intent: AnyIntent) -> str:
    """The user of an intent, or the payer of fees of an intent with several operations."""
    return str(getattr(intent, "user", None) or getattr(intent, "fee_payer", ""))


def deadline(intent: AnyIntent, now_ms: int) -> Html:
    """The deadline, with its number of seconds if it is beyond the calendar."""
    seconds = int(intent.deadline)
    if seconds * 1000 > DATED_MS_MAX:
        return html('<span title="{} seconds after 1970">after the year 9999</span>', intent.deadline)
    return relative(seconds * 1000, now_ms)


def moment(timestamp_ms: int) -> Html:
    """An exact time, for logs."""
    return html('<time datetime="{}" data-as="exact">{}</time>', iso_time(timestamp_ms), absolute(timestamp_ms))


# The dot beside each state of the log, by the name that the style sheet has for it.
_DOTS: Final = {"open": "ready", "closing": "ready", "frozen": "discarded", "halted": "failed", "closed": "ended"}
_STANDS: Final = frozenset({"frozen", "halted"})


async def log_line(context: Context, root: str) -> Html | None:
    """The state of the log, its name and its size, and the meaning of a stop; None if the log is off."""
    if not context.settings.tlog_name:
        return None
    epochs = reading.decoded(await reading.whole(await get_log.handler(context)), LogShown).epochs
    if not epochs:
        return html('It has not begun. <a href="{}console/log">About it</a>', root)
    epoch = epochs[0]
    stop = meaning_of_stop(epoch.state, epoch.why)
    return html(
        '{}: <code>{}</code>, {} signed {}. <a href="{}console/log">Keys and entries</a>{}',
        log_state(epoch.state), epoch.origin, f"{epoch.size:,}", "entry" if epoch.size == 1 else "entries", root,
        html(". {}", stop) if stop else None,
    )  # fmt: skip


def log_state(word: str) -> Html:
    """The state of a log as a word with a dot."""
    return html('<span class="state {}">{}</span>', _DOTS[word], word)


def meaning_of_stop(word: str, why: str | None) -> Html:
    """What the state of a stopped log means for readers; nothing for one that goes on."""
    if word not in _STANDS:
        return NOTHING
    return html(
        '<strong class="bad">Nothing new is logged: {}.</strong> The registry serves on; what it takes is logged '
        "when its operator lets the log go on.",
        seen(why or "the operator has not said why"),
    )
