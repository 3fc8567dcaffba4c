"""Connects to PostgreSQL: a `Connector` knows the servers of a URL, a `Slot` holds one connection of it.

A slot connects when it is first used, keeps its connection, and connects again after it was lost. `read_queue`,
`writer` and `engine` hold slots; `migrate` and `copying` use the connector directly. While no server can be reached,
the connector tries at growing intervals; between two attempts it refuses immediately.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import asyncpg
import structlog

from muniment.errors import DatabaseUnavailable
from muniment.storage.postgres.driver_errors import DRIVER_ERRORS, POOLED, READ_ONLY, error_name, is_loss, is_pooled
from muniment.storage.postgres.pooler import Pooling, pooling_of
from muniment.storage.postgres.statements import STATEMENTS_KEPT


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
        """The number of the session's process, as the server, or a pooler in front of it, told the client."""
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
# Two seconds more than the server's own limit: a server that does not answer by then is gone.
ANSWER_SECONDS_MAX: Final = STATEMENT_SECONDS_MAX + 2.0
# After this time the server ends the transaction of a process that is gone or hangs. This frees its locks, and the rows
# of later transactions become visible to clients that follow a listing.
IDLE_TRANSACTION_SECONDS_MAX: Final = 10.0
# The pause between two attempts to connect: a restart takes a tenth of a second, a failover half a minute.
_RETRY_SECONDS_FIRST: Final = 0.1
_RETRY_SECONDS_MAX: Final = 2.0
# A pooler mixes sessions only now and then. After this time without such an error the process is ready again.
POOLED_SECONDS: Final = 30.0

# The just-in-time compiler pays off only for queries of seconds. Sequential scans are off because every query of the
# stores has an index, and a planner that overestimates the rows of a query would read the whole table.
SESSION: Final = {
    "application_name": "muniment",
    "jit": "off",
    "enable_seqscan": "off",
    "statement_timeout": str(int(STATEMENT_SECONDS_MAX * 1000)),
    "lock_timeout": str(int(LOCK_SECONDS_MAX * 1000)),
    "idle_in_transaction_session_timeout": str(int(IDLE_TRANSACTION_SECONDS_MAX * 1000)),
}
# A client gets its answer after the commit is on disk. Stricter settings than `on` are left to the operator.
_DURABLE: Final = """SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')"""
_log = structlog.get_logger(__name__)

# Three parts of a URL: before the hosts, the hosts, after the hosts (RFC 3986 section 3).
_HOSTS: Final = re.compile(r"(\w+://(?:[^/?#]*@)?)([^/?#]*)(.*)", re.DOTALL)


