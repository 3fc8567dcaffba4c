"""Copies a registry from or to PostgreSQL; `open_source` and `open_target` make its two sides for the commands."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

import asyncpg

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage import epoch, registry_copy
from muniment.service.storage.postgres.admin.numbering import raise_numbers
from muniment.service.storage.postgres.connection import Connection
from muniment.service.storage.postgres.driver_errors import DRIVER_ERRORS, error_name
from muniment.service.storage.postgres.slot import Connector
from muniment.service.storage.registry_copy import OTHERS_WRITE, ROWS_PER_BATCH, TABLES, RowRefused, Table

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence

    from muniment.service.storage.database import Row

# The time of one statement: counting a hundred million rows takes minutes. A server that is silent for longer is lost.
STATEMENT_SECONDS_MAX: Final = 600.0
# How long one side may wait for the other. If this process is killed, the server ends its transaction after this time,
# and with it the locks that would stop the next attempt.
IDLE_SECONDS_MAX: Final = 300.0
# Unlike the service, this reads whole tables.
_SESSION: Final = {
    "enable_seqscan": "on",
    "statement_timeout": str(int(STATEMENT_SECONDS_MAX * 1000)),
    "idle_in_transaction_session_timeout": str(int(IDLE_SECONDS_MAX * 1000)),
}
# The server names the row that it refused: `COPY users, line 3, column name`.
_LINE: Final = re.compile(r"^COPY \w+, line (\d+)", re.MULTILINE)
_EVENT_TRIGGERS: Final = """SELECT tgrelid::regclass::text, quote_ident(tgname) FROM pg_trigger
    WHERE NOT tgisinternal AND tgname LIKE '%\\_event'"""
_TABLE_NAMES: Final = ", ".join(table.name for table in TABLES)


class _Connection(Connection, Protocol):
    """The methods of the driver's connection that only copying uses."""

    async def fetch(self, query: str, *values: object, timeout: float | None = None) -> list[Any]:  # noqa: ASYNC109 - the driver's name
        ...

    async def copy_records_to_table(
        self,
        table_name: str,
        *,
        records: list[Row],
        columns: list[str],
        timeout: float,  # noqa: ASYNC109 - the driver's name
    ) -> str:
        """Add rows by COPY."""
        ...


