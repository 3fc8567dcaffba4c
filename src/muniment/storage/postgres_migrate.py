"""Migrations on PostgreSQL, by one process at a time, and the base of the sequence numbers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from muniment.errors import DatabaseUnavailable
from muniment.storage.migrate import LEDGER, migrations, missing
from muniment.storage.postgres_line import DRIVER_ERRORS, reason

if TYPE_CHECKING:
    from muniment.storage.postgres_line import Connection, Door

# How long a process waits for another's migrations, which may rebuild an index over every row.
MIGRATION_SECONDS_MAX: Final = 600.0
# Any number, the same in every release: who migrates holds the lock of this name.
_LOCK: Final = 0x6D756E696D656E74
# Tables whose rows are numbered by their transactions.
_NUMBERED: Final = """SELECT quote_ident(c.relname) FROM pg_attrdef d JOIN pg_class c ON c.oid = d.adrelid
    WHERE pg_get_expr(d.adbin, d.adrelid) = 'next_seq()'"""


async def migrate(door: Door) -> list[str]:
    """Apply the missing migrations while holding the lock; their names. Raises `DatabaseUnavailable`."""
    bound = str(int(MIGRATION_SECONDS_MAX * 1000))
    connection = await door.connect(statement_timeout=bound, lock_timeout=bound)
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK, timeout=MIGRATION_SECONDS_MAX)
            applied = await _apply_missing(connection)
            await _raise_base(connection)
            return applied
    except DRIVER_ERRORS as error:
        raise DatabaseUnavailable(f"the database cannot be migrated: {reason(error)}: {error}") from error
    finally:
        await connection.close(timeout=1)


async def _apply_missing(connection: Connection) -> list[str]:
    await connection.execute(LEDGER)
    records = await connection.fetch("SELECT name, sha256 FROM schema_migrations")
    pending = missing(migrations("postgres"), {str(name): str(sha256) for name, sha256 in records})
    for migration in pending:
        await connection.execute(migration.sql, timeout=MIGRATION_SECONDS_MAX)
        await connection.execute(
            "INSERT INTO schema_migrations (name, sha256, applied_at_ms) VALUES ($1, $2, $3)",
            migration.name,
            migration.sha256,
            time.time_ns() // 1_000_000,
        )
    return [migration.name for migration in pending]


async def _raise_base(connection: Connection) -> None:
    """See to it that new rows are numbered behind all that are there, also those of a restored dump."""
    highest = 0
    for (table,) in await connection.fetch(_NUMBERED):
        ((last,),) = await connection.fetch(f"SELECT coalesce(max(seq), 0) FROM {table}")  # noqa: S608 - a quoted name
        highest = max(highest, int(last) >> 16)
    ((base, current),) = await connection.fetch("SELECT seq_base(), pg_current_xact_id()::text::bigint")
    if highest > base + current:
        sql = f"CREATE OR REPLACE FUNCTION seq_base() RETURNS bigint LANGUAGE sql IMMUTABLE RETURN {highest - current}"
        await connection.execute(sql)
