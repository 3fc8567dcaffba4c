"""The `Database` on a PostgreSQL server, which any number of processes share; `open_database` makes it.

Each process has a few fixed connections. `read_queue` and `writer` send equal statements of many callers as one. The
server limits the time of every statement; if the server itself does not answer, the driver gives up a little later.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, LiteralString, TypeVar

import asyncpg

from muniment.protocol.errors import DeadlineExceeded, NotReady
from muniment.service.running.metrics.recorder import DatabaseMetrics
from muniment.service.storage.client_slots import ClientSlots
from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits
from muniment.service.storage.migrate import require_all
from muniment.service.storage.postgres.admin.migrate import migrate
from muniment.service.storage.postgres.batches import fetch_batch
from muniment.service.storage.postgres.driver_errors import DRIVER_ERRORS, READ_ONLY, for_caller
from muniment.service.storage.postgres.read_queue import READS_WAITING_MAX, ReadQueue
from muniment.service.storage.postgres.slot import Connector, Slot
from muniment.service.storage.postgres.statements import Statements
from muniment.service.storage.postgres.subset import fetch_some
from muniment.service.storage.postgres.writer import Writer
from muniment.service.storage.probe import ANSWER_AGE_SECONDS_MAX, Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from muniment.service.storage.database import Parameters, Row, Transaction, Work

T = TypeVar("T")

# Concurrent long reads of a process; each occupies a core of the server.
SLOW_SLOTS: Final = 2
# A row has the time of its request, but is not dated before the last row that its transaction saw. So only rows of
# concurrent transactions can be out of order: by the wait in the queue (`DATABASE_LIMITS`, ten seconds) plus the
# difference between the clocks of two machines (five seconds if they are synchronised).
TIMES_DIFFER_MS_MAX: Final = 15_000


class PostgresDatabase:
    """A `Database` on a server."""

    is_shared: bool = True
    plans_as_written: bool = False
    times_differ_ms: int = TIMES_DIFFER_MS_MAX

    def __init__(
        self,
        url: str,
        limits: DatabaseLimits = DATABASE_LIMITS,
        *,
        reads_waiting_max: int = READS_WAITING_MAX,
        metrics: DatabaseMetrics | None = None,
    ) -> None:
        """Connect on first use, so the server may be down now.

        At most `reads_waiting_max` reads are in the queue.
        """
        self._limits = limits
        self._connector = Connector(url)
        self._statements = Statements()
        self._metrics = metrics or DatabaseMetrics()
        self._read_queue = ReadQueue(
            self._connector, self._statements, reads_waiting_max=reads_waiting_max, metrics=self._metrics
        )
        self._writer = Writer(self._connector, self._statements, limits, metrics=self._metrics)
        self._writing_probe = Probe(self._prove_writing, silence="the database does not answer")
        self._slow_slots: list[Slot] = [Slot(self._connector) for _ in range(SLOW_SLOTS)]
        self._free_slow_slots = asyncio.Semaphore(SLOW_SLOTS)
        self._client_slots = ClientSlots()

    @property
    def connections_made(self) -> int:
        """The number of connections made so far."""
        return self._connector.connections_made

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows; sent in one batch with the equal reads in the queue."""
        return await self._read_queue.fetch(sql, parameters)

    async def fetch_one(self, sql: LiteralString, parameters: Parameters = ()) -> Row | None:
        """The first row; sent like `fetch`."""
        rows = await self._read_queue.fetch(sql, parameters)
        return rows[0] if rows else None

    async def fetch_some(
        self, sql: LiteralString, parameters: Parameters, *, rows_max: int, bytes_max: int
    ) -> tuple[list[Row], int]:
        """The first rows; sent like `fetch`."""
        return await fetch_some(self.fetch, sql, parameters, rows_max=rows_max, bytes_max=bytes_max)

    def charge_long_reads(self, owe: Callable[[str, int], object]) -> None:
        """Call `owe` with the time that each long read for a client takes the server."""
        self._client_slots.owe = owe

    async def fetch_slow(self, sql: LiteralString, parameters: Parameters = (), *, client: str = "") -> list[Row]:
        """All rows, on a slot for long reads; cancelled at the deadline."""
        statement, values = self._statements.find(sql, parameters)
        seconds_max, begun = self._limits.slow_read_seconds_max, time.perf_counter()
        try:
            async with asyncio.timeout(seconds_max), self._client_slots.of(client), self._free_slow_slots:
                slot = self._slow_slots.pop()
                try:
                    connection = await slot.open()
                    with self._charging(client):
                        (rows,) = await fetch_batch(connection, statement, [values])
                except BaseException as error:
                    slot.drop_if_lost(error)
                    raise
                finally:
                    self._slow_slots.append(slot)
        except (TimeoutError, asyncpg.QueryCanceledError) as error:
            self._metrics.fail("long_read")
            raise DeadlineExceeded(f"the read took more than {seconds_max:g} s") from error
        except DRIVER_ERRORS as error:
            self._metrics.fail("long_read")
            raise for_caller(error) from error
        self._metrics.long_reads.observe(time.perf_counter() - begun)
        return rows

    @contextmanager
    def _charging(self, client: str) -> Generator[None]:
        asked = time.perf_counter_ns()
        try:
            yield
        finally:  # also for a client that went away, and at the deadline
            if client:
                self._client_slots.owe(client, time.perf_counter_ns() - asked)

    async def write(self, work: Work[T], *, order: bytes = b"", urgent: bool = False) -> T:
        """Run `work` in one group with other queued writes; returns its result once the group is committed."""
        return await self._writer.submit(work, order, urgent=urgent)

    def call_after_commits(self, call: Callable[[], object]) -> None:
        """As `Database.call_after_commits`; in the thread of the event loop."""
        self._writer.after_commit = call

    async def migrate(self) -> list[str]:
        """Apply the missing migrations under a lock. A second process waits, and then finds them applied."""
        return await migrate(self._connector)

    async def time_ms(self) -> int | None:
        """The time of the server, in milliseconds since 1970."""
        ((time_ms,),) = await self.fetch("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        return time_ms

    async def check(self) -> None:
        """Return when the database answers a read and has every migration; raise `NotReady` otherwise."""
        ledger = await self.fetch("SELECT 1 WHERE to_regclass('schema_migrations') IS NOT NULL")
        rows = await self.fetch("SELECT name, sha256 FROM schema_migrations") if ledger else []
        require_all("postgres", {str(name): str(sha256) for name, sha256 in rows})

    async def check_writes(self) -> None:
        """Return when the server takes writes; raise `NotReady` otherwise.

        A locked table does not count as a failure: no other process could write to it either.
        """
        await self._writing_probe.check()

    async def _prove_writing(self) -> None:
        """Return when a write was committed lately, or when the server would take one."""
        if time.monotonic() - self._writer.succeeded_at > ANSWER_AGE_SECONDS_MAX:
            await self.write(_refuse_if_read_only, urgent=True)

    async def until_seen(self) -> None:
        """Return: every session sees a commit from its end on."""

    async def close(self) -> None:
        """Finish the accepted reads and writes, then close every connection."""
        await self._writing_probe.close()
        await self._writer.close()
        await self._read_queue.close()
        for slot in self._slow_slots:
            await slot.close()


async def _refuse_if_read_only(tx: Transaction) -> None:
    """Raise `NotReady` if this connection takes no writes."""
    row = await tx.fetch_one("SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'")
    is_standby, is_read_only = row or (False, False)
    if is_standby:
        raise NotReady(f"{READ_ONLY}: it is a standby, which follows another server")
    if is_read_only:
        raise NotReady(READ_ONLY)
