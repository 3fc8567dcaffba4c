"""What every slice may ask of a database, whichever engine answers.

Statements are SQL with `?` for each parameter, kept to what SQLite and PostgreSQL both understand; an engine
that numbers its parameters rewrites them once. Rows are tuples. Callers decide what is one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]
Parameters = Sequence[object]


class Transaction(Protocol):
    """An open transaction. Nothing it did is seen by others, or kept, unless all of it is."""

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        ...

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, if there is one."""
        ...

    async def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement; how many rows it changed."""
        ...


Work = Callable[[Transaction], Awaitable[T]]


class Database(Protocol):
    """A database that is open. Every method raises `DatabaseUnavailable` when it does not answer in time."""

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query that an index answers in microseconds."""
        ...

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of such a query, if there is one."""
        ...

    async def fetch_slow(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query that may be long: off the event loop, `DeadlineExceeded` past the engine's bound."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction of its own and return its result once that is durable.

        `work` awaits nothing but the transaction's own methods, and may be run again from the start by an engine
        whose transaction was lost. What it raises undoes the transaction and comes out here.
        """
        ...

    async def migrate(self) -> list[str]:
        """Apply the migrations that are missing, under a lock; their names."""
        ...

    async def check(self) -> None:
        """Return when the database answers and has every migration; raise `Unavailable` otherwise."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go of every connection."""
        ...
