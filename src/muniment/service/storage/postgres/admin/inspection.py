"""Looks at a PostgreSQL server through new connections, as the service makes them; `muniment doctor` asks for it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.postgres.connection import SESSION
from muniment.service.storage.postgres.driver_errors import DRIVER_ERRORS, error_name
from muniment.service.storage.postgres.slot import Connector

_PAUSE_SECONDS: Final = 0.05
_FLUSHED: Final = "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint"
_REPLAYED: Final = "SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint"
_STATE: Final = """SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
  (SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity
    WHERE backend_type = 'client backend')"""

# Tables of other owners are not the service's. The service only reads the list of migrations, which `migrate` writes.
_CLOSED: Final = """WITH ours AS (SELECT tableowner AS owner FROM pg_tables
    WHERE schemaname = current_schema() AND tablename = 'schema_migrations')
  SELECT tablename::text FROM pg_tables, ours WHERE schemaname = current_schema() AND tableowner = owner
    AND NOT (has_table_privilege(quote_ident(tablename), 'SELECT') AND (tablename = 'schema_migrations' OR (
      has_table_privilege(quote_ident(tablename), 'INSERT')
      AND has_table_privilege(quote_ident(tablename), 'UPDATE')
      AND has_table_privilege(quote_ident(tablename), 'DELETE'))))
  UNION ALL SELECT sequencename::text FROM pg_sequences, ours WHERE schemaname = current_schema()
    AND sequenceowner = owner AND NOT has_sequence_privilege(quote_ident(sequencename), 'USAGE') ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of a server, as it reports it; the age of its oldest transaction is in seconds."""

    is_standby: bool
    is_read_only: bool
    connections: int
    connections_max: int
    oldest_transaction_s: float
    # Settings of a session that differ from those that the service asked for: name to value.
    changed_settings: dict[str, str]
    # Tables and sequences of the service for which this user lacks rights.
    closed_tables: list[str]


async def state_of(url: str) -> ServerState:
    """The state of the server at `url`. Raises `DatabaseUnavailable`."""
    connection = await Connector(url).connect()
    try:
        ((standby, read_only, connections, most, oldest),) = await connection.fetch(_STATE)
        wanted = {name: value for name, value in SESSION.items() if name != "application_name"}
        rows = await connection.fetch("SELECT name, setting FROM pg_settings WHERE name = ANY($1)", [*wanted])
        changed = {name: value for name, value in rows if value != wanted[name]}
        ((durability,),) = await connection.fetch("SELECT current_setting('synchronous_commit')")
        if durability in {"off", "local"}:
            changed["synchronous_commit"] = durability
        closed = await connection.fetch(_CLOSED)
    except DRIVER_ERRORS as error:
        raise DatabaseUnavailable(f"the database does not answer: {error_name(error)}") from error
    finally:
        connection.terminate()
    return ServerState(standby, read_only, connections, most, oldest, changed, [name for (name,) in closed])


async def catches_up(primary_url: str, replica_url: str, *, seconds_max: float) -> bool:
    """Whether the replica has all writes of this moment within `seconds_max`. Raises `DatabaseUnavailable`.

    A replica ahead of the primary follows another server: False.
    """
    async with AsyncExitStack() as opened:
        primary = await Connector(primary_url).connect()
        opened.callback(primary.terminate)
        replica = await Connector(replica_url).connect()
        opened.callback(replica.terminate)
        try:
            ((position,),) = await primary.fetch(_FLUSHED)
            async with asyncio.timeout(seconds_max):
                while True:
                    ((replayed,),) = await replica.fetch(_REPLAYED)
                    if replayed is None or replayed >= position:
                        ((now,),) = await primary.fetch(_FLUSHED)
                        return replayed is not None and replayed <= now  # None: it is no replica
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            return False
        except DRIVER_ERRORS as error:
            raise DatabaseUnavailable(f"it does not answer: {error_name(error)}") from error
