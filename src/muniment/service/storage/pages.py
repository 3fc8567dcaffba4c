"""Pages of records in limited memory: the keys of all rows are read first, then the records in slices.

`storage.listing` writes the statements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple, Self, TypeAlias

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.service.storage.database import Reader, Row

# A slice: the records of one client that are in memory together, about fifty usual ones. It ends with the record that
# fills it.
SLICE_BYTES: Final = 64 * 1024
# Statements that read records by key have a multiple of this many keys, so that few texts are prepared and kept.
_KEYS_STEP: Final = 10
# Texts of statements kept: all combinations of filters, lengths of lists aside, and ten counts of keys.
_STATEMENTS_KEPT: Final = 1_024

# The first records of a page; the key of its last record, None for an empty page; whether more rows follow the page;
# the remaining records of the page, None if there are none; and the key of its first record, None for an empty page.
PageRead: TypeAlias = "tuple[list[str], int | None, bool, AsyncIterator[list[str]] | None, int | None]"


class RecordSource(NamedTuple):
    """The tables from which records are read by key: `seq` and `record` are columns, `sort` is 1 for ascending keys."""

    tables: LiteralString
    seq: LiteralString
    record: LiteralString
    sort: int


class PageStatements(NamedTuple):
    """The statements that read a page.

    `keys` gives the numbers of its rows, `seq`, up to one beyond `limit`; `records` gives `seq` and `record` of the
    same rows in the same order, from the same parameters. An engine reads no more records than it returns.
    """

    keys: LiteralString
    records: LiteralString
    source: RecordSource
    parameters: Sequence[object]
    limit: int
    # The page ends before the record that makes its JSON longer than this many bytes. None: only `limit` counts.
    bytes_max: int | None = None
    # Many rows are skipped, so the keys are read off the event loop.
    is_long: bool = False


async def read_page(database: Reader, page: PageStatements, client: str) -> PageRead:
    """The page, with the records of its first slice.

    `client` is the address of the client that waits for it (see `Reader.fetch_slow`). Raises `DeadlineExceeded`.
    """
    bytes_max = page.bytes_max or SLICE_BYTES
    if page.is_long:
        found = await database.fetch_slow(page.keys, page.parameters, client=client)
        keys = [seq for (seq,) in found]
        rows, length = await _records_of(database, page, keys[: page.limit], bytes_max)
    else:
        rows, length = await database.fetch_some(
            page.records, page.parameters, rows_max=page.limit + 1, bytes_max=bytes_max
        )
        if length < SLICE_BYTES:  # the usual page
            shown = rows[: page.limit]
            first, last = (shown[0][0], shown[-1][0]) if shown else (None, None)
            return [record for _, record in shown], last, len(rows) > page.limit, None, first
        keys = [seq for seq, _ in rows]
        if length >= bytes_max and len(rows) <= page.limit and page.bytes_max is None:
            keys = [seq for (seq,) in await database.fetch(page.keys, page.parameters)]
            if keys[: len(rows)] != [seq for seq, _ in rows]:  # rows were added since
                rows, length = await _records_of(database, page, keys[: page.limit], bytes_max)
    count = page.limit
    if page.bytes_max is not None and length >= SLICE_BYTES:
        count = min(count, _count_within(rows, page.bytes_max))
    has_more = len(keys) > count or (page.bytes_max is not None and length >= page.bytes_max)
    first = [record for _, record in rows[: min(count, _count_in_slice(rows))]]
    last = keys[:count][-1] if keys else None
    rest = Slices(database, page.source, keys[len(first) : count]) if len(first) < len(keys[:count]) else None
    return first, last, has_more, rest, keys[0] if keys else None


class Slices:
    """The records of some keys, in their order and in slices. Between two slices only the keys are in memory."""

    def __init__(self, database: Reader, source: RecordSource, keys: Sequence[int]) -> None:
        """`keys` are in the order of `source`."""
        self._database = database
        self._source = source
        self._keys = deque(keys)

    def __aiter__(self) -> Self:
        """Itself: the records are read once."""
        return self

    async def __anext__(self) -> list[str]:
        """Read the next slice.

        Raises `DatabaseUnavailable`, also for a key without a row, because rows are never removed.
        """
        if not self._keys:
            raise StopAsyncIteration
        rows, _ = await _first_records(self._database, self._source, list(self._keys), SLICE_BYTES)
        for seq, _ in rows:
            if self._keys.popleft() != seq:
                rows = []
                break
        if not rows:
            raise DatabaseUnavailable("a row of the page can no longer be read")
        return [record for _, record in rows]


async def _records_of(database: Reader, page: PageStatements, keys: list[int], bytes_max: int) -> tuple[list[Row], int]:
    return await _first_records(database, page.source, keys, bytes_max) if keys else ([], 0)


async def _first_records(
    database: Reader, source: RecordSource, keys: list[int], bytes_max: int
) -> tuple[list[Row], int]:
    repeated = [keys[-1]] * (-len(keys) % _KEYS_STEP)
    sql = by_key(source, placeholders(len(keys) + len(repeated)))
    return await database.fetch_some(sql, [*keys, *repeated], rows_max=len(keys), bytes_max=bytes_max)


@lru_cache(maxsize=_STATEMENTS_KEPT)
def by_key(source: RecordSource, keys: LiteralString) -> LiteralString:
    """The statement for the records of `keys`: placeholders, or a query."""
    tables, seq, record, sort = source
    direction = "ASC" if sort == 1 else "DESC"
    return f"SELECT {seq}, {record} FROM {tables} WHERE {seq} IN ({keys}) ORDER BY {seq} {direction}"


def _count_within(rows: Sequence[Row], bytes_max: int) -> int:
    """How many of `rows` fit into a JSON array of `bytes_max` bytes; at least one."""
    length = 1
    for count, (_, record) in enumerate(rows):
        length += 1 + utf8_length(record)
        if length > bytes_max:
            return max(count, 1)
    return len(rows)


def _count_in_slice(rows: Sequence[Row]) -> int:
    """How many of `rows` a slice takes."""
    length = 0
    for count, (_, record) in enumerate(rows, 1):
        length += utf8_length(record)
        if length >= SLICE_BYTES:
            return count
    return len(rows)


def utf8_length(text: str) -> int:
    """The bytes of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
