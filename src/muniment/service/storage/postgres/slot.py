"""Connects to PostgreSQL: a `Connector` has the servers of a URL, a `Slot` holds one connection of it.

A slot connects when it is first used, keeps its connection, and connects again after it was lost. `read_queue`,
`writer` and `engine` hold slots; `migrate` and `copying` use the connector directly. While no server can be reached,
the connector tries at growing intervals; between two attempts it refuses immediately.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import asyncpg
import structlog

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.postgres.connection import (
    CONNECT_SECONDS_MAX,
    Connection,
    connect,
    connect_with_timeline,
    has_own_session,
)
from muniment.service.storage.postgres.driver_errors import (
    DRIVER_ERRORS,
    POOLED,
    READ_ONLY,
    error_name,
    is_loss,
    is_pooled,
)

# The pause between two attempts to connect: a restart takes a tenth of a second, a failover half a minute.
_RETRY_SECONDS_FIRST: Final = 0.1
_RETRY_SECONDS_MAX: Final = 2.0
# How long the other hosts of a URL may take after one has answered. A server in the same network takes milliseconds,
# and a busy one more: a host that answers later is not compared.
OTHERS_SECONDS_MAX: Final = 1.0
# After this time without use, a connection to one of several hosts is made again, and the hosts are compared. Together
# with the limit of a statement it is shorter than the time in which a supervisor replaces a primary that is silent
# (twenty seconds at least), so no connection from before a failover is used after it.
UNUSED_SECONDS_MAX: Final = 5.0

_log = structlog.get_logger(__name__)

# The timeline of a host (0 of a standby), its URL, and a connection to it.
Reached = tuple[int, str, Connection]

# Three parts of a URL: before the hosts, the hosts, after the hosts (RFC 3986 section 3).
_HOSTS: Final = re.compile(r"(\w+://(?:[^/?#]*@)?)([^/?#]*)(.*)", re.DOTALL)


class Connector:
    """Connects to the servers of one URL, at intervals that grow while none answers."""

    def __init__(self, url: str) -> None:
        """`url` is `postgresql://…`, with any parameter that the driver knows (several hosts, `sslmode`).

        Raises `ValueError` for a malformed URL; the driver's own message would repeat a part of the password.
        """
        self._urls = _url_of_each_host(url)
        try:
            for each in self._urls:
                _ = urlsplit(each).port
        except ValueError:
            raise ValueError("not a PostgreSQL URL; in a password, write / as %2F and @ as %40") from None
        self.connections_made = 0
        # How often the connections made so far became unusable: the connector has changed to another host of the URL,
        # and the former may have lost its role in a failover without an end of its connections; or a pooler was found.
        self.resets = 0
        self._retry_seconds = 0.0
        self._retry_at = 0.0
        # Why no connection is made before `_retry_at`.
        self._refusal = ""
        # The latest timeline that a host of several was on.
        self._timeline = 0

    @property
    def has_several_hosts(self) -> bool:
        """Whether the URL names several hosts."""
        return len(self._urls) > 1

    async def connect(self, **settings: str) -> Connection:
        """A new connection. Raises `DatabaseUnavailable`, immediately when the next attempt is not due yet."""
        if time.monotonic() < self._retry_at:
            raise DatabaseUnavailable(self._refusal)
        try:
            timeline, url, connection = await self._connect_to_latest(settings)
            try:
                is_alone = await has_own_session(connection, url)
            except BaseException:
                connection.terminate()
                raise
        except DRIVER_ERRORS as error:
            raise self._refuse(_reason(error)) from error
        if not is_alone:
            connection.terminate()
            self.resets += 1
            if self._refusal != POOLED:
                _log.error("a connection pooler mixes the sessions of its clients", detail=POOLED)
            raise self._refuse(POOLED)
        self._check_latest(timeline, connection)  # another task may have found a later primary meanwhile
        if url != self._urls[0]:
            self.resets += 1
        self._urls.sort(key=lambda each: each != url)
        self._retry_seconds = 0.0
        self._refusal = ""
        self.connections_made += 1
        return connection

    async def _connect_to_latest(self, settings: dict[str, str]) -> Reached:
        """Connect to the host on the latest timeline; all hosts are asked at once.

        Each promotion begins a new timeline. A primary that was paused may wake after its standby was promoted, and
        takes itself for the primary until its supervisor stops it: it is on an earlier timeline. Raises errors of the
        driver, and `DatabaseUnavailable` if only hosts on earlier timelines answer.
        """
        if len(self._urls) == 1:
            return self._timeline, self._urls[0], await connect(self._urls[0], settings)
        made: list[Reached] = []
        last: BaseException = OSError()
        pending = {asyncio.create_task(connect_with_timeline(url, settings)) for url in self._urls}
        try:
            while pending:
                seconds_max = OTHERS_SECONDS_MAX if made else None
                done, pending = await asyncio.wait(pending, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                for task in done:
                    error = task.exception()
                    if error is None:
                        made.append(task.result())
                    else:
                        last = error
        except BaseException:  # the caller was cancelled
            for _, _, connection in made:
                connection.terminate()
            raise
        finally:
            for task in pending:
                task.add_done_callback(_drop_connection)
                task.cancel()
        if not made:
            raise last
        return self._keep_latest(made)

    def _keep_latest(self, made: list[Reached]) -> Reached:
        """The connection on the latest timeline; of several, that to the present host. The others are dropped."""
        made.sort(key=lambda each: (-each[0], self._urls.index(each[1])))
        timeline, url, connection = made[0]
        for _, _, other in made[1:]:
            other.terminate()
        self._check_latest(timeline, connection)
        return timeline, url, connection

    def _check_latest(self, timeline: int, connection: Connection) -> None:
        """Remember the timeline of a connection; one on an earlier timeline is dropped: `DatabaseUnavailable`."""
        if timeline < self._timeline:
            connection.terminate()
            raise self._refuse(f"{READ_ONLY}: only a standby or an earlier primary answers")
        self._timeline = timeline

    def _refuse(self, reason: str) -> DatabaseUnavailable:
        """The refusal for `reason`, which is repeated until the next attempt is due."""
        self._retry_seconds = min(max(2 * self._retry_seconds, _RETRY_SECONDS_FIRST), _RETRY_SECONDS_MAX)
        self._retry_at = time.monotonic() + self._retry_seconds
        self._refusal = reason
        return DatabaseUnavailable(reason)


def _reason(error: BaseException) -> str:
    """Why an error of the driver left no connection, for clients."""
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):  # the URL has `target_session_attrs`
        return f"{READ_ONLY}: no server of its URL takes writes"
    return POOLED if is_pooled(error) else f"the database cannot be reached: {error_name(error)}"


def _drop_connection(task: asyncio.Task[Reached]) -> None:
    """Drop the connection of a cancelled task, if it has one."""
    if not task.cancelled() and task.exception() is None:
        task.result()[2].terminate()


def _url_of_each_host(url: str) -> list[str]:
    """A URL for each host of `url`: the driver has one time limit for all hosts, and a dead one would use it up."""
    match = _HOSTS.fullmatch(url)
    return [f"{match[1]}{host}{match[3]}" for host in match[2].split(",")] if match else [url]


class Slot:
    """Holds one connection, which one task uses at a time."""

    def __init__(self, connector: Connector, **settings: str) -> None:
        """Not connected yet; `settings` are PostgreSQL's settings of the session."""
        self._connector = connector
        self._settings = settings
        self._connection: Connection | None = None
        self._resets = 0
        self._used_at = -math.inf

    async def open(self) -> Connection:
        """The connection, made again if it was lost, or may lead to an earlier primary.

        Raises `DatabaseUnavailable`.
        """
        is_unused = time.monotonic() - self._used_at > UNUSED_SECONDS_MAX
        if self._resets != self._connector.resets or (is_unused and self._connector.has_several_hosts):
            self.drop()
        self._used_at = time.monotonic()
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connector.connect(**self._settings)
            self._resets = self._connector.resets
        return self._connection

    def drop_if_lost(self, error: BaseException) -> bool:
        """Drop the connection if it cannot be used after `error`; whether it was dropped."""
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
