"""What every check of `muniment verify` is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from muniment.errors import Refusal, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from muniment.context import Context
    from muniment.storage.database import Row

# Rows read at once: a few megabytes of records.
ROWS_AT_ONCE = 500


def fault_of(check: Callable[..., None], *of: object) -> str | None:
    """What `check` finds wrong; something stored may break any rule that held when it was written."""
    try:
        check(*of)
    except Unavailable:
        raise
    except Refusal as refusal:
        return refusal.detail
    except msgspec.MsgspecError as error:
        return f"its record cannot be read: {error}"
    return None


async def rows(context: Context, select: str) -> AsyncIterator[Row]:
    """All rows of a table in the order of its sequence, which `select` reads first, a few at a time."""
    last: Any = 0
    while found := await context.database.fetch_slow(
        f"{select} WHERE seq > ? ORDER BY seq LIMIT {ROWS_AT_ONCE}", (last,)
    ):
        for row in found:
            yield row
        last = found[-1][0]
