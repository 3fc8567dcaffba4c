"""Applies migrations on PostgreSQL, and raises the sequence numbers above those of a restored dump; `engine` calls it.

One process at a time migrates, while other processes serve clients.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import asyncpg

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.migrate import LEDGER, Migration, migrations, missing
from muniment.service.storage.postgres.admin.numbering import raise_numbers
from muniment.service.storage.postgres.driver_errors import DRIVER_ERRORS, error_name, is_retryable

if TYPE_CHECKING:
    from muniment.service.storage.postgres.connection import Connection
    from muniment.service.storage.postgres.slot import Connector

# The time of a migration, the wait for another migrating process included: an index over a hundred million rows takes
# that long.
MIGRATION_SECONDS_MAX: Final = 3_600.0
# While a change of a table waits for its readers, all later readers wait for it. Readers give up after two seconds
# (`LOCK_SECONDS_MAX`), so the change gives up after half of that, lets the readers pass, and tries again.
TABLE_WAIT_SECONDS_MAX: Final = 1.0
_PAUSE_SECONDS: Final = 0.2
# The number of the lock that a migrating process holds: arbitrary, but the same in every release.
_LOCK_NAME: Final = 0x6D756E696D656E74
# An index on a table with rows is built while other processes write. This is impossible inside a transaction, so it has
# a migration file to itself (https://www.postgresql.org/docs/current/sql-createindex.html, "Building Indexes
# Concurrently").
_CONCURRENT_INDEX: Final = re.compile(r"^CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+(\w+)", re.MULTILINE)


async def migrate(connector: Connector, *, seconds_max: float = MIGRATION_SECONDS_MAX) -> list[str]:
    """Apply the missing migrations under the lock; their names. Raises `DatabaseUnavailable`.

    `seconds_max` is the time of all, with the wait for another process that migrates.

    Each migration is a separate transaction. When one fails, the earlier ones stay, and the next run continues with it.
    """
    deadline = time.monotonic() + seconds_max
    connection = await connector.connect(statement_timeout=_milliseconds(seconds_max))
    try:
        await _take_lock(connection, deadline)
        await connection.execute(LEDGER)
        records = await connection.fetch("SELECT name, sha256 FROM schema_migrations")
        pending = missing(migrations("postgres"), {str(name): str(sha256) for name, sha256 in records})
        for migration in pending:
            await _apply(connection, migration, deadline)
        async with connection.transaction():
            await raise_numbers(connection)
        return [migration.name for migration in pending]
    except DRIVER_ERRORS as error:
        raise DatabaseUnavailable(f"the database cannot be migrated: {error_name(error)}: {error}") from error
    finally:
        with suppress(TimeoutError):  # the driver has closed the connection anyway
            await connection.close(timeout=1)  # the server releases the lock


async def _take_lock(connection: Connection, deadline: float) -> None:
    """Try to take the lock until it is free. A statement that waited for it would block a concurrent index build."""
    while True:
        ((is_taken,),) = await connection.fetch("SELECT pg_try_advisory_lock($1)", _LOCK_NAME)
        if is_taken:
            return
        if time.monotonic() > deadline:
            raise DatabaseUnavailable("another process has been migrating the database for too long")
        await asyncio.sleep(_PAUSE_SECONDS)


async def _apply(connection: Connection, migration: Migration, deadline: float) -> None:
    """Apply one migration."""
    if index := _CONCURRENT_INDEX.search(migration.sql):
        await connection.execute(f"SET lock_timeout = {_milliseconds(MIGRATION_SECONDS_MAX)}")
        # An interrupted build leaves an invalid index; a finished one would be in the ledger.
        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index[1]}", timeout=MIGRATION_SECONDS_MAX)
        await connection.execute(migration.sql, timeout=MIGRATION_SECONDS_MAX)
        await _add_to_ledger(connection, migration)
    else:
        await _apply_at_once(connection, migration, deadline)


async def _apply_at_once(connection: Connection, migration: Migration, deadline: float) -> None:
    """Apply a migration in one transaction, and try again while its tables are locked."""
    await connection.execute(f"SET lock_timeout = {_milliseconds(TABLE_WAIT_SECONDS_MAX)}")
    while True:
        try:
            async with connection.transaction():
                await connection.execute(migration.sql, timeout=MIGRATION_SECONDS_MAX)
                await _add_to_ledger(connection, migration)
        except asyncpg.PostgresError as error:
            is_held = isinstance(error, asyncpg.LockNotAvailableError)
            if not (is_held or is_retryable(error)) or time.monotonic() > deadline:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return


async def _add_to_ledger(connection: Connection, migration: Migration) -> None:
    await connection.execute(
        "INSERT INTO schema_migrations (name, sha256, applied_at_ms) VALUES ($1, $2, $3)",
        migration.name,
        migration.sha256,
        time.time_ns() // 1_000_000,
    )


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))