class Connector:
    """Connects to the servers of one URL, at intervals that grow while none answers."""

    def __init__(self, url: str, *, pooled_seconds: float = POOLED_SECONDS) -> None:
        """`url` is `postgresql://…`, with any parameter that the driver knows (several hosts, `sslmode`).

        `pooled_seconds` is how long an error that shows a pooler counts. Raises `ValueError` for a malformed URL;
        the driver's own message would repeat a part of the password.
        """
        self._urls = _url_of_each_host(url)
        try:
            for each in self._urls:
                _ = urlsplit(each).port
        except ValueError:
            raise ValueError("not a PostgreSQL URL; in a password, write / as %2F and @ as %40") from None
        self.connections_made = 0
        # How often the connector has changed to another host of the URL. A connection from before the change leads to a
        # server that may have lost its role in a failover without an end of its connections.
        self.changes_of_host = 0
        self._pooled_seconds = pooled_seconds
        self._retry_seconds = 0.0
        self._retry_at = 0.0
        self._pooled_at = -math.inf
        # The host, as its URL, whose first connection showed that no pooler loses prepared statements.
        self._examined: str | None = None
        self._examining = asyncio.Lock()
        self.pooling = Pooling.NONE

    @property
    def is_pooled(self) -> bool:
        """Whether a statement for one session has lately reached another session, as behind a pooler."""
        return time.monotonic() - self._pooled_at < self._pooled_seconds

    def note(self, error: BaseException) -> None:
        """Remember the time of an error that shows a pooler."""
        if is_pooled(error):
            self._note_pooled()

    def _note_pooled(self) -> None:
        if not self.is_pooled:
            _log.error("a connection pooler loses prepared statements", detail=POOLED)
        self._pooled_at = time.monotonic()
        self._examined = None

    async def connect(self, **settings: str) -> Connection:
        """A new connection. Raises `DatabaseUnavailable`, immediately when the next attempt is not due yet."""
        if time.monotonic() < self._retry_at:
            raise DatabaseUnavailable(POOLED if self.is_pooled else "the database cannot be reached")
        last: BaseException | None = None
        for url in list(self._urls):
            try:
                connection = await _connect(url, settings)
                await self._examine(connection, url)
            except DRIVER_ERRORS as error:
                last = error
                continue
            if url != self._urls[0]:
                self.changes_of_host += 1
            self._urls.sort(key=lambda each: each != url)  # the next attempt begins with the server that answered
            self._retry_seconds = 0.0
            self.connections_made += 1
            return connection
        self._examined = None
        self._delay_next_attempt()
        if isinstance(last, asyncpg.TargetServerAttributeNotMatched):  # the URL has `target_session_attrs`
            raise DatabaseUnavailable(f"{READ_ONLY}: no server of its URL takes writes") from last
        detail = error_name(last) if last else "no host"
        raise DatabaseUnavailable(f"the database cannot be reached: {detail}") from last

    def _delay_next_attempt(self) -> None:
        self._retry_seconds = min(max(2 * self._retry_seconds, _RETRY_SECONDS_FIRST), _RETRY_SECONDS_MAX)
        self._retry_at = time.monotonic() + self._retry_seconds

    async def _examine(self, connection: Connection, url: str) -> None:
        """Look for a pooler at the first connection to a host, and at the first one after each failure.

        Raises `DatabaseUnavailable` if a pooler loses prepared statements, and errors of the driver.
        """
        async with self._examining:  # two at a time would take each other for other clients of the pooler
            if self._examined == url:
                return
            try:
                self.pooling = await pooling_of(connection, lambda: _connect(url, {}))
            except BaseException:
                connection.terminate()
                raise
            if self.pooling is Pooling.STATEMENTS_LOST:
                connection.terminate()
                self._note_pooled()
                self._delay_next_attempt()
                raise DatabaseUnavailable(POOLED)
            if self.pooling is not Pooling.NONE:
                _log.info("a connection pooler in transaction mode keeps prepared statements")
            self._examined = url


def _url_of_each_host(url: str) -> list[str]:
    """A URL for each host of `url`: the driver has one time limit for all hosts, and a dead one would use it up."""
    match = _HOSTS.fullmatch(url)
    return [f"{match[1]}{host}{match[3]}" for host in match[2].split(",")] if match else [url]


async def _connect(url: str, settings: dict[str, str]) -> Connection:
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


class Slot:
    """Holds one connection, which one task uses at a time."""

    def __init__(self, connector: Connector, **settings: str) -> None:
        """Not connected yet; `settings` are PostgreSQL's settings of the session."""
        self._connector = connector
        self._settings = settings
        self._connection: Connection | None = None
        self._changes_of_host = 0

    async def open(self) -> Connection:
        """The connection, made again if it was lost, or leads to a host that the connector left.

        Raises `DatabaseUnavailable`.
        """
        if self._changes_of_host != self._connector.changes_of_host:
            self.drop()
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connector.connect(**self._settings)
            self._changes_of_host = self._connector.changes_of_host
        return self._connection

    def drop_if_lost(self, error: BaseException) -> bool:
        """Drop the connection if it cannot be used after `error`; whether it was dropped."""
        self._connector.note(error)
        if self._connection is not None and not (self._connection.is_closed() or is_loss(error)):
            return False
        self.drop()
        return True

    def drop(self) -> None:
        """Drop the connection without a message to the server."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        """End the connection with a message to the server."""
        if self._connection is not None:
            with suppress(*DRIVER_ERRORS):
                await self._connection.close(timeout=CONNECT_SECONDS_MAX)
            self._connection = None
