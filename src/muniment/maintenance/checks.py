"""The parts that all checks of stored rows share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, LiteralString

import msgspec

from muniment.errors import Refusal, Unavailable
from muniment.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from muniment.context import Context
    from muniment.storage.database import Row

# Rows of one read: a few megabytes of records.
_ROWS_PER_READ: Final = 500


def fault_of(check: Callable[..., None], *of: object) -> str | None:
    """The fault that `check` finds in stored data, or None. Raises `Unavailable`: a storage that fails is no fault."""
    try:
        check(*of)
    except Unavailable:
        raise
    except Refusal as refusal:
        return refusal.detail
    except msgspec.MsgspecError as error:
        return f"its record cannot be read: {error}"
    return None


async def rows(context: Context, select: LiteralString) -> AsyncIterator[Row]:
    """All rows of a table, in the order of `seq`, which is the first column of `select`."""
    last: Any = 0
    while found := await context.database.fetch_slow(
        f"{select} WHERE seq > ? ORDER BY seq LIMIT {number_text(_ROWS_PER_READ)}", (last,)
    ):
        for row in found:
            yield row
        last = found[-1][0]
