"""A PostgreSQL primary with replicas, which answer what may be late; `open_replicated` makes it.

An answer is read from one replica, or continues at the primary for good, so that no statement sees an older state than
an earlier one: a listing asks up to which number rows are settled, and then for rows.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, LiteralString

from muniment.service.running.metrics.recorder import DatabaseMetrics
from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits
from muniment.service.storage.postgres.engine import TIMES_DIFFER_MS_MAX, PostgresDatabase
from muniment.service.storage.postgres.subset import fetch_some
from muniment.service.storage.replication.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muniment.service.storage.database import Parameters, Reader, Row


class ReplicatedDatabase(PostgresDatabase):
    """The `Database` of the primary; `list_reader` chooses a replica."""

    def __init__(
        self,
        url: str,
        read_urls: Sequence[str],
        *,
        lag_s_max: float,
        limits: DatabaseLimits = DATABASE_LIMITS,
        metrics: DatabaseMetrics | None = None,
    ) -> None:
        """Connect on first use."""
        metrics = metrics or DatabaseMetrics()
        super().__init__(url, limits, metrics=metrics)
        self._replicas = deque(
            Replica(each, self, lag_s_max, limits, metrics.of_replica(place)) for place, each in enumerate(read_urls, 1)
        )

    def charge_long_reads(self, owe: Callable[[str, int], object]) -> None:
        """Call `owe` with the time that each long read for a client takes a server, the replicas' too."""
        super().charge_long_reads(owe)
        for replica in self._replicas:
            replica.charge_long_reads(owe)

    def list_reader(self) -> Reader:
        """The `Reader` of one answer that may be late: the replicas take turns; the primary, when all are too late."""
        now_ns = time.monotonic_ns()
        for _ in range(len(self._replicas)):
            self._replicas.rotate(-1)
            if self._replicas[0].serves(now_ns):
                return _AnswerReader(self, self._replicas[0])
        return self

    async def close(self) -> None:
        """Finish the accepted reads and writes, then close every connection."""
        for replica in self._replicas:
            await replica.close()
        await super().close()


class _AnswerReader:
    """The `Reader` of one answer: a replica until it fails, then the primary."""

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
        """The first row."""
        rows = await self.fetch(sql, parameters)
        return rows[0] if rows else None

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
