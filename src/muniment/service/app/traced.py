"""A database whose queries and commits are spans of the requests that wait for them. Used only when traces are on."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.service.http.request import Request
    from muniment.service.running.tracing.tracer import Attributes, Tracer
    from muniment.service.storage.database import Database, Parameters, Reader, Row, Work

T = TypeVar("T")

_TABLE: Final = re.compile(r"\bFROM\s+(\w+)")
# The few dozen texts of the stores, times their forms.
_STATEMENTS_KEPT: Final = 512


class TracedReader:
    """A `Reader` that makes a span of each read."""

    def __init__(self, reader: Reader, tracer: Tracer, system: str) -> None:
        """`system` is the name of the engine in the semantic conventions (`db.system.name`)."""
        self._reader = reader
        self._tracer = tracer
        self._system = system

    def __getattr__(self, name: str) -> Any:
        """Everything else as the reader has it."""
        return getattr(self._reader, name)

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows."""
        with self._tracer.child(*_described(sql, self._system)):
            return await self._reader.fetch(sql, parameters)

    async def fetch_one(self, sql: LiteralString, parameters: Parameters = ()) -> Row | None:
        """The first row."""
        with self._tracer.child(*_described(sql, self._system)):
            return await self._reader.fetch_one(sql, parameters)

    async def fetch_some(
        self, sql: LiteralString, parameters: Parameters, *, rows_max: int, bytes_max: int
    ) -> tuple[list[Row], int]:
        """The first rows."""
        with self._tracer.child(*_described(sql, self._system)):
            return await self._reader.fetch_some(sql, parameters, rows_max=rows_max, bytes_max=bytes_max)

    async def fetch_slow(self, sql: LiteralString, parameters: Parameters = (), *, client: str = "") -> list[Row]:
        """All rows of a long read."""
        with self._tracer.child(*_described(sql, self._system)):
            return await self._reader.fetch_slow(sql, parameters, client=client)


class TracedDatabase(TracedReader):
    """A `Database` that makes a span of each read, and of each write: its wait, its statements and its commit."""

    async def write(self, work: Work[T], *, order: bytes = b"", urgent: bool = False) -> T:
        """Run `work`; its result once the transaction is durable."""
        with self._tracer.child("COMMIT", {"db.system.name": self._system, "db.operation.name": "COMMIT"}):
            return await cast("Database", self._reader).write(work, order=order, urgent=urgent)


def traced(
    database: Database, reader_for: Callable[[Request], Reader], tracer: Tracer
) -> tuple[Database, Callable[[Request], Reader]]:
    """The database and the choice of readers, with spans."""
    system = "postgresql" if database.is_shared else "sqlite"
    whole = cast("Database", TracedDatabase(database, tracer, system))

    def traced_reader(request: Request) -> Reader:
        reader = reader_for(request)
        return whole if reader is database else cast("Reader", TracedReader(reader, tracer, system))

    return whole, traced_reader


@lru_cache(_STATEMENTS_KEPT)
def _described(sql: LiteralString, system: str) -> tuple[str, Attributes]:
    """The name of a statement's span, and its attributes: the operation and the first table, never a value."""
    operation = sql.split(None, 1)[0].upper()
    attributes: Attributes = {"db.system.name": system, "db.operation.name": operation}
    if (match := _TABLE.search(sql)) is None:
        return operation, attributes
    attributes["db.collection.name"] = match[1]
    return f"{operation} {match[1]}", attributes
