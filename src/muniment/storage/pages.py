"""Pages of records in memory that is bounded: the keys are chosen at once, the records are read in slices."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from muniment.errors import DatabaseUnavailable
from muniment.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.storage.database import Reads, Row

# Records that are held at once for one client: some fifty usual ones. A slice ends with the record that fills it.
SLICE_BYTES: Final = 64 * 1024
# The number of keys in a statement that reads records by key is a multiple of this: so there are few such texts.
_KEYS_STEP: Final = 10

# The first records of a page; the key of its last record, None when it is empty; whether more rows follow the page; and
# the other records of the page, None when there are none.
Found: TypeAlias = "tuple[list[str], int | None, bool, AsyncIterator[list[str]] | None]"


class Source(NamedTuple):
    """Where records are read by their keys, and in which order: `seq` and `record` are columns of `tables`."""

    tables: str
    seq: str
    record: str
    sort: int


class Asked(NamedTuple):
    """A page as it is asked of the database.

    `keys` and `records` choose the same rows in the same order, up to one beyond `limit`, with the same parameters;
    the columns are `seq`, and `seq` and `record`. `records` is None where an engine would read every record before it
    gives the first. `source` is where the records of some keys are read.
    """

    keys: str
    records: str | None
    source: Source
    parameters: Sequence[object]
    limit: int
    # The page ends before the record with which its JSON would be longer. None: it holds `limit` records.
    bytes_max: int | None = None
    # The keys lie behind many rows that are skipped.
    is_long: bool = False


async def read_page(database: Reads, asked: Asked, client: str) -> Found:
    """The page, with the records of a slice; `client` is whoever waits for it (see `Reads.fetch_slow`)."""
    bytes_max = asked.bytes_max or SLICE_BYTES
    if asked.records is None or asked.is_long:
        keys = await _keys(database, asked, client)
        rows, length = await _read(database, asked, keys[: asked.limit], bytes_max)
    else:
        rows, length = await database.fetch_some(
            asked.records, asked.parameters, rows_max=asked.limit + 1, bytes_max=bytes_max
        )
        if length < SLICE_BYTES:  # the usual page
            shown = rows[: asked.limit]
            return [record for _, record in shown], shown[-1][0] if shown else None, len(rows) > asked.limit, None
        keys = [seq for seq, _ in rows]
        if length >= bytes_max and len(rows) <= asked.limit and asked.bytes_max is None:
            keys = await _keys(database, asked, client)
            if keys[: len(rows)] != [seq for seq, _ in rows]:  # rows were added since
                rows, length = await _read(database, asked, keys[: asked.limit], bytes_max)
    count = asked.limit
    if asked.bytes_max is not None and length >= SLICE_BYTES:
        count = min(count, _within(rows, asked.bytes_max))
    has_more = len(keys) > count or (asked.bytes_max is not None and length >= asked.bytes_max)
    first = [record for _, record in rows[: min(count, _filling(rows))]]
    last = keys[:count][-1] if keys else None
    rest = Slices(database, asked.source, keys[len(first) : count]) if len(first) < len(keys[:count]) else None
    return first, last, has_more, rest


class Slices:
    """The records of some keys, in their order, a slice at a time. Between two slices it holds nothing but the keys."""

    def __init__(self, database: Reads, source: Source, keys: Sequence[int]) -> None:
        """`keys` are in the order of `source`."""
        self._database = database
        self._source = source
        self._keys = deque(keys)

    def __aiter__(self) -> Self:
        """Itself: the records are read once."""
        return self

    async def __anext__(self) -> list[str]:
        """Read the next slice.

        Raises `DatabaseUnavailable`, also when a row is not there: rows are never removed.
        """
        if not self._keys:
            raise StopAsyncIteration
        rows, _ = await _some(self._database, self._source, list(self._keys), SLICE_BYTES)
        for seq, _ in rows:
            if self._keys.popleft() != seq:
                rows = []
                break
        if not rows:
            raise DatabaseUnavailable("a row of the page cannot be read any more")
        return [record for _, record in rows]


async def _keys(database: Reads, asked: Asked, client: str) -> list[int]:
    if asked.is_long:
        return [seq for (seq,) in await database.fetch_slow(asked.keys, asked.parameters, client=client)]
    return [seq for (seq,) in await database.fetch(asked.keys, asked.parameters)]


async def _read(database: Reads, asked: Asked, keys: list[int], bytes_max: int) -> tuple[list[Row], int]:
    return await _some(database, asked.source, keys, bytes_max) if keys else ([], 0)


async def _some(database: Reads, source: Source, keys: list[int], bytes_max: int) -> tuple[list[Row], int]:
    repeated = [keys[-1]] * (-len(keys) % _KEYS_STEP)
    sql = _by_key(source, len(keys) + len(repeated))
    return await database.fetch_some(sql, [*keys, *repeated], rows_max=len(keys), bytes_max=bytes_max)


@lru_cache(maxsize=128)  # three sources, two orders, ten counts
def _by_key(source: Source, count: int) -> str:
    """The statement for the records of `count` keys."""
    tables, seq, record, sort = source
    direction = "ASC" if sort == 1 else "DESC"
    return (
        f"SELECT {seq}, {record} FROM {tables} WHERE {seq} IN ({placeholders(count)}) "  # noqa: S608 - text of ours
        f"ORDER BY {seq} {direction}"
    )


def _within(rows: Sequence[Row], bytes_max: int) -> int:
    """How many of `rows` a JSON array of `bytes_max` bytes holds; one at least."""
    length = 1
    for count, (_, record) in enumerate(rows):
        length += 1 + utf8_length(record)
        if length > bytes_max:
            return max(count, 1)
    return len(rows)


def _filling(rows: Sequence[Row]) -> int:
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