class _Side:
    """One of the two databases, through one connection."""

    engine: str = "postgres"

    def __init__(self, connection: _Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    async def ledger(self) -> dict[str, str]:
        """The applied migrations, name to hash."""
        if not await self._fetch("SELECT 1 WHERE to_regclass('schema_migrations') IS NOT NULL"):
            return {}
        return dict(map(tuple, await self._fetch("SELECT name, sha256 FROM schema_migrations")))

    async def columns(self, table: str) -> list[str]:
        """The names of a table's columns; empty if there is no such table."""
        sql = """SELECT attname FROM pg_attribute
            WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
        return [name for (name,) in await self._fetch(sql, table)]

    async def count(self, table: str) -> int:
        """The number of rows."""
        ((count,),) = await self._fetch(f"SELECT count(*) FROM {table}")  # noqa: S608 - a table name from `TABLES`
        return count

    async def epoch(self) -> Row | None:
        """The number of the epoch, and how many epochs came before it; None if the row is missing."""
        return next((tuple(row) for row in await self._fetch(epoch.READ)), None)

    async def _fetch(self, sql: str, *values: object) -> list[Any]:
        with _failures(self._name):
            return await self._connection.fetch(sql, *values, timeout=STATEMENT_SECONDS_MAX)

    async def _execute(self, sql: str) -> None:
        with _failures(self._name):
            await self._connection.execute(sql, timeout=STATEMENT_SECONDS_MAX)


class _Source(_Side):
    """The database to read, in one transaction; it may be a replica."""

    def __init__(self, connection: _Connection, name: str) -> None:
        super().__init__(connection, name)
        self._cursors = 0

    async def begin(self) -> None:
        """Begin the transaction. All its statements see the snapshot of the first one."""
        await self._execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await self._fetch("SELECT 1")

    async def rows(self, table: Table, columns: Sequence[str]) -> AsyncGenerator[list[Row]]:
        """All rows in the order of their key."""
        self._cursors += 1
        name = f"rows_{self._cursors}"  # unique, because its FETCH stays prepared with these columns
        await self._execute(
            f"DECLARE {name} NO SCROLL CURSOR FOR SELECT {', '.join(columns)} FROM {table.name} ORDER BY {table.order}"  # noqa: S608 - names from `TABLES` and the catalogue
        )
        while records := await self._fetch(f"FETCH {ROWS_PER_BATCH} FROM {name}"):
            yield [tuple(record) for record in records]
        await self._execute(f"CLOSE {name}")

    async def has_changed(self) -> bool:
        """End the transaction; whether any row was changed, removed or added since it began."""
        before = await self._fingerprints()
        await self._execute("ROLLBACK")
        return await self._fingerprints() != before

    async def _fingerprints(self) -> list[tuple[object, ...]]:
        """The number of rows of each table, and the sum of their hashes, which does not depend on their order."""
        return [
            tuple(*await self._fetch(f"SELECT count(*), sum(hash_record_extended(t, 0)::numeric) FROM {table.name} t"))  # noqa: S608 - a table name from `TABLES`
            for table in TABLES
        ]


class _Target(_Side):
    """The database to fill, in one transaction."""

    async def begin(self) -> None:
        """Begin the transaction, and lock out other writers."""
        await self._execute("BEGIN")
        try:
            await self._execute(f"LOCK TABLE {_TABLE_NAMES} IN SHARE ROW EXCLUSIVE MODE")
            await self._switch_events("DISABLE")
        except DatabaseUnavailable as refusal:
            if isinstance(refusal.__cause__, asyncpg.LockNotAvailableError):
                raise DatabaseUnavailable(OTHERS_WRITE) from refusal
            raise

    async def _switch_events(self, switch: Literal["DISABLE", "ENABLE"]) -> None:
        """Switch the triggers that store events, because events are copied too."""
        for table, trigger in await self._fetch(_EVENT_TRIGGERS):
            await self._execute(f"ALTER TABLE {table} {switch} TRIGGER {trigger}")

    async def has_numbered(self) -> bool:
        """Whether rows were ever numbered here. A sequence remembers that even if their transactions were undone."""
        ((is_called,),) = await self._fetch("SELECT is_called FROM row_numbers")
        return is_called

    async def put_epoch(self, number: int, renewals: int) -> None:
        """Set the epoch to `number`, after `renewals` others."""
        await self._fetch(epoch.PUT.replace("?", "$1", 1).replace("?", "$2", 1), number, renewals)

    async def add(self, table: str, columns: Sequence[str], rows: list[Row]) -> None:
        """Add rows."""
        with _failures(self._name):
            try:
                await self._connection.copy_records_to_table(
                    table, records=rows, columns=list(columns), timeout=STATEMENT_SECONDS_MAX
                )
            except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
                line = _LINE.search(str(getattr(error, "context", None) or ""))
                raise RowRefused(int(line[1]) - 1 if line else None, _refusal_text(error)) from error

    async def commit(self, times_differ_ms: int) -> None:
        """Commit the rows, with statistics for the planner. New rows get higher numbers."""
        del times_differ_ms  # only SQLite stores it; this engine always allows for more (`TIMES_DIFFER_MS_MAX`)
        await self._execute(registry_copy.PUT_FLOOR)
        await self._execute(registry_copy.MOVE_LOG)
        await self._switch_events("ENABLE")
        await self._execute(f"ANALYZE {_TABLE_NAMES}")
        with _failures(self._name):
            await raise_numbers(self._connection)
        try:
            await self._execute("COMMIT")
        except DatabaseUnavailable as refusal:
            raise DatabaseUnavailable(
                f"{refusal.detail}; it was lost while it committed: TO is complete or empty"
            ) from refusal


def _refusal_text(error: asyncpg.PostgresError) -> str:
    """The server's reason, without the values of the row. A missing reference is shown: it is only a number."""
    detail: object = getattr(error, "detail", None)
    is_reference = isinstance(error, asyncpg.ForeignKeyViolationError)
    return f"{error.args[0]} ({detail})" if is_reference else str(error.args[0])


@asynccontextmanager
async def source(url: str, name: str) -> AsyncGenerator[_Source]:
    """The database at `url`, to read; errors call it `name`."""
    async with _connected(url, name) as connection:
        side = _Source(connection, name)
        await side.begin()
        yield side


@asynccontextmanager
async def target(url: str) -> AsyncGenerator[_Target]:
    """The database at `url`, to fill; an uncommitted transaction is undone at the end of the block."""
    async with _connected(url, "TO") as connection:
        side = _Target(connection, "TO")
        await side.begin()
        yield side


@asynccontextmanager
async def _connected(url: str, name: str) -> AsyncGenerator[_Connection]:
    """A connection, dropped at the end of the block; the server then undoes an uncommitted transaction."""
    try:
        connection = cast("_Connection", await Connector(url).connect(**_SESSION))
    except DatabaseUnavailable as refusal:
        raise DatabaseUnavailable(f"{name}: {refusal.detail}") from refusal
    except ValueError as refusal:
        raise ValueError(f"{name}: {refusal}") from refusal
    try:
        yield connection
    finally:
        connection.terminate()


@contextmanager
def _failures(name: str) -> Generator[None]:
    """Raise an error of the server as its class name only: its message has values and hosts."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise DatabaseUnavailable(f"{name} fails: {error_name(error)}") from error
