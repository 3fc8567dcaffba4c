"""The page on which a trigger is composed and signed."""

from __future__ import annotations

from typing import Final

from muniment.console import reading
from muniment.console.page import page
from muniment.console.parts import joined_options
from muniment.context import Context
from muniment.functions.routes import list_functions
from muniment.functions.store import FunctionQuery
from muniment.functions.types import Function
from muniment.http.html.frame import Page, root_from
from muniment.http.html.markup import html
from muniment.http.request import Request

# Functions that the page suggests.
_SUGGESTED: Final = 25


@page("/console/triggers/new")
async def wizard_page(context: Context, request: Request) -> Page:
    """The places that the script fills, and the functions to choose from."""
    root = root_from(request.path)
    query = FunctionQuery(limit=_SUGGESTED)
    newest = await reading.listing(list_functions.handler, context, request, query, Function)
    chains = [(str(each.id), each.name) for each in context.chains.values()]
    named = [(str(each.cid), f"{each.name} {each.version}") for each in newest.records]
    body = html(
        '<a class="back" href="{}console/triggers">Triggers</a><h1>Sign a trigger</h1>'
        '<div id="wizard" class="wizard" data-protocol="{}"><p class="faint">This needs a script and a wallet. Without '
        "them, sign with <code>muniment sign</code>.</p></div>"
        '<datalist id="functions">{}</datalist><datalist id="chains">{}</datalist>',
        root, context.settings.protocol_name,
        joined_options(named), joined_options(chains),
    )  # fmt: skip
    return Page("Sign a trigger", body, "triggers", scripts=("wizard.js",))


OPERATIONS: Final = (wizard_page,)
