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

    @property
    def for_update(self) -> str:
        """What a query ends in that keeps its rows from other writers; nothing where there is one writer at a time.

        Who takes several rows takes them in an order that all share (`ORDER BY`), or two could wait for each other.
        """
        ...

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


class Reads(Protocol):
    """What may be read of a database, from wherever. Every method raises `DatabaseUnavailable` when nobody answers.

    Where replicas are configured, those who only show what is published read through one of these that is theirs
    alone (`Context.reads`). Whoever decides something by what they read asks the `Database` itself: it is never late.
    """

    @property
    def settled_before(self) -> str:
        """SQL for the sequence number below which no row will appear any more; nothing where that is every number.

        Who follows a table asks for rows below it. Rows at and above it are there, and are read in any other way.
        """
        ...

    @property
    def merges_unions(self) -> bool:
        """Whether a UNION ALL with an order and a limit is read from the indexes of its parts only as far as it goes.

        Where it is not, each part has a limit of its own.
        """
        ...

    @property
    def rows_counted(self) -> dict[str, tuple[int, int]]:
        """What `storage.row_counts` has counted: of a table one `seq`, and how many rows have that or a lower one.

        It stays true of tables to which rows are only added, behind those that are settled.
        """
        ...

    @property
    def times_differ_ms(self) -> int:
        """By how much the time in a row may usually be ahead of the time in a later one, in the order of commits.

        By how much it may be indeed, after clocks were wrong, `storage.dating.times_differ` says.
        """
        ...

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query that an index answers in microseconds."""
        ...

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of such a query, if there is one: a replica that has none is not believed.

        So this is for what is asked by its name. Where no row is the usual answer, `fetch` spares the primary.
        """
        ...

    async def fetch_some(
        self, sql: str, parameters: Parameters, *, rows_max: int, bytes_max: int
    ) -> tuple[list[Row], int]:
        """The first rows of a query, up to the one whose text fills `bytes_max`; and the bytes of their texts in UTF-8.

        The query has the columns `seq` and `record`, and at most `rows_max` rows, in an order that an index has. When
        the bytes are fewer than `bytes_max`, these are all rows; else there may be more.
        """
        ...

    async def fetch_slow(self, sql: str, parameters: Parameters = (), *, client: str = "") -> list[Row]:
        """All rows of a query that may be long: off the event loop, `DeadlineExceeded` past the engine's bound.

        `client` is the address of whoever waits for it, empty for the service itself. A client has one such read at a
        time; its others wait, and the wait counts.
        """
        ...


class Database(Reads, Protocol):
    """A database that is open; with replicas, its primary."""

    async def write(self, work: Work[T], *, order: bytes = b"", urgent: bool = False) -> T:
        """Run `work` in a transaction of its own and return its result once that is durable.

        Raises `Overloaded` when too many writes wait already, or for too long. `urgent` work is not refused for that:
        what ends a consent must not wait for a quieter moment.

        `order` is the key of what `work` locks, if it locks one thing: an engine that gives a transaction to the work
        of many callers does it in the order of these keys, so that no two processes wait for each other crosswise.

        `work` awaits nothing but the transaction's own methods, and may be run again from the start by an engine
        whose transaction was lost. What it raises undoes the transaction and comes out here.
        """
        ...

    async def migrate(self) -> list[str]:
        """Apply the migrations that are missing, under a lock; their names."""
        ...

    async def time_ms(self) -> int | None:
        """The time of the server, in milliseconds since 1970; None where the database is no server."""
        ...

    async def check(self) -> None:
        """Return when the database answers and has every migration; raise `Unavailable` otherwise."""
        ...

    async def check_writes(self) -> None:
        """Return when a write would be taken, and found after a restart; raise `NotReady` otherwise.

        It is tried out, but not more often than every few seconds, however many ask.
        """
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go of every connection."""
        ...
