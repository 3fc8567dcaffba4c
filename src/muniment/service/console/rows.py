"""Rows of triggers, runs, intents and functions, for the tables of several pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.protocol.intents.operations import kinds_of
from muniment.protocol.log.types import LogShown
from muniment.protocol.runs.reasons import is_verdict
from muniment.protocol.wire import DATED_MS_MAX, iso_time, ms_of
from muniment.service.console import reading
from muniment.service.console.parts import absolute, identifier, relative, state, table
from muniment.service.console.words import is_active, when
from muniment.service.http.html.markup import NOTHING, Html, html, seen, strange
from muniment.service.resources.log.routes import get_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.protocol.functions.types import Function
    from muniment.protocol.intents.types import AnyIntent
    from muniment.protocol.runs.types import Run
    from muniment.protocol.triggers.types import Trigger
    from muniment.service.context import Context
    from muniment.service.http.request import Request

_TRIGGER: Final = ("Trigger", "Description", "When", "Signer", "State", "Last run", "Registered")
_RUN: Final = ("Run", "Trigger", "Result", "Reason", "Intents", "Status", "Relayer", "Due", "Recorded")
_INTENT: Final = ("Intent", "Operation", "User", "Status", "Proposals", "Logs", "Arrived", "Deadline")
_FUNCTION: Final = ("Function", "CID", "Description", "Creator", "Deployed")
_IN_CONFLICT: Final = html(', <span class="bad">in conflict</span>')


def triggers(listed: Sequence[Trigger], root: str, now_ms: int, *, last: Mapping[str, Run], none: str) -> Html:
    """Triggers as a table, or the sentence `none`; `root` leads from the page to the root of the service.

    `last` are the newest runs by the signature of their trigger.
    """
    if not listed:
        return html('<p class="empty">{}</p>', none)
    rows = [
        (
            identifier(each.sig, f"{root}console/triggers/{each.sig}"),
            strange(each.description),
            when(each.config),
            identifier(each.signer, f"{root}console/addresses/{each.signer}"),
            state(is_active(each, now_ms)),
            _result(last[each.sig], root, now_ms) if each.sig in last else "–",
            relative(ms_of(each.created_at), now_ms),
        )
        for each in listed
    ]
    return table(_TRIGGER, rows, label="Triggers", numbers=("Registered",), is_list=True)


def runs(listed: Sequence[Run], root: str, now_ms: int, *, none: Html | str, are_of_one_trigger: bool = False) -> Html:
    """Runs as a table, or the sentence `none`."""
    if not listed:
        return html('<p class="empty">{}</p>', none)
    rows = [
        (
            identifier(each.hash, f"{root}console/runs/{each.hash}"),
            identifier(each.trigger_sig, f"{root}console/triggers/{each.trigger_sig}"),
            state(each.result), each.reason.code if each.reason else "–", len(each.outputs),
            _status(each),
            relayer(each.relayer, root),
            relative(each.timestamp, now_ms), relative(ms_of(each.created_at), now_ms),
        )
        for each in listed
    ]  # fmt: skip
    names = [each for each in _RUN if not (are_of_one_trigger and each == "Trigger")]
    shown = [[cell for name, cell in zip(_RUN, row, strict=True) if name in names] for row in rows]
    return table(names, shown, label="Runs", numbers=("Intents", "Due", "Recorded"), is_list=True)


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


def _result(run: Run, root: str, now_ms: int) -> Html:
    return html(
        '<a href="{}console/runs/{}">{}</a> <span class="faint">{}</span>',
        root, run.hash, state(run.result), relative(run.timestamp, now_ms),
    )  # fmt: skip


def intents(listed: Sequence[AnyIntent], root: str, now_ms: int, *, none: str) -> Html:
    """Intents as a table, or the sentence `none`."""
    if not listed:
        return html('<p class="empty">{}</p>', none)
    rows = [
        (
            identifier(each.hash, f"{root}console/intents/{each.hash}"),
            ", ".join(kinds_of(each)),
            identifier(user := user_of(each), f"{root}console/addresses/{user}"),
            state(each.status),
            len(each.proposals),
            len(each.logs),
            relative(ms_of(each.created_at), now_ms),
            deadline(each, now_ms),
        )
        for each in listed
    ]
    return table(_INTENT, rows, label="Intents", numbers=("Proposals", "Logs", "Arrived", "Deadline"), is_list=True)


def functions(listed: Sequence[Function], root: str, now_ms: int, *, none: str) -> Html:
    """Functions as a table, or the sentence `none`."""
    if not listed:
        return html('<p class="empty">{}</p>', none)
    rows = [
        (
            html('<a href="{}console/functions/{}">{}</a> {}', root, each.cid, strange(each.name), str(each.version)),
            identifier(each.cid, f"{root}console/functions/{each.cid}"),
            strange(each.description),
            identifier(each.creator, f"{root}console/addresses/{each.creator}"),
            relative(ms_of(each.created_at), now_ms),
        )
        for each in listed
    ]
    return table(_FUNCTION, rows, label="Functions", numbers=("Deployed",), is_list=True)


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


async def log_line(context: Context, request: Request, root: str) -> Html | None:
    """The state of the log, its name and its size, and the meaning of a stop; None if the log is off."""
    if not context.settings.tlog_name:
        return None
    epochs = reading.decoded(await reading.whole(await get_log.handler(context, request)), LogShown).epochs
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
