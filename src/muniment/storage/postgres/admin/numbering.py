"""The two ways to number rows in the order of commits; `migrate`, `copying` and `muniment sequence` call this.

`transactions` makes a number of the transaction's own; a follower sees the rows below the oldest running transaction.
`sequencer` counts under a lock that each writer holds until its commit; a follower sees every committed row. The
functions `next_seq()` and `settled_seq()` of the database decide, so all processes number in the same way, also those
of another release (migrations 0001 and 0009, decision 0041).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import asyncpg

from muniment.errors import DatabaseUnavailable
from muniment.storage.postgres.driver_errors import DRIVER_ERRORS, error_name, is_retryable
from muniment.storage.postgres.slot import Connector

if TYPE_CHECKING:
    from muniment.storage.postgres.connection import Connection

Way: TypeAlias = Literal["transactions", "sequencer"]

# How long a change of the way tries to find a moment without a running statement on the numbered tables.
CHANGE_SECONDS_MAX: Final = 60.0
# New statements wait behind a change that waits for running ones. They give up after two seconds (`LOCK_SECONDS_MAX`).
# So the change gives up first; also before the server looks for deadlocks (after a second), which could end a writer.
_TABLE_WAIT: Final = "500"
_PAUSE_SECONDS: Final = 0.2
_BUSY: Final = (
    "the tables are in use all the time, by a dump or a long transaction: nothing was changed; try again later"
)
# Tables that number their rows, in the order in which writers use them: by age.
_NUMBERED_TABLES: Final = """SELECT quote_ident(c.relname) FROM pg_attrdef d JOIN pg_class c ON c.oid = d.adrelid
    WHERE pg_get_expr(d.adbin, d.adrelid) = 'next_seq()' ORDER BY c.oid"""
# Higher than every number that a transaction so far can have made.
_ABOVE_TRANSACTIONS: Final = "SELECT (seq_base() + pg_snapshot_xmax(pg_current_snapshot())::text::bigint) << 16"
# An unused sequence stays unused: `copying` asks whether the registry ever numbered a row.
_RAISE_COUNTER: Final = """SELECT setval('row_numbers', $1::bigint + 1, is_called) FROM row_numbers
    WHERE last_value <= $1::bigint"""
# STABLE, because prepared plans keep the value of an IMMUTABLE function after it was replaced.
_BASE: Final = "CREATE OR REPLACE FUNCTION seq_base() RETURNS bigint LANGUAGE sql STABLE RETURN {}"
_DECISION: Final = "CREATE OR REPLACE FUNCTION uses_sequencer() RETURNS boolean LANGUAGE sql STABLE RETURN {}"


class Numbering:
    """How the registry at one URL numbers its rows."""

    def __init__(self, url: str) -> None:
        """Connect for each call."""
        self._connector = Connector(url)

    async def way(self) -> Way:
        """The way in use. Raises `DatabaseUnavailable`."""
        connection = await self._connector.connect()
        try:
            return await _way(connection)
        except DRIVER_ERRORS as error:
            raise _failure(error) from error
        finally:
            connection.terminate()

    async def use(self, way: Way, *, seconds_max: float = CHANGE_SECONDS_MAX) -> bool:
        """Number rows in this way from now on, above all numbers so far; whether another way was in use.

        Readers and writers may run: the change waits for a moment without them, and new ones wait for it, half a second
        at most at a time. Needs the role that migrates. Raises `DatabaseUnavailable`.
        """
        deadline = time.monotonic() + seconds_max
        connection = await self._connector.connect(lock_timeout=_TABLE_WAIT)
        try:
            while True:
                try:
                    async with connection.transaction():
                        return await _change(connection, way)
                except asyncpg.PostgresError as error:
                    is_busy = isinstance(error, asyncpg.LockNotAvailableError)
                    if not (is_busy or is_retryable(error)):
                        raise
                    if time.monotonic() > deadline:
                        raise DatabaseUnavailable(_BUSY) from error
                await asyncio.sleep(_PAUSE_SECONDS)
        except DRIVER_ERRORS as error:
            raise _failure(error) from error
        finally:
            connection.terminate()


async def take_turn(connection: Connection) -> bool:
    """Take the lock of the sequencer until the end of the transaction; whether the sequencer is in use."""
    if await _way(connection) != "sequencer":
        return False
    await connection.fetch("SELECT begin_numbering()")
    return True


async def raise_numbers(connection: Connection) -> None:
    """Give new rows higher numbers than all existing rows, also after a dump was restored."""
    highest = await _highest(connection)
    if await take_turn(connection):
        await connection.fetch(_RAISE_COUNTER, highest)
        return
    ((base, current),) = await connection.fetch("SELECT seq_base(), pg_current_xact_id()::text::bigint")
    if highest >> 16 > base + current:
        await connection.execute(_BASE.format((highest >> 16) - current))


async def _change(connection: Connection, way: Way) -> bool:
    """Change the way inside a transaction that has locked out all writers; whether it was another way."""
    # Against readers too, and so on replicas: a page that was planned before the change is not read after it.
    tables = [name for (name,) in await connection.fetch(_NUMBERED_TABLES)]
    await connection.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
    if await _way(connection) == way:
        return False
    if way == "sequencer":
        ((above,),) = await connection.fetch(_ABOVE_TRANSACTIONS)
        await connection.fetch(_RAISE_COUNTER, max(above, await _highest(connection)))
    else:
        await _raise_base(connection)
    await connection.execute(_DECISION.format("true" if way == "sequencer" else "false"))
    return True


async def _raise_base(connection: Connection) -> None:
    """Number all running and later transactions above the sequencer's numbers. There is no running writer of rows."""
    ((counter,),) = await connection.fetch("SELECT last_value FROM row_numbers")
    highest = max(counter, await _highest(connection))
    ((base, oldest),) = await connection.fetch(
        "SELECT seq_base(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    )
    await connection.execute(_BASE.format(max(base, (highest >> 16) + 1 - oldest)))


async def _highest(connection: Connection) -> int:
    """The highest number of all rows; 0 without rows."""
    highest = 0
    for (table,) in await connection.fetch(_NUMBERED_TABLES):
        ((last,),) = await connection.fetch(f"SELECT coalesce(max(seq), 0) FROM {table}")  # noqa: S608 - a quoted name
        highest = max(highest, int(last))
    return highest


async def _way(connection: Connection) -> Way:
    ((is_there,),) = await connection.fetch("SELECT to_regprocedure('uses_sequencer()') IS NOT NULL")
    if not is_there:  # a schema before migration 0009
        return "transactions"
    ((uses_sequencer,),) = await connection.fetch("SELECT uses_sequencer()")
    return "sequencer" if uses_sequencer else "transactions"


def _failure(error: BaseException) -> DatabaseUnavailable:
    detail: Any = error.args[0] if isinstance(error, asyncpg.InsufficientPrivilegeError) else ""
    return DatabaseUnavailable(f"the database refuses: {error_name(error)}{f': {detail}' if detail else ''}")
