"""Statements of one text that wait at the same moment travel as one, each caller with an answer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.storage.postgres_sql import Kind, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.storage.database import Parameters, Row
    from muniment.storage.postgres_line import Connection


async def fetch_together(connection: Connection, text: Text, asked: Sequence[Parameters]) -> list[list[Row]]:
    """The rows for each of `asked`, in their order."""
    if text.kind is not Kind.READ or len(asked) == 1:
        return [await _fetch(connection, text.alone, each) for each in asked]
    if not text.count:
        shared = await _fetch(connection, text.alone, ())
        return [list(shared) for _ in asked]
    answers: list[list[Row]] = [[] for _ in asked]
    sql = text.together or await _learn(connection, text)
    for record in await connection.fetch(sql, *_columns(asked)):
        row: Row = tuple(record)
        mine: list[Row] = answers[int(row[0]) - 1]
        mine.append(row[1:])
    return answers


async def execute_together(connection: Connection, text: Text, asked: Sequence[Parameters]) -> list[int]:
    """How many rows each of `asked` changed, in their order."""
    if text.kind is not Kind.INSERT or len(asked) == 1:
        return [await _execute(connection, text.alone, each) for each in asked]
    if text.together is None:
        await _learn(connection, text)
    first, later = _tellable(text, asked)
    counts = [0] * len(asked)
    for index in await _insert(connection, text, [(index, asked[index]) for index in first]):
        counts[index] = 1
    for index in later:
        counts[index] = await _execute(connection, text.alone, asked[index])
    return counts


def _tellable(text: Text, asked: Sequence[Parameters]) -> tuple[list[int], list[int]]:
    """Which can be told apart by the columns that come back, or are equal to one that can; and the rest."""
    seen: dict[tuple[object, ...], Parameters] = {}
    first: list[int] = []
    later: list[int] = []
    for index, each in enumerate(asked):
        (first if seen.setdefault(_told(text, each), each) == each else later).append(index)
    return first, later


async def _insert(connection: Connection, text: Text, rows: list[tuple[int, Parameters]]) -> list[int]:
    """Insert rows, the smallest first, so that two writers of the same rows wait for each other in one order.

    Of equal rows the first one counts as the one that went in.
    """
    rows.sort(key=lambda row: _order(row[1]))
    waiting: dict[tuple[object, ...], list[int]] = {}
    for index, values in rows:
        waiting.setdefault(_told(text, values), []).append(index)
    assert text.together is not None  # noqa: S101 - it was learned before
    records = await connection.fetch(text.together, *_columns([values for _, values in rows]))
    return [waiting[tuple(record)].pop(0) for record in records]


def _told(text: Text, values: Parameters) -> tuple[object, ...]:
    return tuple(values[index] for index in text.told)


def _order(values: Parameters) -> tuple[bytes, str]:
    """An order of rows that all processes share: by their first column, which is part of a key."""
    first = values[0]
    return (bytes(first), "") if isinstance(first, bytes) else (b"", str(first))


async def _learn(connection: Connection, text: Text) -> str:
    """Ask the server which types the parameters have."""
    prepared = await connection.prepare(text.alone)
    return text.learn([each.name for each in prepared.get_parameters()])


def _columns(asked: Sequence[Parameters]) -> list[list[object]]:
    """Rows of values as columns."""
    return [list(column) for column in zip(*asked, strict=True)]


async def _fetch(connection: Connection, sql: str, values: Parameters) -> list[Row]:
    return [tuple(record) for record in await connection.fetch(sql, *values)]


async def _execute(connection: Connection, sql: str, values: Parameters) -> int:
    """Run a statement. The server's word for it ends in the number of rows: `INSERT 0 1`, `UPDATE 3`."""
    count = (await connection.execute(sql, *values)).rpartition(" ")[2]
    return int(count) if count.isdecimal() else 0
