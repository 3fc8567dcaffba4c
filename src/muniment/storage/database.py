"""The protocols of a database, which both engines implement and all stores use.

Statements are SQL with `?` for each parameter, in the part of SQL that SQLite and PostgreSQL share; an engine that
numbers its parameters rewrites each statement once. Rows are tuples. Callers decide what is one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]
Parameters = Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLimits:
    """The limits of one process on one database; both engines keep them."""

    # The time of one long read, its wait for a reader included, before it is interrupted: as long as a client waits.
    slow_read_seconds_max: float = 5.0
    # Writes in one transaction. Beyond a few hundred the commit is a small part of each, and the first waits for the
    # last.
    writes_per_group_max: int = 256
    # Writes in the queue of a process: about four groups, a tenth of a second of its work.
    writes_waiting_max: int = 1_000
    # The same for urgent writes, with the others: half a second of its work.
    urgent_writes_waiting_max: int = 10_000
    # How long a write may wait for its group to begin: as long as a client waits for an answer.
    write_wait_seconds_max: float = 10.0


DATABASE_LIMITS: Final = DatabaseLimits()


class Transaction(Protocol):
    """An open transaction. Others see all of its changes or none, and all of them are kept or none."""

    @property
    def for_update(self) -> str:
        """The end of a query that locks its rows against other writers; empty where there is one writer at a time.

        A query that locks several rows has an ORDER BY that all writers share, or two could wait for each other.
        """
        ...

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        ...

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, if there is one."""
        ...

    async def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement; the number of rows that it changed."""
        ...

    async def add_last(self, sql: str, parameters: Parameters = ()) -> bool:
        """Add one row by an `INSERT … ON CONFLICT DO NOTHING`; whether it went in.

        The caller promises that the work ends if the row went in: it then returns, without an error and without
        another statement. So an engine need not begin a transaction for a work that has only read before. If the row
        was there, the work may go on, or the engine runs it again from the start.
        """
        ...


Work = Callable[[Transaction], Awaitable[T]]


class Reads(Protocol):
    """A database, or a replica of it, to read from. Every method raises `DatabaseUnavailable` when it does not answer.

    With replicas, a request that only shows published records reads from a `Reads` of its own (`Context.reads`). Code
    that decides something by a row reads from the `Database` itself, which is never behind.
    """

    @property
    def visible_before(self) -> str:
        """SQL for the sequence number below which all rows are visible for good; empty where every row is.

        A reader that follows a table asks for the rows below it. All other readers see the rows above it too.
        """
        ...

    @property
    def merges_unions(self) -> bool:
        """Whether the engine reads a UNION ALL with an order and a limit from the indexes of its parts up to the limit.

        If not, each part needs a limit of its own.
        """
        ...

    @property
    def rows_counted(self) -> dict[str, tuple[int, int]]:
        """The counts of `storage.row_counts`: for a table one `seq`, and the number of rows up to it.

        A count stays right, because rows are only added to these tables, after the rows that were visible.
        """
        ...

    @property
    def times_differ_ms(self) -> int:
        """By how many milliseconds the time of a row is usually at most ahead of that of a row committed later.

        After a clock was wrong it may be more; `storage.dating.times_differ` knows how much.
        """
        ...

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query that an index answers in microseconds."""
        ...

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of such a query, if there is one. If a replica has none, the primary is asked too.

        So use this for a row that is usually there, and `fetch` for one that usually is not.
        """
        ...

    async def fetch_some(
        self, sql: str, parameters: Parameters, *, rows_max: int, bytes_max: int
    ) -> tuple[list[Row], int]:
        """The first rows of a query up to the row that fills `bytes_max`, and the UTF-8 bytes of their records.

        The query has the columns `seq` and `record`, and at most `rows_max` rows, in the order of an index. If the
        bytes are fewer than `bytes_max`, these are all rows; otherwise there may be more.
        """
        ...

    async def fetch_slow(self, sql: str, parameters: Parameters = (), *, client: str = "") -> list[Row]:
        """All rows of a query that may be long, off the event loop. Raises `DeadlineExceeded` past the engine's bound.

        `client` is the address of the client that waits, empty for the service itself. A client has one such read at a
        time; its others wait, and the wait counts towards the bound.
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
