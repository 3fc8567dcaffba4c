"""Finds out whether a connection pooler in transaction mode is in front of the server; `slot` and `migrate` ask.

In transaction mode a pooler gives each transaction another session of the server. A prepared statement then reaches a
session that has not prepared it, unless the pooler keeps prepared statements under names of its own. Worse, the session
may have another statement under the same name, from another process. So the service sends no statement of its own
through a pooler that hands the names on.
"""

from __future__ import annotations

import secrets
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from muniment.service.storage.postgres.driver_errors import DRIVER_ERRORS, is_pooled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muniment.service.storage.postgres.connection import Connection

_SESSION_ID: Final = "SELECT pg_backend_pid()"
_HAS_NAME: Final = "SELECT count(*) > 0 FROM pg_prepared_statements WHERE name = $1"
# Other clients of the pooler may hold, for a moment, the session that both connections would share. A try takes a few
# round trips, and only a pooler in session mode needs all of them.
_TRIES: Final = 20


class Pooling(Enum):
    """The kind of pooler between a connection and its server."""

    NONE = auto()  # a session for each connection: no pooler, or a pooler in session mode
    STATEMENTS_KEPT = auto()  # a session for each transaction; prepared statements work
    STATEMENTS_LOST = auto()  # a session for each transaction; prepared statements do not work


async def pooling_of(connection: Connection, connect: Callable[[], Awaitable[Connection]]) -> Pooling:
    """The kind of pooler in front of the server; `connect` makes another connection to the same address.

    Without a pooler this costs one query. PostgreSQL sends each client the number of its session's process; a pooler
    sends a number of its own. Raises an error of the driver.
    """
    try:
        first = await _session_of(connection)
        if first == connection.get_server_pid():
            return Pooling.NONE
        other = await connect()
        try:
            return await _pooling_between(connection, other, first)
        finally:
            other.terminate()
    except DRIVER_ERRORS as error:
        if is_pooled(error):
            return Pooling.STATEMENTS_LOST
        raise


async def _pooling_between(connection: Connection, other: Connection, first: int) -> Pooling:
    """Find out what two connections share; `first` is the session that answered `connection`."""
    if not await _share_sessions(connection, other, first):
        return Pooling.NONE
    name = f"muniment_{secrets.token_hex(8)}"
    async with other.transaction():  # one session until its end
        kept = await other.prepare("SELECT 1", name=name)  # the driver closes a statement without references
        ((has_name,),) = await other.fetch(_HAS_NAME, name)
        del kept
    return Pooling.STATEMENTS_LOST if has_name else Pooling.STATEMENTS_KEPT


async def _share_sessions(connection: Connection, other: Connection, first: int) -> bool:
    """Whether one session answers both connections, or two sessions answer one of them."""
    for _ in range(_TRIES):
        async with other.transaction():
            if await _session_of(other) == first or await _session_of(connection) != first:
                return True
        # A pooler gives the session that was returned last: now that of the other connection.
        if await _session_of(connection) != first:
            return True
    return False


async def _session_of(connection: Connection) -> int:
    """The number of the server's process that answers."""
    ((number,),) = await connection.fetch(_SESSION_ID)
    return number
