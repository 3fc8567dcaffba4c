"""Connections to PostgreSQL: each is made when it is first needed, kept, and made again after it was lost.

A database that cannot be reached is asked again at growing intervals; in between every caller is told at once.
"""

from __future__ import annotations

import math
import re
import time
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import asyncpg

from muniment.errors import DatabaseUnavailable
from muniment.storage.postgres.statements import TEXTS_KEPT


class Connection(Protocol):
    """What this engine uses of the driver's connection, which carries no types."""

    async def fetch(self, query: str, *values: object) -> list[Any]:
        """All rows of a prepared statement; a slice of one is a tuple."""
        ...

    async def execute(self, query: str, *values: object, timeout: float | None = None) -> str:  # noqa: ASYNC109 - the driver's name
        """Run a prepared statement, or a script when there are no values; the server's word for what was done."""
        ...

    async def prepare(self, query: str) -> Any:
        """The statement with its `get_parameters()`."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A transaction that ends with the block."""
        ...

    def is_closed(self) -> bool:
        """Whether either side has ended it."""
        ...

    def terminate(self) -> None:
        """End it without a word."""
        ...

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 - the parameter is the driver's
        """Say goodbye."""
        ...


# A server in the same network answers in milliseconds; beyond this a client is better told to come again.
CONNECT_SECONDS_MAX: Final = 3.0
# What one statement may take, a wait for another's row included. The statements of the stores take microseconds.
STATEMENT_SECONDS_MAX: Final = 5.0
LOCK_SECONDS_MAX: Final = 2.0
# Two seconds beyond the server's own bound: a server that says nothing by then is not there.
ANSWER_SECONDS_MAX: Final = STATEMENT_SECONDS_MAX + 2.0
# A transaction whose process is gone, or stands still, lets go of its rows, and no longer holds up those who follow
# cursors.
IDLE_TRANSACTION_SECONDS_MAX: Final = 10.0
# Between two attempts to connect: the first restart is over in a tenth of a second, a failover in half a minute.
_RETRY_SECONDS_FIRST: Final = 0.1
_RETRY_SECONDS_MAX: Final = 2.0

# What the driver raises: the server's errors, its own, and those of sockets (TimeoutError is an OSError).
DRIVER_ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_LOST: Final = {"08", "25"}  # connection exception; invalid transaction state, as on a primary that became a standby
_LOST_STATES: Final = {"57P01", "57P02", "57P03", "57P05"}  # shutdown, crash, starting, idle too long
_FAILING: Final = {"53", "55", "57", "58", "XX"}  # resources, not in the state, intervention, system, internal
# No such table, column or function: the migrations of this release are not applied yet.
_FAILING_STATES: Final = {"42P01", "42703", "42883"}
# The connection takes no writes: `default_transaction_read_only`, or a server that follows another.
_READ_ONLY: Final = "25006"
# A statement that was prepared is not there, or another has its name, or takes other values: what prepared it was
# another session. So it is behind a pooler that gives each transaction whichever session is free.
_POOLED_STATES: Final = {"26000", "42P05", "08P01"}
# A pooler that mixes sessions does so now and then. For so long nobody is sent here after it was seen to.
POOLED_SECONDS: Final = 30.0
_AGAIN: Final = {"40"}  # deadlock, serialization failure
_AGAIN_STATES: Final = {"0A000"}  # "cached plan must not change result type": after a migration


READ_ONLY: Final = "the database is read-only"
POOLED: Final = (
    "a connection pooler gives the statements of one session to another, which has not prepared them: it must keep "
    "prepared statements, or work in its session mode"
)


class Door:
    """Where the database is, and since when it could not be reached."""

    def __init__(self, url: str) -> None:
        """`url` is `postgresql://…`, with whatever the driver understands behind it (several hosts, `sslmode`).

        Raises `ValueError` for what is none: the driver would repeat what it took for a port, a part of the password
        maybe.
        """
        self._urls = _one_by_one(url)
        try:
            for each in self._urls:
                _ = urlsplit(each).port
        except ValueError:
            raise ValueError("this is no URL of PostgreSQL; in a password / and @ are written %2F and %40") from None
        self.connections_made = 0
        self._pause = 0.0
        self._closed_until = 0.0
        self._pooled_at = -math.inf

    @property
    def is_pooled(self) -> bool:
        """Whether statements of one session lately reached another, as behind a pooler in transaction mode."""
        return time.monotonic() - self._pooled_at < POOLED_SECONDS

    def note(self, error: BaseException) -> None:
        """Remember what an error says of all connections that are made here."""
        if is_pooled(error):
            self._pooled_at = time.monotonic()

    async def connect(self, **settings: str) -> Connection:
        """A new connection. Raises `DatabaseUnavailable`, at once while an attempt would come too early."""
        if time.monotonic() < self._closed_until:
            raise DatabaseUnavailable("the database cannot be reached")
        last: BaseException | None = None
        for url in list(self._urls):
            try:
                connection = await _connect(url, settings)
            except DRIVER_ERRORS as error:
                last = error
                continue
            self._urls.sort(key=lambda each: each != url)  # the one that serves now is asked first the next time
            self._pause = 0.0
            self.connections_made += 1
            return connection
        self._pause = min(max(2 * self._pause, _RETRY_SECONDS_FIRST), _RETRY_SECONDS_MAX)
        self._closed_until = time.monotonic() + self._pause
        if isinstance(last, asyncpg.TargetServerAttributeNotMatched):  # it is asked for by `target_session_attrs`
            raise DatabaseUnavailable(f"{READ_ONLY}: no server of its URL takes writes") from last
        raise DatabaseUnavailable(f"the database cannot be reached: {reason(last) if last else 'no host'}") from last


