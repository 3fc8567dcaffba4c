"""Makes one connection to one server, with the limits and settings of the service's sessions; `slot` calls it."""

from __future__ import annotations

import secrets
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import asyncpg

from muniment.service.storage.postgres.statements import STATEMENTS_KEPT


class Connection(Protocol):
    """The methods of the driver's connection that this engine uses; the driver itself has no types."""

    async def fetch(self, query: str, *values: object) -> list[Any]:
        """All rows of a prepared statement; a slice of a row is a tuple."""
        ...

    async def execute(self, query: str, *values: object, timeout: float | None = None) -> str:  # noqa: ASYNC109 - the driver's name
        """Run a prepared statement, or a script when there are no values; returns the server's command tag."""
        ...

    async def prepare(self, query: str, *, name: str | None = None) -> Any:
        """The prepared statement with its `get_parameters()`."""
        ...

    def get_server_pid(self) -> int:
        """The number of the session's process, as the server, or a pooler in front of it, sent it."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A transaction that ends with the block."""
        ...

    def is_closed(self) -> bool:
        """Whether either side has ended the connection."""
        ...

    def terminate(self) -> None:
        """Drop the connection without a message to the server."""
        ...

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 - the driver's name
        """End the connection with a message to the server."""
        ...


# A server in the same network answers in milliseconds.
CONNECT_SECONDS_MAX: Final = 3.0
# The time of one statement, its wait for a lock included. The statements of the stores take microseconds.
STATEMENT_SECONDS_MAX: Final = 5.0
LOCK_SECONDS_MAX: Final = 2.0
# Two seconds more than the server's own limit: a server that does not answer by then is lost.
ANSWER_SECONDS_MAX: Final = STATEMENT_SECONDS_MAX + 2.0
# After this time the server ends the transaction of a process that died or hangs. This frees its locks, and the rows
# of later transactions become visible to clients that follow a listing.
IDLE_TRANSACTION_SECONDS_MAX: Final = 10.0
# The just-in-time compiler pays off only for queries of seconds. Sequential scans are off because every query of the
# stores has an index, and a planner that overestimates the rows of a query would read the whole table; bitmap scans,
# because without statistics, as after a restore, the planner read and sorted all 300,000 events for a page of the feed:
# 63 ms, where the index takes 5.
SESSION: Final = {
    "application_name": "muniment",
    "jit": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "statement_timeout": str(int(STATEMENT_SECONDS_MAX * 1000)),
    "lock_timeout": str(int(LOCK_SECONDS_MAX * 1000)),
    "idle_in_transaction_session_timeout": str(int(IDLE_TRANSACTION_SECONDS_MAX * 1000)),
}
# A client gets its answer after the commit is on disk. Stricter settings than `on` are left to the operator.
_DURABLE: Final = """SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')"""
# One try shows a pooler in transaction mode that is quiet. A busy one may give both connections, for a moment, sessions
# that look like their own.
_POOLER_TRIES: Final = 20
# The first eight hexadecimal digits of the name of a log file are the timeline.
_TIMELINE: Final = """SELECT CASE WHEN pg_is_in_recovery() THEN 0
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END"""


async def connect(url: str, settings: dict[str, str]) -> Connection:
    """A connection to the one host of `url`, with `settings` of its session. Raises errors of the driver."""
    driver: Any = asyncpg
    connection: Connection = await driver.connect(
        url,
        timeout=CONNECT_SECONDS_MAX,
        command_timeout=ANSWER_SECONDS_MAX,
        statement_cache_size=STATEMENTS_KEPT,
        max_cached_statement_lifetime=0,
        server_settings={**SESSION, **settings},
    )
    try:
        await connection.execute(_DURABLE)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def connect_with_timeline(url: str, settings: dict[str, str]) -> tuple[int, str, Connection]:
    """The timeline that the server writes (0 for a standby), `url`, and a connection."""
    connection = await connect(url, settings)
    try:
        ((timeline,),) = await connection.fetch(_TIMELINE)
    except BaseException:
        connection.terminate()
        raise
    return timeline, url, connection


async def has_own_session(connection: Connection, url: str) -> bool:
    """Whether no other client gets the session of `connection`, which leads to the one host of `url`.

    PostgreSQL sends each client the number of its session's process, and a pooler sends a number of its own. Behind a
    pooler a setting of the session must stay with `connection`, and another connection must not see it. All is asked
    without prepared statements, which a pooler in transaction mode may lose or confuse. Raises errors of the driver.
    """
    if await _is_true(connection, f"pg_backend_pid() = {connection.get_server_pid()}"):
        return True
    mark = secrets.token_hex(16)
    is_marked = f"current_setting('muniment.session', true) = '{mark}'"
    other = await connect(url, {})
    try:
        await connection.execute(f"SELECT set_config('muniment.session', '{mark}', false)")
        for _ in range(_POOLER_TRIES):
            if not await _is_true(connection, is_marked) or await _is_true(other, is_marked):
                return False
    finally:
        other.terminate()
    return True


async def _is_true(connection: Connection, condition: str) -> bool:
    """Whether the server finds a condition of SQL true; the command tag has the number of rows."""
    return await connection.execute(f"SELECT 1 WHERE {condition}") == "SELECT 1"
