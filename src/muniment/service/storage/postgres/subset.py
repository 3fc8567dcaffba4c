"""Fetches the first rows of a query up to a number of bytes, so that a page needs limited memory on both sides.

`engine` and `replication.replicated` call it. The server always sends a whole answer, so the limit is in the SQL, which
adds up the lengths of the records. PostgreSQL knows the length of a text that it keeps out of line (TOAST) without
reading it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, LiteralString

from muniment.service.storage.pages import utf8_length
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from muniment.service.storage.database import Parameters, Row

# Most records are shorter.
_USUAL_BYTES_MAX: Final = 4 * 1024


async def fetch_some(
    fetch: Callable[[LiteralString, Parameters], Awaitable[list[Row]]],
    sql: LiteralString,
    parameters: Parameters,
    *,
    rows_max: int,
    bytes_max: int,
) -> tuple[list[Row], int]:
    """See `Reader.fetch_some`; `fetch` sends the statements."""
    record_bytes_max = bytes_max // rows_max
    if record_bytes_max >= _USUAL_BYTES_MAX:
        # Most pages fit: comparing each length is cheap, and a sum costs the server half as much as a usual page.
        usual = f"octet_length(record) < {number_text(record_bytes_max)}"
        rows = await fetch(f"SELECT seq, CASE WHEN {usual} THEN record END FROM ({sql}) page", parameters)  # noqa: S608 - a `LiteralString`
        if all(record is not None for _, record in rows):
            return rows, _length(rows)
    rows = await fetch(
        "SELECT seq, record FROM (SELECT seq, record, "  # noqa: S608 - likewise
        "sum(octet_length(record)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(record) AS before "
        f"FROM ({sql}) page) measured WHERE before < {number_text(bytes_max)}",
        parameters,
    )
    return rows, _length(rows)


def _length(rows: list[Row]) -> int:
    return sum(utf8_length(record) for _, record in rows)
