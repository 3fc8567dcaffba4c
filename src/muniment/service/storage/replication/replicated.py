"""A PostgreSQL primary with replicas: a request that only reads goes to a replica that has its client's writes.

`open_replicated` makes it. A request stays with its replica, or changes to the primary for good, so that no statement
sees an older state than an earlier one. A client also stays with its replica, while the replica can serve it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, LiteralString
from zlib import crc32

from muniment.service.running.metrics.recorder import DatabaseMetrics
from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits
from muniment.service.storage.postgres.engine import TIMES_DIFFER_MS_MAX, PostgresDatabase
from muniment.service.storage.postgres.subset import fetch_some
from muniment.service.storage.replication.recent_writers import RecentWriters
from muniment.service.storage.replication.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from muniment.service.storage.database import Parameters, Reader, Row


class ReplicatedDatabase(PostgresDatabase):
    """The `Database` of the primary; `reader_for` chooses a replica."""

    def __init__(
        self,
        url: str,
        read_urls: Sequence[str],
        *,
        writers: Path,
        lag_s_max: float,
        limits: DatabaseLimits = DATABASE_LIMITS,
        metrics: DatabaseMetrics | None = None,
    ) -> None:
        """`writers` is the file of `RecentWriters`. Raises `OSError` when it cannot be made."""
        metrics = metrics or DatabaseMetrics()
        super().__init__(url, limits, metrics=metrics)
        self._recent_writers = RecentWriters(writers)
        self._replicas = [
            Replica(each, self, lag_s_max, limits, metrics.of_replica(place)) for place, each in enumerate(read_urls, 1)
        ]

    def charge_long_reads(self, owe: Callable[[str, int], object]) -> None:
        """Call `owe` with the time that each long read for a client takes a server, the replicas' too."""
        super().charge_long_reads(owe)
        for replica in self._replicas:
            replica.charge_long_reads(owe)

    def wrote(self, client: str) -> None:
        """Note that a write of `client` was committed: its next reads must show it."""
        self._recent_writers.note(client)

    def reader_for(self, client: str) -> Reader:
        """The `Reader` for a request of `client` that only reads."""
        now_ns = time.monotonic_ns()
        since_ns = self._recent_writers.last_ns(client, now_ns)
        first = crc32(client.encode()) % len(self._replicas)
        for replica in (*self._replicas[first:], *self._replicas[:first]):
            if replica.serves(since_ns, now_ns):
                return _RequestReader(self, replica)
        return self

    async def close(self) -> None:
        """Finish the accepted reads and writes, then close every connection."""
        for replica in self._replicas:
            await replica.close()
        await super().close()


class _RequestReader:
    """The `Reader` of one request: a replica until that fails or lacks a row, then the primary."""

    plans_as_written: bool = PostgresDatabase.plans_as_written
    times_differ_ms: int = TIMES_DIFFER_MS_MAX

    __slots__ = ("_primary", "_replica")

    def __init__(self, primary: PostgresDatabase, replica: Replica) -> None:
        """Begin at `replica`."""
        self._primary = primary
        self._replica: Replica | None = replica

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows."""
        if self._replica is not None:
            rows = await self._replica.fetch(sql, parameters)
            if rows is not None:
                return rows
            self._replica = None
        return await self._primary.fetch(sql, parameters)

    async def fetch_one(self, sql: LiteralString, parameters: Parameters = ()) -> Row | None:
        """The first row. If the replica lacks it, ask the primary: the row may be new."""
        rows = await self.fetch(sql, parameters)
        if rows or self._replica is None:
            return rows[0] if rows else None
        self._replica = None
        return await self._primary.fetch_one(sql, parameters)

    async def fetch_some(
        self, sql: LiteralString, parameters: Parameters, *, rows_max: int, bytes_max: int
    ) -> tuple[list[Row], int]:
        """The first rows."""
        return await fetch_some(self.fetch, sql, parameters, rows_max=rows_max, bytes_max=bytes_max)

    async def fetch_slow(self, sql: LiteralString, parameters: Parameters = (), *, client: str = "") -> list[Row]:
        """All rows of a long read."""
        if self._replica is not None:
            rows = await self._replica.fetch_slow(sql, parameters, client)
            if rows is not None:
                return rows
            self._replica = None
        return await self._primary.fetch_slow(sql, parameters, client=client)
