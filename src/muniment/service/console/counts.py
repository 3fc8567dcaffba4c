"""What the pages count of a whole registry; a count may be half a minute old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

from muniment.service.http.html.markup import Html, html
from muniment.service.resources.operators import is_moved_since
from muniment.service.running.kept import KeptCount
from muniment.service.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muniment.service.context import Context

T = TypeVar("T")

DAY_MS: Final = 86_400_000
# By the database of an application of this process; tests have several.
_counts: Final[WeakKeyDictionary[Database, dict[str, KeptCount[Any]]]] = WeakKeyDictionary()


async def counted(context: Context, name: str, count: Callable[[], Awaitable[T]]) -> T | None:
    """The count of this name; None: too many to count in time."""
    return await _counts.setdefault(context.database, {}).setdefault(name, KeptCount(context.clock)).read(count)


async def nobody(context: Context) -> Html | None:
    """The note that nobody fulfils intents here, if no operator has moved one for a day."""
    since_ms = context.clock.now_ms() - DAY_MS
    if await counted(context, "moved", lambda: is_moved_since(context.database, since_ms)) is not False:
        return None
    return html(
        '<p class="note">Nobody fulfils intents here: no operator has moved one for a day. Solvers and relayers do '
        "that as operators, whom <code>muniment operators add</code> adds.</p>"
    )
