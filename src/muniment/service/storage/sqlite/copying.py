"""Copies a registry from or to SQLite; `open_source` and `open_target` make its two sides for the commands."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing, contextmanager
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage import epoch, registry_copy
from muniment.service.storage.registry_copy import OTHERS_WRITE, ROWS_PER_BATCH, RowRefused, Table, named
from muniment.service.storage.sqlite.connection import connect
from muniment.service.storage.sqlite.jobs import is_failure
from muniment.service.storage.sqlite.revision import refuse_another_revision

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
    from pathlib import Path

    from muniment.service.storage.database import Row

# The page cache while the file is filled. Index entries go to random pages; a page that does not fit into the cache is
# written and read again. The indexes of a million triggers take some 200 MB.
CACHE_KIBIBYTES: Final = 256 * 1024
# A signed number of 32 bits (https://sqlite.org/pragma.html#pragma_user_version): as milliseconds, 24 days.
USER_VERSION_MAX: Final = 2**31 - 1


class _Side:
    """One of the two files, through one connection."""

    engine: str = "sqlite"

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    async def ledger(self) -> dict[str, str]:
        """The applied migrations, name to hash."""
        with self._failures("schema_migrations"):
            if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'").fetchall():
                return {}
            return dict(self._connection.execute("SELECT name, sha256 FROM schema_migrations").fetchall())

    async def columns(self, table: str) -> list[str]:
        """The names of a table's columns; empty if there is no such table."""
        with self._failures(table):
            return [name for _, name, *_ in self._connection.execute(f"PRAGMA table_info({table})").fetchall()]

    async def count(self, table: str) -> int:
        """The number of rows."""
        with self._failures(table):
            ((count,),) = self._connection.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608 - a table name from `TABLES`
            return count

    async def epoch(self) -> Row | None:
        """The number of the epoch, and how many epochs came before it; None if the row is missing."""
        with self._failures("epoch"):
            return self._connection.execute(epoch.READ).fetchone()

    @contextmanager
    def _failures(self, table: str) -> Generator[None]:
        """Raise an error of the driver as its name only: its message may have values."""
        try:
            yield
        except sqlite3.Error as error:
            raise _failed(f"{self._name} fails at {table}", error) from error


class _Source(_Side):
    """The file to read, in one transaction."""

    def __init__(self, connection: sqlite3.Connection, watch: sqlite3.Connection, name: str) -> None:
        super().__init__(connection, name)
        self._watch = watch
        self._version = self._data_version()
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # the first read begins the snapshot

    async def rows(self, table: Table, columns: Sequence[str]) -> AsyncGenerator[list[Row]]:
        """All rows in the order of their key."""
        with self._failures(table.name):
            sql = f"SELECT {', '.join(columns)} FROM {table.name} ORDER BY {table.order}"  # noqa: S608 - names from `TABLES` and the catalogue
            cursor = self._connection.execute(sql)
        while True:
            try:
                rows = cursor.fetchmany(ROWS_PER_BATCH)
            except sqlite3.Error as error:
                if undecodable := self._undecodable(table, columns):
                    raise ValueError(
                        f"{undecodable}: this row of FROM has text that is not UTF-8; TO was rolled back"
                    ) from error
                raise _failed(f"FROM fails at {table.name}", error) from error
            if not rows:
                return
            yield rows

    def _undecodable(self, table: Table, columns: Sequence[str]) -> str | None:
        """The name of the first row with text that is not UTF-8, if any; SQLite does not check the encoding."""
        others = ", ".join(column for column in columns if column not in table.key)
        sql = f"SELECT {table.order}, {others or 'NULL'} FROM {table.name} ORDER BY {table.order}"  # noqa: S608 - names from `TABLES` and the catalogue
        wrong: list[bytes] = []

        def text(raw: bytes) -> str:
            try:
                return raw.decode()
            except UnicodeDecodeError:
                wrong.append(raw)
                return raw.decode(errors="backslashreplace")

        before, self._connection.text_factory = self._connection.text_factory, text
        try:
            for row in self._connection.execute(sql):
                if wrong:
                    return named(table, row[: len(table.key)])
        except sqlite3.Error:
            return None
        finally:
            self._connection.text_factory = before
        return None

    async def has_changed(self) -> bool:
        """End the snapshot; whether any process has committed since it began."""
        with self._failures("its end"):
            self._connection.execute("ROLLBACK")
            return self._data_version() != self._version

    def _data_version(self) -> int:
        """A number that changes with every commit of others (https://sqlite.org/pragma.html#pragma_data_version)."""
        (version,) = self._watch.execute("PRAGMA data_version").fetchone()
        return version


