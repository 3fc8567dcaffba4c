"""What to do next, in the place of a list that is empty; `root` leads from the page to the root of the service."""

from __future__ import annotations

from typing import Final

from muniment.service.console.parts import command
from muniment.service.http.html.markup import Html, html

# For a list with filters.
NO_MATCH: Final = html('Nothing matches. <a href="?">Show all</a>')
_RELAYER: Final = html("{}", command(html("muniment relayer --config relayer.toml")))


def no_functions(root: str) -> Html:
    """No function is deployed."""
    return html('No function is deployed yet. <a href="{}console/deploy">Deploy the first one</a>', root)


def no_triggers(root: str, cid: str = "") -> Html:
    """No trigger is signed, or none of the function with this CID."""
    href = f"{root}console/triggers/new{f'?functionCid={cid}' if cid else ''}"
    return html('No trigger {}is signed yet. <a href="{}">Sign the first one</a>', "of it " if cid else "", href)


def no_intents(root: str) -> Html:
    """No intent is recorded."""
    return html(
        'No intent has arrived yet: they come of runs, and runs of triggers. <a href="{}console/triggers/new">Sign a '
        "trigger</a>, and start a relayer:{}",
        root, _RELAYER,
    )  # fmt: skip


def no_runs() -> Html:
    """No run is recorded."""
    return html("No relayer has recorded a run yet. Start one:{}", _RELAYER)
