"""Migrations on PostgreSQL, by one process at a time beside others that serve, and the base of the sequence numbers."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Final

import asyncpg

from muniment.errors import DatabaseUnavailable
from muniment.storage.migrate import LEDGER, Migration, migrations, missing
from muniment.storage.postgres.slot import DRIVER_ERRORS, is_worth_again, reason

if TYPE_CHECKING:
    from muniment.storage.postgres.slot import Connection, Door

# What a migration may take, another process's before it included: an index over a hundred million rows.
MIGRATION_SECONDS_MAX: Final = 3_600.0
# While a change of a table waits for those who read it, all who come later wait behind it. They have two seconds
# (`LOCK_SECONDS_MAX`), so it gives up after half of that, lets them pass, and tries again.
TABLE_WAIT_SECONDS_MAX: Final = 1.0
_PAUSE_SECONDS: Final = 0.2
# Any number, the same in every release: who migrates holds the lock of this name.
_LOCK: Final = 0x6D756E696D656E74
# Tables whose rows are numbered by their transactions.
_NUMBERED: Final = """SELECT quote_ident(c.relname) FROM pg_attrdef d JOIN pg_class c ON c.oid = d.adrelid
    WHERE pg_get_expr(d.adbin, d.adrelid) = 'next_seq()'"""
# An index on a table that has rows. It is built beside writers, which no transaction can do, and stands alone in its
# file (https://www.postgresql.org/docs/current/sql-createindex.html, "Building Indexes Concurrently").
_CONCURRENT: Final = re.compile(r"^CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+(\w+)", re.MULTILINE)


async def migrate(door: Door) -> list[str]:
    """Apply the missing migrations while holding the lock; their names. Raises `DatabaseUnavailable`.

    Each is a transaction of its own: those before one that fails stay, and the next run goes on behind them.
    """
    deadline = time.monotonic() + MIGRATION_SECONDS_MAX
    connection = await door.connect(statement_timeout=_milliseconds(MIGRATION_SECONDS_MAX))
    try:
        await _take_turn(connection, deadline)
        await connection.execute(LEDGER)
        records = await connection.fetch("SELECT name, sha256 FROM schema_migrations")
        pending = missing(migrations("postgres"), {str(name): str(sha256) for name, sha256 in records})
        for migration in pending:
            await _apply(connection, migration, deadline)
        async with connection.transaction():
            await raise_base(connection)
        return [migration.name for migration in pending]
    except DRIVER_ERRORS as error:
        raise DatabaseUnavailable(f"the database cannot be migrated: {reason(error)}: {error}") from error
    finally:
        await connection.close(timeout=1)  # which lets go of the lock


async def _take_turn(connection: Connection, deadline: float) -> None:
    """Hold the lock. One that waited for it inside a statement would be waited for by an index built concurrently."""
    while True:
        ((taken,),) = await connection.fetch("SELECT pg_try_advisory_lock($1)", _LOCK)
        if taken:
            return
        if time.monotonic() > deadline:
            raise DatabaseUnavailable("another process has been migrating the database for too long")
        await asyncio.sleep(_PAUSE_SECONDS)


async def _apply(connection: Connection, migration: Migration, deadline: float) -> None:
    """Apply one, as often as it takes to find its tables free for a moment."""
    index = _CONCURRENT.search(migration.sql)
    if index:
        await connection.execute(f"SET lock_timeout = {_milliseconds(MIGRATION_SECONDS_MAX)}")
        # What an interrupted build has left; one that was finished would be in the ledger.
        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index[1]}", timeout=MIGRATION_SECONDS_MAX)
        await connection.execute(migration.sql, timeout=MIGRATION_SECONDS_MAX)
        await _remember(connection, migration)
        return
    await connection.execute(f"SET lock_timeout = {_milliseconds(TABLE_WAIT_SECONDS_MAX)}")
    while True:
        try:
            async with connection.transaction():
                await connection.execute(migration.sql, timeout=MIGRATION_SECONDS_MAX)
                await _remember(connection, migration)
        except asyncpg.PostgresError as error:
            is_held = isinstance(error, asyncpg.LockNotAvailableError)
            if not (is_held or is_worth_again(error)) or time.monotonic() > deadline:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return


async def _remember(connection: Connection, migration: Migration) -> None:
    await connection.execute(
        "INSERT INTO schema_migrations (name, sha256, applied_at_ms) VALUES ($1, $2, $3)",
        migration.name,
        migration.sha256,
        time.time_ns() // 1_000_000,
    )


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


async def raise_base(connection: Connection) -> None:
    """See to it that new rows are numbered behind all that are there, also those of a restored dump."""
    highest = 0
    for (table,) in await connection.fetch(_NUMBERED):
        ((last,),) = await connection.fetch(f"SELECT coalesce(max(seq), 0) FROM {table}")  # noqa: S608 - a quoted name
        highest = max(highest, int(last) >> 16)
    ((base, current),) = await connection.fetch("SELECT seq_base(), pg_current_xact_id()::text::bigint")
    if highest > base + current:
        sql = f"CREATE OR REPLACE FUNCTION seq_base() RETURNS bigint LANGUAGE sql IMMUTABLE RETURN {highest - current}"
        await connection.execute(sql)
