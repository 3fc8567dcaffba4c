"""A database whose queries and commits are spans of the requests that wait for them. Used only when traces are on."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, LiteralString, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.http.request import Request
    from muniment.storage.database import Database, Parameters, Reader, Row, Work
    from muniment.tracing.tracer import Attributes, Tracer

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

    @property
    def visible_before(self) -> LiteralString:
        """That of the reader."""
        return self._reader.visible_before

    @property
    def merges_unions(self) -> bool:
        """That of the reader."""
        return self._reader.merges_unions

    @property
    def rows_counted(self) -> dict[str, tuple[int, int]]:
        """That of the reader."""
        return self._reader.rows_counted

    @property
    def times_differ_ms(self) -> int:
        """That of the reader."""
        return self._reader.times_differ_ms

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

    def __init__(self, database: Database, tracer: Tracer, system: str) -> None:
        """`system` as for `TracedReader`."""
        super().__init__(database, tracer, system)
        self._database = database

    async def write(self, work: Work[T], *, order: bytes = b"", urgent: bool = False) -> T:
        """Run `work`; its result once the transaction is durable."""
        with self._tracer.child("COMMIT", {"db.system.name": self._system, "db.operation.name": "COMMIT"}):
            return await self._database.write(work, order=order, urgent=urgent)

    def charge_long_reads(self, owe: Callable[[str, int], object]) -> None:
        """Call `owe` at the end of each long read for a client."""
        self._database.charge_long_reads(owe)

    def call_after_commits(self, call: Callable[[], object]) -> None:
        """Have `call` called after each commit."""
        self._database.call_after_commits(call)

    async def migrate(self) -> list[str]:
        """Apply the missing migrations."""
        return await self._database.migrate()

    async def time_ms(self) -> int | None:
        """The time of the server."""
        return await self._database.time_ms()

    async def check(self) -> None:
        """Return when the database answers; raise `Unavailable` otherwise."""
        await self._database.check()

    async def check_writes(self) -> None:
        """Return when the database takes writes; raise `NotReady` otherwise."""
        await self._database.check_writes()

    async def close(self) -> None:
        """Close every connection."""
        await self._database.close()


def traced(
    database: Database, reader_for: Callable[[Request], Reader], tracer: Tracer
) -> tuple[Database, Callable[[Request], Reader]]:
    """The database and the choice of readers, with spans."""
    system = "sqlite" if database.merges_unions else "postgresql"
    whole = TracedDatabase(database, tracer, system)

    def traced_reader(request: Request) -> Reader:
        reader = reader_for(request)
        return whole if reader is database else TracedReader(reader, tracer, system)

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
