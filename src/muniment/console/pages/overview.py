"""The overview: what happens in this registry."""

from __future__ import annotations

from typing import Final

from muniment.console import reading
from muniment.console.page import page
from muniment.console.pages.triggers import trigger_table
from muniment.console.parts import heading
from muniment.context import Context
from muniment.http.html.frame import Page, root_from
from muniment.http.html.markup import html
from muniment.http.request import Request
from muniment.triggers.listing import TriggerQuery
from muniment.triggers.routes import list_triggers
from muniment.triggers.typed_data import registry_domain
from muniment.triggers.types import Trigger

_NEWEST: Final = 8


@page("/console")
async def overview(context: Context, request: Request) -> Page:
    """The newest records."""
    root = root_from(request.path)
    newest = await reading.listing(
        list_triggers.handler, context, request, TriggerQuery(limit=_NEWEST), Trigger
    )  # fmt: skip
    body = html(
        '<h1>Overview</h1><p class="faint">Registry of wallet-signed automation under the name <strong>{}</strong>. '
        "Every signature, CID and hash shown here can be checked in this browser.</p>{}{}",
        registry_domain(context.settings.protocol_name).name,
        heading("Newest triggers", end=html('<a href="{}console/triggers">All triggers</a>', root)),
        trigger_table(newest.records, root, context.now_ms()),
    )
    return Page("Overview", body, "overview")


OPERATIONS: Final = (overview,)
