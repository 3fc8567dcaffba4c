"""Statements of one text that wait at the same moment travel as one, each caller with an answer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.storage.postgres.statements import Kind, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.storage.database import Parameters, Row
    from muniment.storage.postgres.slot import Connection


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
        number: int = record[0]
        answers[number - 1].append(record[1:])
    return answers


async def execute_together(connection: Connection, text: Text, asked: Sequence[Parameters]) -> list[int]:
    """How many rows each of `asked` changed, in their order."""
    if text.kind is not Kind.INSERT or len(asked) == 1:
        return [await _execute(connection, text.alone, each) for each in asked]
    counts, later = await _insert_tellable(connection, text, asked)
    for index in later:
        counts[index] = await _execute(connection, text.alone, asked[index])
    return counts


async def add_together(connection: Connection, text: Text, asked: Sequence[Parameters]) -> list[int]:
    """Add rows by one statement alone, so that all are added or none; 1 for each that went in.

    0 is for one that did not, or was not sent because it could not have been told from another.
    """
    if len(asked) == 1:
        return [await _execute(connection, text.alone, asked[0])]
    counts, _ = await _insert_tellable(connection, text, asked)
    return counts


async def _insert_tellable(
    connection: Connection, text: Text, asked: Sequence[Parameters]
) -> tuple[list[int], Sequence[int]]:
    """Insert those that can be told apart: 1 for each that went in, and which were left out."""
    if text.together is None:
        await _learn(connection, text)
    told, sql = text.told[:1], text.together_by_one
    first, later = range(len(asked)), list[int]()
    if len({values[told[0]] for values in asked}) < len(asked):
        told, sql = text.told, text.together
        first, later = _tellable(asked, told)
    assert sql is not None  # noqa: S101 - it was learned before
    counts = [0] * len(asked)
    for index in await _insert(connection, sql, asked, first, told):
        counts[index] = 1
    return counts, later


def _tellable(asked: Sequence[Parameters], told: Sequence[int]) -> tuple[Sequence[int], list[int]]:
    """Which can be told apart by the columns that come back, or are equal to one that can; and the rest."""
    seen: dict[tuple[object, ...], Parameters] = {}
    first: list[int] = []
    later: list[int] = []
    for index, each in enumerate(asked):
        (first if seen.setdefault(_told(each, told), each) == each else later).append(index)
    return first, later


async def _insert(
    connection: Connection, sql: str, asked: Sequence[Parameters], first: Sequence[int], told: Sequence[int]
) -> list[int]:
    """Insert rows of `asked`, those with the numbers `first`; which of them went in.

    The smallest goes first, so that two writers of the same rows wait for each other in one order. Of equal rows the
    first one counts as the one that went in.
    """
    numbers = sorted(first, key=lambda number: _order(asked[number]))
    records = await connection.fetch(sql, *_columns([asked[number] for number in numbers]))
    if len(records) == len(numbers):
        return numbers
    waiting: dict[tuple[object, ...], list[int]] = {}
    for number in numbers:
        waiting.setdefault(_told(asked[number], told), []).append(number)
    return [waiting[tuple(record)].pop(0) for record in records]


def _told(values: Parameters, told: Sequence[int]) -> tuple[object, ...]:
    return tuple(values[index] for index in told)


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
