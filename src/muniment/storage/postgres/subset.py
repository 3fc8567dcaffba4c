"""The first rows of a query in bounded memory, on either side of the connection.

A statement is answered whole, so it must say itself where to stop. It does so by the length of texts, which PostgreSQL
knows without reading those that it keeps out of line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from muniment.storage.pages import utf8_length

if TYPE_CHECKING:
    from muniment.storage.database import Parameters, Row

# A usual record is shorter.
_USUAL_BYTES: Final = 4 * 1024


async def fetch_some(
    fetch: Callable[[str, Parameters], Awaitable[list[Row]]],
    sql: str,
    parameters: Parameters,
    *,
    rows_max: int,
    bytes_max: int,
) -> tuple[list[Row], int]:
    """What `Reads.fetch_some` promises, by means of `fetch`."""
    each_max = bytes_max // rows_max
    if each_max >= _USUAL_BYTES:
        # To add the lengths up costs the server half as much as the usual page itself; to look at each does not.
        rows = await fetch(
            f"SELECT seq, CASE WHEN octet_length(record) < {each_max} THEN record END FROM ({sql}) page",  # noqa: S608 - text of ours
            parameters,
        )
        if all(record is not None for _, record in rows):
            return rows, _length(rows)
    rows = await fetch(
        "SELECT seq, record FROM (SELECT seq, record, "  # noqa: S608 - text of ours
        "sum(octet_length(record)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(record) AS before "
        f"FROM ({sql}) page) measured WHERE before < {bytes_max}",
        parameters,
    )
    return rows, _length(rows)


def _length(rows: list[Row]) -> int:
    return sum(utf8_length(record) for _, record in rows)
