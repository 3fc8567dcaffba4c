"""The protocols of a database, which both engines implement and all stores use.

Statements are SQL with `?` for each parameter, in the part of SQL that SQLite and PostgreSQL share; the PostgreSQL
engine rewrites each statement once. Rows are tuples. Callers decide what is one transaction.

Both have the SQL function `settled_seq()`: the sequence number below which no more rows will appear. A client that
follows a table gets only the rows below it. All other clients see the rows above it too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, LiteralString, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]
Parameters = Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLimits:
    """The limits of one process on one database; both engines keep them."""

    # The time of one long read, its wait for a reader included, before it is interrupted; clients wait about as long.
    slow_read_seconds_max: float = 5.0
    # Writes in one transaction. Beyond a few hundred the commit is a small part of each, and the first waits for the
    # last.
    writes_per_group_max: int = 256
    # Writes in the queue of a process: about four groups, a tenth of a second of its work.
    writes_waiting_max: int = 1_000
    # The same for urgent writes, with the others: half a second of its work.
    urgent_writes_waiting_max: int = 10_000
    # How long a write may wait for its group to begin; clients wait about as long for an answer.
    write_wait_seconds_max: float = 10.0
    # Writes are refused when the oldest write was late for this long without a break: one slow commit refuses nothing.
    writes_late_seconds_max: float = 0.5


DATABASE_LIMITS: Final = DatabaseLimits()


class Transaction(Protocol):
    """An open transaction: atomic, isolated and durable."""

    @property
    def for_update(self) -> LiteralString:
        """The end of a query that locks its rows against other writers; empty where there is one writer at a time.

        A query that locks several rows needs an ORDER BY that all writers share; otherwise two could deadlock.
        """
        ...

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        ...

    async def fetch_one(self, sql: LiteralString, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, if there is one."""
        ...

    async def execute(self, sql: LiteralString, parameters: Parameters = ()) -> int:
        """Run a statement; the number of rows that it changed."""
        ...


Work = Callable[[Transaction], Awaitable[T]]


class Made(NamedTuple, Generic[T]):
    """What `InsertOnce` makes of the row that it looked up: the result of the write, and the values of the new row."""

    result: T
    # Empty: nothing is to be inserted.
    values: Parameters


class InsertOnce(NamedTuple, Generic[T]):
    """A `Work` that usually looks something up, inserts one row, and ends.

    SQLite runs `work`. PostgreSQL does the same for many writers at once with one query and one INSERT, which is a
    transaction by itself. It runs `work` for a row that was not inserted, because a row with an equal key existed.
    """

    # A query for one row.
    look_up: LiteralString
    parameters: Parameters
    table: LiteralString
    # Of several rows with one value of the first column, which has bytes, one is inserted at a time.
    columns: tuple[LiteralString, ...]
    # None: only `work` can decide.
    make: Callable[[Row], Made[T] | None]
    work: Work[T]

    def __call__(self, transaction: Transaction) -> Awaitable[T]:
        """Run `work`."""
        return self.work(transaction)


class Reader(Protocol):
    """A database, or a replica of it, to read from. Every method raises `DatabaseUnavailable` when it does not answer.

    With replicas, an answer that may be late has its own `Reader` (`Context.list_reader`). A single record, and all
    that decides, is read from the `Database` itself.
    """

    @property
    def plans_as_written(self) -> bool:
        """Whether the engine follows the form of a statement, however many rows it expects.

        Then it makes a list of the rows of a NOT IN once, and merges the parts of a UNION ALL in their order.
        """
        ...

    @property
    def times_differ_ms(self) -> int:
        """How far, in milliseconds, the time of a row may usually be ahead of the time of a row committed later.

        After a wrong clock it may be further ahead (see `storage.dating.times_differ`).
        """
        ...

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query that an index answers in microseconds."""
        ...

    async def fetch_one(self, sql: LiteralString, parameters: Parameters = ()) -> Row | None:
        """The first row of such a query, if there is one."""
        ...

    async def fetch_some(
        self, sql: LiteralString, parameters: Parameters, *, rows_max: int, bytes_max: int
    ) -> tuple[list[Row], int]:
        """The first rows of a query up to the row that fills `bytes_max`, and the UTF-8 length of their records.

        The query has the columns `seq` and `record`, and at most `rows_max` rows, in the order of an index. If the
        length is below `bytes_max`, these are all rows; otherwise there may be more.
        """
        ...

    async def fetch_slow(self, sql: LiteralString, parameters: Parameters = (), *, client: str = "") -> list[Row]:
        """All rows of a query that may take long, off the event loop. Raises `DeadlineExceeded` at the engine's limit.

        `client` is the address of the waiting client, empty for the service itself. A client has one such read at a
        time; its other reads wait, and the wait counts towards the limit.
        """
        ...


class Database(Reader, Protocol):
    """An open database; with replicas, its primary."""

    @property
    def is_shared(self) -> bool:
        """Whether several hosts may use the database: True for PostgreSQL, False for SQLite."""
        ...

    def charge_long_reads(self, owe: Callable[[str, int], object]) -> None:
        """Call `owe` at the end of each long read for a client: its address, and the nanoseconds that the read took."""
        ...

    async def write(self, work: Work[T], *, order: bytes = b"", urgent: bool = False) -> T:
        """Run `work` in a transaction and return its result once the transaction is durable.

        Raises `Overloaded` when too many writes wait, or when they wait for too long. `urgent` work has a far higher
        limit: the end of a consent must not wait until the service is less busy.

        `order` is the key of the row that `work` locks, if it locks only one. An engine that runs many works in one
        transaction sorts them by this key, so that two processes lock rows in the same order and cannot deadlock.

        `work` awaits only the methods of the transaction. An engine whose transaction was lost may run it again from
        the start. An error that it raises undoes its changes, and is raised here.
        """
        ...

    def call_after_commits(self, call: Callable[[], object]) -> None:
        """Call `call` after each commit of this process, in any thread. It must not block."""
        ...

    async def migrate(self) -> list[str]:
        """Apply the missing migrations, under a lock; their names."""
        ...

    async def time_ms(self) -> int | None:
        """The time of the server, in milliseconds since 1970; None for a database without a server."""
        ...

    async def check(self) -> None:
        """Return when the database answers and has every migration; raise `Unavailable` otherwise."""
        ...

    async def check_writes(self) -> None:
        """Return once a write is durable in the database; raise `NotReady` otherwise.

        The check makes a real write, but at most every few seconds: many callers share one outcome.
        """
        ...

    async def until_seen(self) -> None:
        """Return once every service of the database sees all commits of this process."""
        ...

    async def close(self) -> None:
        """Finish the accepted reads and writes, then close every connection."""
        ...
