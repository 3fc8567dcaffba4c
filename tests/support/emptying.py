"""Empty a PostgreSQL database of the tests, and read all of it, in milliseconds, over a kept connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Self, TypeVar

import asyncpg

from feed_checks import check_events
from muniment.service.storage.database import Parameters, Row
from muniment.service.storage.postgres.statements import Statements

T = TypeVar("T")

# What empties a database, as a function of a session: so the statements are planned once, not for each test.
# References are not looked at for a session that says it replays what was checked before. What is left is in its first
# epoch, as a database that was just migrated. Numbers start again, because the last 16 bits of the sequence order the
# rows of one transaction: where they overflow would depend on the tests that ran before. If a table has grown, all are
# truncated, since the rows that were deleted are still looked at.
_PREPARE = """SET session_replication_role = replica;
DO $make$ DECLARE grown text; deletes text; names text; BEGIN
  SELECT string_agg(format('pg_relation_size(%1$L) > 1048576', tablename), ' OR '),
      string_agg(format('DELETE FROM %1$I;', tablename), ' '), string_agg(format('%1$I', tablename), ', ')
    INTO grown, deletes, names
    FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN ('schema_migrations', 'epoch', 'feed');
  EXECUTE format('CREATE FUNCTION pg_temp.empty() RETURNS void LANGUAGE plpgsql AS %L', 'BEGIN
    IF ' || grown || ' THEN TRUNCATE ' || names || '; ELSE ' || deletes || ' END IF;
    UPDATE epoch SET renewals = 0 WHERE renewals <> 0;
    UPDATE feed SET floor_seq = 0 WHERE floor_seq <> 0;
    PERFORM setval(''row_numbers'', 1, false);
  END');
END $make$"""
_EMPTY = "SELECT pg_temp.empty()"
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"


async def empty(url: str) -> None:
    """Delete every row of the database at `url`."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_PREPARE)
        await connection.execute(_EMPTY)
    finally:
        await connection.close()


# The errors of a session that was ended from outside.
_ENDED = (asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError, asyncpg.InterfaceError)


class Emptying:
    """A session at `url` that deletes every row; a context manager. It reconnects if a test ends it.

    It also reads for the checks of each test: its statements are planned already, which those of the application under
    test are not.
    """

    _open: ClassVar[dict[str, Self]] = {}

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.Runner()  # a connection belongs to its event loop, and each test has a loop of its own
        self._connection: Any = None
        self._statements = Statements()

    @classmethod
    def at(cls, url: str) -> Self | None:
        """The session at `url`, if there is one."""
        return cls._open.get(url)

    def __call__(self) -> None:
        """Delete every row."""
        self._loop.run(self._certainly(lambda: self._connection.fetch(_EMPTY)))

    async def check_events(self) -> None:
        """As `feed_checks.check_events`."""
        await self._beside(lambda: check_events(self))

    async def rows(self) -> dict[str, list[Row]]:
        """The rows of all tables."""
        return await self._beside(self._rows)

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """The rows of a statement; for `check_events`."""
        statement, values = self._statements.find(sql, parameters)
        return [tuple(row) for row in await self._connection.fetch(statement.single, *values)]

    async def _rows(self) -> dict[str, list[Row]]:
        names = [name for (name,) in await self.fetch(_TABLES)]
        return {name: await self.fetch(f"SELECT * FROM {name} ORDER BY 1") for name in names}

    async def _beside(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of a work, whose loop runs in a thread while that of the test waits."""
        return await asyncio.to_thread(lambda: self._loop.run(self._certainly(work)))

    async def _certainly(self, work: Callable[[], Awaitable[T]]) -> T:
        if self._connection is not None:
            try:
                return await work()
            except _ENDED:
                self._connection.terminate()
        self._connection = await asyncpg.connect(self._url, statement_cache_size=512)
        await self._connection.execute(_PREPARE)
        return await work()

    def __enter__(self) -> Self:
        self._open[self._url] = self
        return self

    def __exit__(self, *_: object) -> None:
        del self._open[self._url]
        if self._connection is not None:
            self._connection.terminate()
        self._loop.close()
