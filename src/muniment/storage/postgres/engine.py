"""The PostgreSQL engine: any number of processes over one database, a few fixed connections in each.

What waits at the same moment travels together, reads (`postgres_reader`) and writes (`postgres_writer`) alike. Every
statement is bounded by the server and, should that say nothing, by this side.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

import asyncpg

from muniment.errors import DeadlineExceeded, NotReady
from muniment.storage.client_slots import ClientSlots
from muniment.storage.migrate import migrations
from muniment.storage.postgres.batches import fetch_together
from muniment.storage.postgres.migrate import migrate
from muniment.storage.postgres.reader import Reader
from muniment.storage.postgres.slot import DRIVER_ERRORS, POOLED, READ_ONLY, Door, Line, as_raised
from muniment.storage.postgres.statements import Texts
from muniment.storage.postgres.subset import fetch_some
from muniment.storage.postgres.writer import Writer
from muniment.storage.probe import ANSWER_AGE_SECONDS_MAX, Probe

if TYPE_CHECKING:
    from muniment.storage.database import Parameters, Row, Transaction, Work

T = TypeVar("T")

# What one long read may take, its turn included, before it is cancelled: a client's patience.
SLOW_READ_SECONDS_MAX: Final = 5.0
# Long reads of a process at once; each occupies a core of the server.
SLOW_LINES: Final = 2
# The time of a row is that of its request, and no earlier than that of the last row seen. So only rows whose
# transactions ran at the same time can be out of order: by ten seconds at most of waiting for a turn
# (`WAITING_SECONDS_MAX` of the writer), and by the difference of two machines' clocks, five seconds if they are kept.
TIMES_DIFFER_MS_MAX: Final = 15_000


class PostgresDatabase:
    """A `Database` on a server."""

    settled_before: str = "settled_seq()"
    merges_unions: bool = False
    times_differ_ms: int = TIMES_DIFFER_MS_MAX

    def __init__(self, url: str) -> None:
        """Nothing is connected before it is needed; a database that is away now may be there then."""
        self._door = Door(url)
        self._texts = Texts()
        self._reader = Reader(self._door, self._texts)
        self._writer = Writer(self._door, self._texts)
        self._writes = Probe(self._prove_writing, silence="the database does not answer")
        self._slow: list[Line] = [Line(self._door) for _ in range(SLOW_LINES)]
        self._slow_free = asyncio.Semaphore(SLOW_LINES)
        self._slots = ClientSlots()
        self.rows_counted: dict[str, tuple[int, int]] = {}

    @property
    def connections_made(self) -> int:
        """How many connections were made so far."""
        return self._door.connections_made

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows, with the reads that wait at the same moment."""
        return await self._reader.fetch(sql, parameters)

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row, likewise."""
        rows = await self._reader.fetch(sql, parameters)
        return rows[0] if rows else None

    async def fetch_some(
        self, sql: str, parameters: Parameters, *, rows_max: int, bytes_max: int
    ) -> tuple[list[Row], int]:
        """The first rows, with the reads that wait at the same moment."""
        return await fetch_some(self.fetch, sql, parameters, rows_max=rows_max, bytes_max=bytes_max)

    async def fetch_slow(self, sql: str, parameters: Parameters = (), *, client: str = "") -> list[Row]:
        """All rows, on a connection for long reads, cancelled at the deadline."""
        text, values = self._texts.ask(sql, parameters)
        try:
            async with asyncio.timeout(SLOW_READ_SECONDS_MAX), self._slots.of(client), self._slow_free:
                line = self._slow.pop()
                try:
                    (rows,) = await fetch_together(await line.open(), text, [values])
                except BaseException as error:
                    line.lost(error)
                    raise
                finally:
                    self._slow.append(line)
        except (TimeoutError, asyncpg.QueryCanceledError) as error:
            raise DeadlineExceeded(f"the read took more than {SLOW_READ_SECONDS_MAX:g} s") from error
        except DRIVER_ERRORS as error:
            raise as_raised(error) from error
        return rows

    async def write(self, work: Work[T], *, order: bytes = b"", urgent: bool = False) -> T:
        """Do `work` with the writes that wait at the same moment; its result once they are committed."""
        return await self._writer.submit(work, order, urgent=urgent)

    async def migrate(self) -> list[str]:
        """Apply what is missing while holding a lock, so that a second process waits and finds it done."""
        return await migrate(self._door)

    async def time_ms(self) -> int | None:
        """The time of the server."""
        ((time_ms,),) = await self.fetch("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        return time_ms

    async def check(self) -> None:
        """Answer a read, and have every migration."""
        ledger = await self.fetch("SELECT 1 WHERE to_regclass('schema_migrations') IS NOT NULL")
        rows = await self.fetch("SELECT name FROM schema_migrations") if ledger else []
        applied = {str(name) for (name,) in rows}
        absent = [migration.name for migration in migrations("postgres") if migration.name not in applied]
        if absent:
            raise NotReady(f"the database lacks migrations: {', '.join(absent)}")

    async def check_writes(self) -> None:
        """Find statements where they were prepared, and take writes. A table that somebody has locked is no matter.

        The other tables are served, and no other process would serve that one.
        """
        if self._door.is_pooled:
            raise NotReady(POOLED)
        await self._writes.check()

    async def _prove_writing(self) -> None:
        """Return when a commit was on disk just now; where there was none, when the server would take one."""
        if time.monotonic() - self._writer.succeeded_at > ANSWER_AGE_SECONDS_MAX:
            await self.write(_refuse_if_read_only, urgent=True)

    async def close(self) -> None:
        """Finish what was accepted, then close every connection."""
        await self._writes.close()
        await self._writer.close()
        await self._reader.close()
        for line in self._slow:
            await line.close()


async def _refuse_if_read_only(tx: Transaction) -> None:
    """Raise `NotReady` where this connection takes no writes."""
    row = await tx.fetch_one("SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'")
    is_standby, is_read_only = row or (False, False)
    if is_standby:
        raise NotReady(f"{READ_ONLY}: it is a standby, which follows another server")
    if is_read_only:
        raise NotReady(READ_ONLY)
