"""A streaming replica, and how far it has come.

Times are those of the machine's monotonic clock. Every now and then the primary is asked for the position up to which
its log is on disk, and the replica for the position that it has replayed. Once the replica has reached the position of
a question, it has every write that was committed when the question was put: it has caught up with that moment.
So nobody needs to know the position of a write; when it was over is enough.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from muniment.errors import DatabaseUnavailable
from muniment.storage.postgres.engine import PostgresDatabase

if TYPE_CHECKING:
    from muniment.storage.database import Parameters, Row

# Between two questions. A client that has written is served by the primary about this long, plus the replica's lag.
ASK_SECONDS: Final = 0.1
# A replica that does not answer for so long is left alone, and its readers go to the primary.
ANSWER_SECONDS_MAX: Final = 1.0
# Without readers nobody asks.
IDLE_SECONDS: Final = 2.0
# Between two questions to a replica that failed.
_RETRY_SECONDS_MAX: Final = 2.0
# Moments that a replica has not caught up with yet: a minute of them. One that is further behind is used again when it
# has reached one of these.
_MOMENTS_KEPT: Final = 600

# `bigint` holds every position that a server will reach: it is a count of bytes.
_FLUSHED: Final = "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint"
_REPLAYED: Final = "SELECT pg_is_in_recovery(), pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint"

_log = structlog.get_logger(__name__)


class Replica:
    """Reads from one replica. Nothing that goes wrong with it comes out: the answer is None, and others are asked."""

    def __init__(self, url: str, primary: PostgresDatabase, lag_s_max: float) -> None:
        """`url` leads to one server; behind it reads are not older than `lag_s_max` seconds."""
        self._database = PostgresDatabase(url)
        self._primary = primary
        self._lag_ns_max = int(lag_s_max * 1e9)
        self._caught_up_ns = 0
        self._moments: deque[tuple[int, int]] = deque(maxlen=_MOMENTS_KEPT)
        # As many connections had been made when the replica last said where it is. One more may lead to a server that
        # was restarted, which begins behind where it was.
        self._connections = 0
        self._wanted_ns = 0
        self._pause = 0.0
        self._task: asyncio.Task[None] | None = None
        self._long: set[asyncio.Task[list[Row]]] = set()

    def serves(self, since_ns: int, now_ns: int) -> bool:
        """Whether it has all that was committed at `since_ns`, and is not too far behind. Keeps it being asked."""
        self._wanted_ns = now_ns
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._follow())
        return (
            self._caught_up_ns >= since_ns
            and now_ns - self._caught_up_ns < self._lag_ns_max
            and self._connections == self._database.connections_made
        )

    async def fetch(self, sql: str, parameters: Parameters) -> list[Row] | None:
        """All rows; None when the replica cannot say."""
        connections = self._database.connections_made
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                rows = await self._database.fetch(sql, parameters)
        except (DatabaseUnavailable, TimeoutError):
            self._caught_up_ns = 0
            return None
        return rows if connections == self._database.connections_made else None

    async def fetch_slow(self, sql: str, parameters: Parameters, client: str) -> list[Row] | None:
        """Likewise for a long read, which is given up when the replica fails. Raises `DeadlineExceeded`."""
        connections = self._database.connections_made
        task = asyncio.get_running_loop().create_task(self._database.fetch_slow(sql, parameters, client=client))
        self._long.add(task)
        task.add_done_callback(self._long.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():
            return None
        try:
            rows = task.result()
        except DatabaseUnavailable:
            self._caught_up_ns = 0
            return None
        return rows if connections == self._database.connections_made else None

    async def close(self) -> None:
        """Stop asking, and let go of the connections."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._database.close()

    async def _follow(self) -> None:
        """Ask until no reader has come for a while."""
        while time.monotonic_ns() - self._wanted_ns < IDLE_SECONDS * 1e9:
            try:
                await self._ask()
            except Exception as error:  # noqa: BLE001 - whatever it is, it will be asked again
                self._fail(type(error).__name__)
            await asyncio.sleep(self._pause or ASK_SECONDS)

    async def _ask(self) -> None:
        """Put the question, and note what the replica has caught up with."""
        asked_ns = time.monotonic_ns()
        if (flushed := await self._flushed()) is None:
            return
        connections = self._database.connections_made
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            row = await self._database.fetch_one(_REPLAYED)
        is_replica, replayed = row or (False, None)
        if not is_replica or replayed is None:
            self._fail("this server is no replica")
            return
        if replayed > flushed:
            again = await self._flushed()
            if again is not None and replayed > again:
                self._fail("it is ahead of the primary: it follows another one")
                return
        self._succeed(asked_ns, flushed, replayed)
        if connections != self._database.connections_made:
            self._caught_up_ns = 0
        self._connections = self._database.connections_made

    async def _flushed(self) -> int | None:
        """How far the primary's log is on disk; None while it does not say. Its silence is no fault of the replica."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                row = await self._primary.fetch_one(_FLUSHED)
        except (DatabaseUnavailable, TimeoutError):
            return None
        return row[0] if row else None

    def _succeed(self, asked_ns: int, flushed: int, replayed: int) -> None:
        self._moments.append((flushed, asked_ns))
        while self._moments and self._moments[0][0] <= replayed:
            _, self._caught_up_ns = self._moments.popleft()
        if self._pause:
            _log.info("replica answers again")
        self._pause = 0.0

    def _fail(self, why: str) -> None:
        """Serve nobody until it answers again, and ask it at growing intervals."""
        if not self._pause:
            _log.warning("replica is not used", reason=why)
        self._pause = min(max(2 * self._pause, ASK_SECONDS), _RETRY_SECONDS_MAX)
        self._caught_up_ns = 0
        self._moments.clear()
        for task in self._long:
            task.cancel()
