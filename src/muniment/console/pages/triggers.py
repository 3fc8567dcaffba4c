"""Triggers: the list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.console import reading
from muniment.console.page import page
from muniment.console.parts import heading, identifier, pages, state, table
from muniment.console.times import milliseconds, relative
from muniment.context import Context
from muniment.http.html.frame import Page, root_from
from muniment.http.html.markup import html, strange
from muniment.http.query import QueryReader
from muniment.http.request import Request
from muniment.triggers.listing import TriggerQuery
from muniment.triggers.routes import list_triggers
from muniment.triggers.typed_data import CRON, EVENT
from muniment.triggers.types import Trigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.http.html.markup import Html

_QUERY: Final = QueryReader(TriggerQuery)
_COLUMNS: Final = ("Trigger", "Description", "When", "Signer", "State", "Registered")


@page("/console/triggers")
async def list_page(context: Context, request: Request) -> Page:
    """The triggers that the address asks for, newest first."""
    query = reading.read_query(request, _QUERY)
    found = await reading.listing(list_triggers.handler, context, request, query, Trigger)
    root = root_from(request.path)
    body = html(
        "{}{}{}",
        heading(
            "Triggers",
            end=html('<a class="button first" href="{}console/triggers/new">Sign a trigger</a>', root),
            level=1,
        ),
        trigger_table(found.records, root, context.now_ms()),
        pages(request, found.next),
    )
    return Page("Triggers", body, "triggers", f"{root}triggers")


def trigger_table(triggers: Sequence[Trigger], root: str, now_ms: int) -> Html:
    """Triggers as a table; `root` leads from the page to the root of the service."""
    if not triggers:
        return html('<p class="empty">No trigger is registered here yet.</p>')
    return table(_COLUMNS, [_row(each, root, now_ms) for each in triggers], label="Triggers", numbers=("Registered",))


def trigger_state(trigger: Trigger, now_ms: int) -> str:
    """`active`, `deactivated` or `ended`."""
    if trigger.deactivate_sig:
        return "deactivated"
    return "ended" if 0 < trigger.end_date <= now_ms else "active"


def when(config: Mapping[str, object]) -> Html:
    """What starts a run, in a few words."""
    if config["type"] == CRON:
        return html("<code>{}</code>", strange(str(config["schedule"])))
    return html("event") if config["type"] == EVENT else html("once")


def _row(trigger: Trigger, root: str, now_ms: int) -> tuple[Html, ...]:
    return (
        identifier(trigger.sig, f"{root}console/triggers/{trigger.sig}"),
        strange(trigger.description),
        when(trigger.config),
        identifier(trigger.signer, f"{root}console/addresses/{trigger.signer}"),
        state(trigger_state(trigger, now_ms)),
        relative(milliseconds(trigger.created_at), now_ms),
    )


OPERATIONS: Final = (list_page,)