class _Target(_Side):
    """The file to fill, in one transaction."""

    def __init__(self, connection: sqlite3.Connection, triggers: list[str]) -> None:
        super().__init__(connection, "TO")
        self._triggers = triggers

    async def has_numbered(self) -> bool:
        """Whether rows were ever numbered here: SQLite remembers the highest number of each table."""
        with self._failures("sqlite_sequence"):
            return bool(self._connection.execute("SELECT 1 FROM sqlite_sequence WHERE seq > 0 LIMIT 1").fetchall())

    async def put_epoch(self, number: int, renewals: int) -> None:
        """Set the epoch to `number`, after `renewals` others."""
        with self._failures("epoch"):
            self._connection.execute(epoch.PUT, (number, renewals))

    async def add(self, table: str, columns: Sequence[str], rows: list[Row]) -> None:
        """Add rows."""
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - names from `TABLES` and the catalogue
        counted_rows = _CountedRows(rows)
        try:
            self._connection.executemany(sql, iter(counted_rows))
        except sqlite3.Error as error:
            if isinstance(error, sqlite3.DatabaseError) and is_failure(error):
                raise _failed(f"TO fails at {table}", error) from error
            raise RowRefused(counted_rows.last, str(error)) from error

    async def commit(self, times_differ_ms: int) -> None:
        """Commit the rows. New rows get higher numbers, because SQLite remembers the highest one."""
        with self._failures("its end"):
            # For a number that is too large, SQLite stores 0 without an error.
            self._connection.execute(f"PRAGMA user_version = {min(times_differ_ms, USER_VERSION_MAX):d}")
            self._connection.execute(registry_copy.PUT_FLOOR)
            self._connection.execute(registry_copy.MOVE_LOG)
            for statement in self._triggers:
                self._connection.execute(statement)
            self._connection.execute("COMMIT")


class _CountedRows:
    """Iterates over rows; `last` is the index of the last row that the driver took."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self.last = -1

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.last += 1
            yield row


@asynccontextmanager
async def source(path: Path, name: str) -> AsyncGenerator[_Source]:
    """The file at `path`, to read; errors call it `name`.

    Raises `ValueError` if it does not exist, and `AnotherRevision`.
    """
    url = _url(path, name)
    refuse_another_revision(path)
    try:
        with (
            closing(sqlite3.connect(url, uri=True, isolation_level=None)) as connection,
            closing(sqlite3.connect(url, uri=True, isolation_level=None)) as watch,
        ):
            for each in (connection, watch):
                each.execute("PRAGMA query_only=ON")
            yield _Source(connection, watch, name)
    except sqlite3.Error as error:
        raise _failed(f"{name} cannot be read", error) from error


@asynccontextmanager
async def target(path: Path) -> AsyncGenerator[_Target]:
    """The file at `path`, to fill; an uncommitted transaction is undone at the end of the block.

    Raises `AnotherRevision`.
    """
    refuse_another_revision(path)
    try:
        with closing(connect(path)) as connection:
            connection.execute(f"PRAGMA cache_size=-{CACHE_KIBIBYTES}")
            _begin(connection)
            yield _Target(connection, _without_triggers(connection))
    except sqlite3.Error as error:
        raise _failed("TO cannot be written", error) from error


def _without_triggers(connection: sqlite3.Connection) -> list[str]:
    """Drop the triggers that store events, because events are copied too; the statements that make them again."""
    sql = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name GLOB '*_event'"
    rows = connection.execute(sql).fetchall()
    for name, _ in rows:
        connection.execute(f"DROP TRIGGER {name}")
    return [statement for _, statement in rows]


def _begin(connection: sqlite3.Connection) -> None:
    """Begin a transaction, and lock out other writers."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise DatabaseUnavailable(OTHERS_WRITE) from error
        raise


def _url(path: Path, name: str) -> str:
    """The URL of a file that must exist. In WAL mode even a reader needs to make files next to it (`mode=rw`)."""
    if not path.is_file():
        raise ValueError(f"{name}: there is no database at {path}")
    return f"{path.absolute().as_uri()}?mode=rw"  # `as_uri` also takes a name that is not UTF-8


def _failed(what: str, error: sqlite3.Error) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"{what}: {getattr(error, 'sqlite_errorname', type(error).__name__)}")
