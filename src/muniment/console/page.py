"""A page as an operation: what its handler returns goes into the frame."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from muniment.console.files import assets
from muniment.http.html.frame import Page, framed, root_from
from muniment.http.operation import Operation, operation
from muniment.limits.costs import Cost, Shed

if TYPE_CHECKING:
    from muniment.http.reply import Ready

# A page of 25 rows takes two to five milliseconds of CPU and has some thirty kilobytes.
COST: Final = Cost(60, sent_bytes_per_unit=1024)

Handler = Callable[..., Awaitable[Page]]


def page(path: str) -> Callable[[Handler], Operation]:
    """Declare a handler as the page at `path`.

    Its parameters are those of an operation (`muniment.http.operation`), the `Request` as `request` among them. A
    `Refusal` becomes a page with the same status.
    """

    def declare(handler: Handler) -> Operation:
        @wraps(handler)
        async def answer(**values: Any) -> Ready[bytes]:
            shown = await handler(**values)
            return framed(shown, root_from(values["request"].path), assets())

        return operation("GET", path, cost=COST, sheds=Shed.PAGE)(answer)

    return declare
