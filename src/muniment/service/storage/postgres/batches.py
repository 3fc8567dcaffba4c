"""Sends the equal statements of many callers as one, and gives each caller its own answer.

`read_queue`, `transaction` and `engine` call this. A `batch` holds the values of each caller, in the callers' order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.service.storage.postgres.statements import Kind, Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.storage.database import Parameters, Row
    from muniment.service.storage.postgres.connection import Connection


async def fetch_batch(connection: Connection, statement: Statement, batch: Sequence[Parameters]) -> list[list[Row]]:
    """The rows for each caller."""
    if statement.kind is not Kind.READ or len(batch) == 1:
        return [await _fetch(connection, statement.single, values) for values in batch]
    if not statement.parameter_count:
        shared = await _fetch(connection, statement.single, ())
        return [list(shared) for _ in batch]
    answers: list[list[Row]] = [[] for _ in batch]
    sql = statement.batched or await _learn_types(connection, statement)
    for record in await connection.fetch(sql, *_columns(batch)):
        number: int = record[0]
        answers[number - 1].append(record[1:])
    return answers


async def execute_batch(connection: Connection, statement: Statement, batch: Sequence[Parameters]) -> list[int]:
    """The number of rows that each caller changed."""
    if statement.kind is not Kind.INSERT or len(batch) == 1:
        return [await _execute(connection, statement.single, values) for values in batch]
    counts, left_out = await _insert_distinct(connection, statement, batch)
    for index in left_out:
        counts[index] = await _execute(connection, statement.single, batch[index])
    return counts


async def insert_batch(connection: Connection, statement: Statement, batch: Sequence[Parameters]) -> list[int]:
    """Insert the rows in one statement, and so in one transaction; 1 for each inserted row, otherwise 0.

    A row with 0 existed already, or was left out because RETURNING could not distinguish it from another row.
    """
    if len(batch) == 1:
        return [await _execute(connection, statement.single, batch[0])]
    counts, _ = await _insert_distinct(connection, statement, batch)
    return counts


async def _insert_distinct(
    connection: Connection, statement: Statement, batch: Sequence[Parameters]
) -> tuple[list[int], Sequence[int]]:
    """Insert the rows that RETURNING can distinguish; 1 for each inserted row, and the indexes of the rows left out."""
    if statement.batched is None:
        await _learn_types(connection, statement)
    returned, sql = statement.returned[:1], statement.batched_by_first
    included, left_out = range(len(batch)), list[int]()
    if len({values[returned[0]] for values in batch}) < len(batch):
        returned, sql = statement.returned, statement.batched
        included, left_out = _distinct(batch, returned)
    assert sql is not None  # noqa: S101 - the types are known by now
    counts = [0] * len(batch)
    for index in await _insert(connection, sql, batch, included, returned):
        counts[index] = 1
    return counts, left_out


def _distinct(batch: Sequence[Parameters], returned: Sequence[int]) -> tuple[Sequence[int], list[int]]:
    """The rows that differ in the `returned` columns, duplicates of these rows included; and all other rows."""
    seen: dict[tuple[object, ...], Parameters] = {}
    included: list[int] = []
    left_out: list[int] = []
    for index, values in enumerate(batch):
        is_distinct = seen.setdefault(_picked(values, returned), values) == values
        (included if is_distinct else left_out).append(index)
    return included, left_out


async def _insert(
    connection: Connection, sql: str, batch: Sequence[Parameters], included: Sequence[int], returned: Sequence[int]
) -> list[int]:
    """Insert the `included` rows of the batch; the indexes of the inserted rows.

    The rows are sorted, so that two writers of the same rows lock them in the same order and cannot deadlock. Of equal
    rows the first one counts as inserted.
    """
    numbers = sorted(included, key=lambda number: _sort_key(batch[number]))
    records = await connection.fetch(sql, *_columns([batch[number] for number in numbers]))
    if len(records) == len(numbers):
        return numbers
    waiting: dict[tuple[object, ...], list[int]] = {}
    for number in numbers:
        waiting.setdefault(_picked(batch[number], returned), []).append(number)
    return [waiting[tuple(record)].pop(0) for record in records]


def _picked(values: Parameters, columns: Sequence[int]) -> tuple[object, ...]:
    return tuple(values[index] for index in columns)


def _sort_key(values: Parameters) -> tuple[bytes, str]:
    """An order that is the same in all processes: by the first column, which is part of a key."""
    first = values[0]
    return (bytes(first), "") if isinstance(first, bytes) else (b"", str(first))


async def _learn_types(connection: Connection, statement: Statement) -> str:
    """Ask the server for the types of the parameters; returns the batched form of the statement."""
    prepared = await connection.prepare(statement.single)
    return statement.learn_types([each.name for each in prepared.get_parameters()])


def _columns(batch: Sequence[Parameters]) -> list[list[object]]:
    """The rows of values as columns."""
    return [list(column) for column in zip(*batch, strict=True)]


async def _fetch(connection: Connection, sql: str, values: Parameters) -> list[Row]:
    return [tuple(record) for record in await connection.fetch(sql, *values)]


async def _execute(connection: Connection, sql: str, values: Parameters) -> int:
    """Run a statement; the number of rows at the end of the command tag (`INSERT 0 1`, `UPDATE 3`)."""
    count = (await connection.execute(sql, *values)).rpartition(" ")[2]
    return int(count) if count.isdecimal() else 0
