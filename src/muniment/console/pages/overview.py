"""The overview: what happens in this registry."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from muniment.console import reading, rows
from muniment.console.log_line import log_line
from muniment.console.page import page
from muniment.console.parts import heading, link, state, table
from muniment.console.plot import Bar, bars
from muniment.console.times import absolute
from muniment.context import Context
from muniment.http.html.frame import Page, root_from
from muniment.http.html.markup import NOTHING, Html, html
from muniment.http.request import Request
from muniment.intents.lifecycle import INTENT, Moment
from muniment.intents.queries import IntentQuery
from muniment.intents.reading.hourly import HourlyCounts
from muniment.storage.database import Database
from muniment.triggers.listing import TriggerQuery
from muniment.triggers.routes import list_triggers
from muniment.triggers.typed_data import registry_domain
from muniment.triggers.types import Trigger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.intents.reading.hourly import Hour

_NEWEST: Final = 8
# From the end of an intent's life to its beginning: the usual end stands at the foot of a bar.
_STACKED: Final = ("succeeded", "submitted", "enqueued", "created", "failed", "discarded", "expired")
# The counts of each application of this process; tests have several.
_counts: Final[WeakKeyDictionary[Database, HourlyCounts]] = WeakKeyDictionary()


@page("/console")
async def overview(context: Context, request: Request) -> Page:
    """The intents of the last day, and the newest records."""
    root, now_ms = root_from(request.path), context.now_ms()
    moment = Moment(now_ms, context.settings.settlement_grace_s)
    counts = _counts.setdefault(context.database, HourlyCounts(context.database, context.clock))
    hours = await counts.read(moment)
    intents = await reading.intents(context, request, IntentQuery(limit=_NEWEST, generation="all"))
    triggers = await reading.listing(
        list_triggers.handler, context, request, TriggerQuery(limit=_NEWEST), Trigger
    )  # fmt: skip
    line = await log_line(context, request, root)
    body = html(
        '<h1>Overview</h1><p class="faint">Registry of wallet-signed automation under the name <strong>{}</strong>. '
        "Every signature, CID and hash shown here can be checked in this browser.</p>{}{}{}{}{}{}",
        registry_domain(context.settings.protocol_name).name,
        html('<p class="faint">Transparency log: {}</p>', line) if line else NOTHING,
        _day(hours),
        heading("Newest intents", end=link(f"{root}console/intents", "All intents")),
        rows.intents(
            intents.records, root, now_ms, none="No intent has arrived yet. Relayers record them as operators."
        ),
        heading("Newest triggers", end=link(f"{root}console/triggers", "All triggers")),
        rows.triggers(triggers.records, root, now_ms, none="No trigger is registered yet. Sign the first one."),
    )
    return Page("Overview", body, "overview")


def _day(hours: Sequence[Hour] | None) -> Html:
    title = "Intents, last 24 hours"
    if hours is None:
        return html('{}<p class="empty">Too many to count in time.</p>', heading(title))
    totals = sum((each.counts for each in hours), Counter[str]())
    if not totals:
        return html('{}<p class="empty">None arrived.</p>', heading(title))
    legend = [html("<li>{} <strong>{}</strong>", state(name), f"{totals[name]:,}") for name in INTENT if totals[name]]
    shown = [name for name in INTENT if totals[name]]
    lines = [(absolute(each.begin_ms)[:16], *(each.counts[name] for name in shown)) for each in hours]
    return html(
        '{}{}<details><summary>The numbers</summary><div class="wide">{}</div></details>',
        heading(title, end=html('<ul class="legend">{}</ul>', legend)),
        bars([Bar(each.begin_ms, each.counts) for each in hours], _STACKED, label="Intents by hour and status"),
        table(("Hour", *shown), lines, label="Intents by hour and status", numbers=shown),
    )


OPERATIONS: Final = (overview,)
