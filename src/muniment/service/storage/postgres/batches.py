"""Sends statements: those of one caller, and the equal ones of many callers as one, with an answer for each.

A `batch` holds the values of each caller, in the callers' order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.storage.database import Parameters, Row
    from muniment.service.storage.postgres.connection import Connection
    from muniment.service.storage.postgres.statements import Insertion, Statement


async def fetch(connection: Connection, sql: str, values: Parameters) -> list[Row]:
    """All rows."""
    return [tuple(record) for record in await connection.fetch(sql, *values)]


async def execute(connection: Connection, sql: str, values: Parameters) -> int:
    """Run a statement; the number of rows at the end of the command tag (`INSERT 0 1`, `UPDATE 3`)."""
    count = (await connection.execute(sql, *values)).rpartition(" ")[2]
    return int(count) if count.isdecimal() else 0


async def fetch_batch(connection: Connection, statement: Statement, batch: Sequence[Parameters]) -> list[list[Row]]:
    """The rows of a query for each caller."""
    if len(batch) == 1:
        return [await fetch(connection, statement.single, batch[0])]
    if not statement.parameter_count:
        shared = await fetch(connection, statement.single, ())
        return [list(shared) for _ in batch]
    answers: list[list[Row]] = [[] for _ in batch]
    sql = statement.batched or await _learn_types(connection, statement)
    for record in await connection.fetch(sql, *_columns(batch)):
        number: int = record[0]
        answers[number - 1].append(record[1:])
    return answers


async def insert_batch(connection: Connection, insertion: Insertion, batch: Sequence[Parameters]) -> set[object]:
    """Insert rows with different first values, in one transaction; the first values of the inserted rows.

    The rows are sorted, so that two writers of the same rows lock them in the same order and cannot deadlock.
    """
    if len(batch) == 1:
        return {batch[0][0]} if await execute(connection, insertion.single, batch[0]) else set()
    sql = insertion.batched or await _learn_types(connection, insertion)
    rows = sorted(batch, key=_first)
    return {key for (key,) in await connection.fetch(sql, *_columns(rows))}


async def _learn_types(connection: Connection, statement: Statement | Insertion) -> str:
    """Ask the server for the types of the parameters; returns the batched form of the statement."""
    prepared = await connection.prepare(statement.single)
    return statement.learn_types([each.name for each in prepared.get_parameters()])


def _columns(batch: Sequence[Parameters]) -> list[list[object]]:
    """The rows of values as columns."""
    return [list(column) for column in zip(*batch, strict=True)]


def _first(values: Parameters) -> bytes:
    first = values[0]
    return first if isinstance(first, bytes) else b""