def _one_by_one(url: str) -> list[str]:
    """A URL of several hosts as one for each.

    The driver would give them one time limit, and a machine that is gone says nothing until that is over.
    """
    match = _HOSTS.fullmatch(url)
    return [f"{match[1]}{host}{match[3]}" for host in match[2].split(",")] if match else [url]


async def _connect(url: str, settings: dict[str, str]) -> Connection:
    driver: Any = asyncpg
    connection: Connection = await driver.connect(
        url,
        timeout=CONNECT_SECONDS_MAX,
        command_timeout=ANSWER_SECONDS_MAX,
        statement_cache_size=TEXTS_KEPT,
        max_cached_statement_lifetime=0,
        server_settings={**_SESSION, **settings},
    )
    try:
        await connection.execute(_DURABLE)
    except BaseException:
        connection.terminate()
        raise
    return connection


# What stands before the hosts of a URL, the hosts, and what stands behind them (RFC 3986 section 3).
_HOSTS: Final = re.compile(r"(\w+://(?:[^/?#]*@)?)([^/?#]*)(.*)", re.DOTALL)

# The planner's just-in-time compiler pays for queries of seconds, and ours take microseconds. Each of them has an
# index, and a planner that takes the few rows it asks for to be a tenth of all must not read the table instead.
_SESSION: Final = {
    "application_name": "muniment",
    "jit": "off",
    "enable_seqscan": "off",
    "statement_timeout": str(int(STATEMENT_SECONDS_MAX * 1000)),
    "lock_timeout": str(int(LOCK_SECONDS_MAX * 1000)),
    "idle_in_transaction_session_timeout": str(int(IDLE_TRANSACTION_SECONDS_MAX * 1000)),
}
# An answer is sent after the disk has it; what is stricter than `on` was set by the operator and stays.
_DURABLE: Final = """SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')"""


class Line:
    """One connection of a `Door`, used by one task at a time."""

    def __init__(self, door: Door, **settings: str) -> None:
        """Not yet connected; `settings` are PostgreSQL's, for the session."""
        self._door = door
        self._settings = settings
        self._connection: Connection | None = None

    async def open(self) -> Connection:
        """The connection, made again if it was lost. Raises `DatabaseUnavailable`."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._door.connect(**self._settings)
        return self._connection

    def lost(self, error: BaseException) -> bool:
        """Whether `error` says that the connection is of no more use; it is dropped then."""
        self._door.note(error)
        if self._connection is not None and not (self._connection.is_closed() or _says_lost(error)):
            return False
        self.drop()
        return True

    def drop(self) -> None:
        """Let go of the connection without a word to the server."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        """Say goodbye."""
        if self._connection is not None:
            with suppress(*DRIVER_ERRORS):
                await self._connection.close(timeout=CONNECT_SECONDS_MAX)
            self._connection = None


def _says_lost(error: BaseException) -> bool:
    state = _state(error)
    if state is None:  # not the server's: a socket's, a time-out (an answer may still come, to the wrong question)
        return True
    return state[:2] in _LOST or state in _LOST_STATES


def _state(error: BaseException) -> str | None:
    """The SQLSTATE of the server's error."""
    state: Any = getattr(error, "sqlstate", None)
    return state if isinstance(error, asyncpg.PostgresError) and isinstance(state, str) else None


def is_refusal(error: BaseException) -> bool:
    """Whether it says of a statement that was its own transaction that it did nothing.

    The server does, by an error; what is worse ends the session, perhaps after the commit was on disk. The driver does
    of values that it cannot send, and names no severity.
    """
    severity: Any = getattr(error, "severity_en", None)
    is_whole = is_read_only(error) or not _says_lost(error)
    return _state(error) is not None and severity in {None, "ERROR"} and is_whole


def is_read_only(error: BaseException) -> bool:
    """Whether it says that the connection takes no writes; so this one was not done."""
    return _state(error) == _READ_ONLY


def is_pooled(error: BaseException) -> bool:
    """Whether it says that statements of this session reach another one. Poolers end sessions by FATAL of 08P01."""
    severity: Any = getattr(error, "severity_en", None)
    return _state(error) in _POOLED_STATES and severity in {None, "ERROR"}


def is_worth_again(error: BaseException) -> bool:
    """Whether the same transaction, begun again, may succeed."""
    state = _state(error) or ""
    return state[:2] in _AGAIN or state in _AGAIN_STATES


def as_raised(error: BaseException) -> BaseException:
    """What callers are told. A statement of ours that is wrong is no failure of the database, and goes on as it is."""
    state = _state(error) or ""
    if not isinstance(error, DRIVER_ERRORS):
        return error
    if is_read_only(error) or is_pooled(error):
        refusal = DatabaseUnavailable(READ_ONLY if is_read_only(error) else POOLED)
        refusal.__cause__ = error
        return refusal
    is_failure = state[:2] in _FAILING or state in _FAILING_STATES
    if state and not (is_failure or is_worth_again(error) or _says_lost(error)):
        return error
    refusal = DatabaseUnavailable(f"the database does not answer: {reason(error)}")
    refusal.__cause__ = error
    return refusal


def reason(error: BaseException) -> str:
    """An error in a few words, without what a client should not see (hosts, statements, values)."""
    return type(error).__name__
