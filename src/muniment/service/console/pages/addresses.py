"""The account of a logged-in wallet, and the records of an address."""

from __future__ import annotations

from typing import Final

from muniment.protocol.evm.address import Address
from muniment.protocol.functions.types import Function
from muniment.protocol.triggers.types import Trigger
from muniment.service.console import reading, rows
from muniment.service.console.page import page
from muniment.service.console.parts import heading, identifier, link
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, root_from
from muniment.service.http.html.markup import html
from muniment.service.http.request import Request
from muniment.service.resources.functions.routes import list_functions
from muniment.service.resources.functions.store import FunctionQuery
from muniment.service.resources.intents.queries import IntentQuery
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.resources.triggers.routes import list_triggers


@page("/console/account")
async def account_page(context: Context, request: Request) -> Page:
    """The account of a logged-in wallet, which a script fills."""
    body = html(
        '<h1>Account</h1><div id="account" data-lifetime="{}"><p class="faint">API keys, balances and the profile need '
        "a log-in with a wallet, and so a script. Without one, use <code>muniment login</code>.</p></div>"
        '<p>Triggers need no log-in: they are signed one by one. <a href="{}console/triggers/new">Sign a trigger</a>'
        "</p>",
        context.settings.token_lifetime_s, root_from(request.path),
    )  # fmt: skip
    return Page("Account", body, "account", scripts=("account.js",))


# Rows of each kind.
_SHOWN: Final = 10


@page("/console/addresses/{address}")
async def address_page(context: Context, request: Request, address: Address) -> Page:
    """The triggers, intents and functions of an address."""
    root, now_ms = root_from(request.path), context.now_ms()
    triggers = await reading.listing(
        list_triggers.handler, context, request, TriggerQuery(signer=address, limit=_SHOWN), Trigger
    )  # fmt: skip
    intents = await reading.intents(context, request, IntentQuery(user=address, limit=_SHOWN, generation="all"))
    functions = await reading.listing(
        list_functions.handler, context, request, FunctionQuery(creator=address, limit=_SHOWN), Function
    )  # fmt: skip
    body = html(
        '<h1>Address</h1><p>{} <span id="mine" data-address="{}" class="faint"></span></p>{}{}{}{}{}{}',
        identifier(address, whole=True), address,
        heading("Triggers", end=link(f"{root}console/triggers?signer={address}", "All of them")),
        rows.triggers(triggers.records, root, now_ms, none="It has signed no triggers."),
        heading("Intents", end=link(f"{root}console/intents?user={address}", "All of them")),
        rows.intents(intents.records, root, now_ms, none="It has no intents."),
        heading("Functions", end=link(f"{root}console/functions?creator={address}", "All of them")),
        rows.functions(functions.records, root, now_ms, none="It has deployed no functions."),
    )  # fmt: skip
    return Page(f"Address {address}", body)
