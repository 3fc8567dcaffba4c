"""The account of whoever has logged in: all of it is read by a script, with the token of the tab."""

from __future__ import annotations

from typing import Final

from muniment.console.page import page
from muniment.context import Context
from muniment.http.html.frame import Page, root_from
from muniment.http.html.markup import html
from muniment.http.request import Request


@page("/console/account")
async def account_page(context: Context, request: Request) -> Page:
    """The places that the script fills."""
    body = html(
        '<h1>Account</h1><div id="account" data-lifetime="{}"><p class="faint">API keys, balances and the profile need '
        "a log-in with a wallet, and so a script. Without one, use <code>muniment login</code>.</p></div>"
        '<p>Triggers need no log-in: they are signed one by one. <a href="{}console/triggers/new">Sign a trigger</a>'
        "</p>",
        context.settings.token_lifetime_s, root_from(request.path),
    )  # fmt: skip
    return Page("Account", body, "account", scripts=("account.js",))


OPERATIONS: Final = (account_page,)
