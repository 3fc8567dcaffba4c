"""Empty a PostgreSQL database of the tests, in milliseconds, over a kept connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Self

import asyncpg

# References are not looked at for a session that says it replays what was checked before. What is left is in its first
# epoch, as a database that was just migrated. Numbers start again, because the last 16 bits of the sequence order the
# rows of one transaction: where they overflow would depend on the tests that ran before.
_EMPTY = """SET session_replication_role = replica;
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public'
    AND tablename NOT IN ('schema_migrations', 'epoch', 'feed') LOOP
    EXECUTE format('DELETE FROM %I', name);
  END LOOP;
  UPDATE epoch SET renewals = 0;
  UPDATE feed SET floor_seq = 0;
  PERFORM setval('row_numbers', 1, false);
END $$"""


async def empty(url: str) -> None:
    """Delete every row of the database at `url`."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_EMPTY)
    finally:
        await connection.close()


# The errors of a session that was ended from outside.
_ENDED = (asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError, asyncpg.InterfaceError)


class Emptying:
    """A session at `url` that deletes every row; a context manager. It reconnects if a test ends it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.Runner()  # a connection belongs to its event loop, and each test has a loop of its own
        self._connection: Any = None

    def __call__(self) -> None:
        """Delete every row."""
        self._loop.run(self._empty())

    async def _empty(self) -> None:
        if self._connection is not None:
            with suppress(*_ENDED):
                await self._connection.execute(_EMPTY)
                return
        self._connection = await asyncpg.connect(self._url)
        await self._connection.execute(_EMPTY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.terminate()
        self._loop.close()
