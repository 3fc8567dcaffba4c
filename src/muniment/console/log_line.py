"""The state of the transparency log, as `GET /log` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.console import reading
from muniment.http.html.markup import Html, html, seen
from muniment.tlog.serving.routes import get_log
from muniment.tlog.types import LogEpoch, LogShown

if TYPE_CHECKING:
    from muniment.context import Context
    from muniment.http.request import Request

# The dot beside each state, by the name that the style sheet has for it.
_DOTS: Final = {"open": "ready", "closing": "ready", "frozen": "discarded", "halted": "failed", "closed": "ended"}
_STANDS: Final = frozenset({"frozen", "halted"})


async def log_line(context: Context, request: Request, root: str) -> Html | None:
    """The state of the log, its name and its size, and what that means where it stands; None: the log is off."""
    if context.settings.tlog == "off":
        return None
    reply = await get_log.handler(context, request)
    epochs = reading.decoded(await reading.whole(reply), LogShown).epochs
    if not epochs:
        return html('It has not begun. <a href="{}log">As JSON</a>', root)
    epoch = epochs[0]
    return html(
        '<span class="state {}">{}</span>: <code>{}</code>, {} signed {}. <a href="{}log">Keys and epochs</a>{}',
        _DOTS[epoch.state], epoch.state, epoch.origin,
        f"{epoch.size:,}", "entry" if epoch.size == 1 else "entries", root, _meaning(epoch),
    )  # fmt: skip


def _meaning(epoch: LogEpoch) -> Html | str:
    if epoch.state not in _STANDS:
        return ""
    return html(
        '. <strong class="bad">Nothing new is logged: {}.</strong> The registry serves on; what it takes is logged '
        "when its operator lets the log go on.",
        seen(epoch.why or "the operator has not said why"),
    )
