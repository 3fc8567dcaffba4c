"""The list of intents."""

from __future__ import annotations

from typing import Final

from muniment.console import reading, rows
from muniment.console.filters import Choice, Field, Moment, filter_form
from muniment.console.page import page
from muniment.console.parts import heading, live, pages
from muniment.context import Context
from muniment.http.html.frame import Page, root_from
from muniment.http.html.markup import html
from muniment.http.query import QueryReader
from muniment.http.request import Request
from muniment.intents.lifecycle import INTENT
from muniment.intents.queries import IntentQuery

_QUERY: Final = QueryReader(IntentQuery)
# The types of operations of both forms: a number means nearly the same in either.
_OPERATIONS: Final = ("Swap", "Transfer", "Call", "Cross-chain swap, SVM call", "Dynamic call")
_FILTERS: Final = (
    Choice("status", "Status", tuple((name, name) for name in INTENT)),
    Choice("op", "Operation", tuple((str(number), words) for number, words in enumerate(_OPERATIONS))),
    Field("user", "User"),
    Field("settler", "Settler"),
    Field("configSig", "Trigger"),
    Moment("createdAfter", "After (UTC)"),
    Moment("createdBefore", "Until (UTC)"),
)


@page("/console/intents")
async def list_page(context: Context, request: Request) -> Page:
    """The intents that the address asks for, newest first."""
    root = root_from(request.path)
    query = reading.read_query(request, _QUERY, b"generation=all")
    found = await reading.intents(context, request, query)
    none = "No intent matches." if request.query else "No intent has arrived yet. Relayers record them as operators."
    body = html(
        "{}{}{}{}",
        heading("Intents", level=1),
        filter_form(request, _FILTERS),
        live("intents", found.prev, rows.intents(found.records, root, context.now_ms(), none=none), request),
        pages(request, found.next),
    )
    return Page("Intents", body, "intents", f"{root}intents?generation=all", ("live.js",))


OPERATIONS: Final = (list_page,)
