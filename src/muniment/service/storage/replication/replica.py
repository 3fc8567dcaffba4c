"""A streaming replica, and the time up to which it has all writes; `replicated` uses it.

At intervals this asks the primary for the position up to which its log is on disk, and the replica for the position
that it has replayed. Once the replica reaches the primary's position, it has every write that was committed when the
primary was asked: it has caught up with that time. Times are nanoseconds of the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, LiteralString

import structlog

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.postgres.engine import PostgresDatabase

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.service.running.metrics.recorder import DatabaseMetrics
    from muniment.service.storage.database import DatabaseLimits, Parameters, Row

# The pause between two checks.
ASK_SECONDS: Final = 0.1
# If a replica does not answer within this time, its readers go to the primary.
ANSWER_SECONDS_MAX: Final = 1.0
# After this time without readers the checks stop.
IDLE_SECONDS: Final = 2.0
# The longest pause between two checks of a failing replica.
_RETRY_SECONDS_MAX: Final = 2.0
# Positions of the primary that the replica has not reached yet: those of a minute. A replica that is further behind is
# used again once it reaches one of them.
_POSITIONS_KEPT: Final = 600

# A position is a number of bytes; `bigint` holds every position that a server will reach.
_FLUSHED: Final = "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint"
_REPLAYED: Final = "SELECT pg_is_in_recovery(), pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint"

# A time that is later than any lag that is allowed.
_NEVER_NS: Final = -(10**18)

_log = structlog.get_logger(__name__)


class Replica:
    """Reads from one replica. When the replica fails, the answer is None, and the caller asks the primary."""

    def __init__(
        self, url: str, primary: PostgresDatabase, lag_s_max: float, limits: DatabaseLimits, metrics: DatabaseMetrics
    ) -> None:
        """`url` names one server; its reads are at most `lag_s_max` seconds old."""
        self._database = PostgresDatabase(url, limits, metrics=metrics)
        self._metrics = metrics
        # As `_caught_up_ns`, but a failure does not change it.
        self._had_caught_up_ns = 0
        self._primary = primary
        self._lag_ns_max = int(lag_s_max * 1e9)
        self._caught_up_ns = _NEVER_NS
        self._positions: deque[tuple[int, int]] = deque(maxlen=_POSITIONS_KEPT)
        # `connections_made` at the replica's last answer about its position. A new connection may lead to a restarted
        # server, which begins at an earlier position.
        self._connections = 0
        self._wanted_ns = 0
        self._retry_seconds = 0.0
        self._task: asyncio.Task[None] | None = None
        self._long_reads: set[asyncio.Task[list[Row]]] = set()

    def serves(self, now_ns: int) -> bool:
        """Whether it answers, and is not too late. Keeps the checks running."""
        self._wanted_ns = now_ns
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._follow())
        is_late = now_ns - self._caught_up_ns >= self._lag_ns_max
        return not is_late and self._connections == self._database.connections_made

    async def fetch(self, sql: LiteralString, parameters: Parameters) -> list[Row] | None:
        """All rows; None when the replica fails."""
        connections = self._database.connections_made
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                rows = await self._database.fetch(sql, parameters)
        except (DatabaseUnavailable, TimeoutError):
            self._caught_up_ns = _NEVER_NS
            return None
        return rows if connections == self._database.connections_made else None

    def charge_long_reads(self, owe: Callable[[str, int], object]) -> None:
        """Call `owe` with the time that each long read for a client takes the replica."""
        self._database.charge_long_reads(owe)

    async def fetch_slow(self, sql: LiteralString, parameters: Parameters, client: str) -> list[Row] | None:
        """All rows of a long read; None when the replica fails. Raises `DeadlineExceeded`."""
        connections = self._database.connections_made
        task = asyncio.get_running_loop().create_task(self._database.fetch_slow(sql, parameters, client=client))
        self._long_reads.add(task)
        task.add_done_callback(self._long_reads.discard)
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
            self._caught_up_ns = _NEVER_NS
            return None
        return rows if connections == self._database.connections_made else None

    async def close(self) -> None:
        """Stop the checks, and close the connections."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._database.close()

    async def _follow(self) -> None:
        """Check the replica at intervals, until it has had no reader for `IDLE_SECONDS`."""
        self._had_caught_up_ns = time.monotonic_ns()
        while (now_ns := time.monotonic_ns()) - self._wanted_ns < IDLE_SECONDS * 1e9:
            self._metrics.show_lag((now_ns - self._had_caught_up_ns) / 1e9)
            try:
                await self._ask()
            except Exception as error:  # noqa: BLE001 - after any error the replica is asked again
                self._fail(type(error).__name__)
            await asyncio.sleep(self._retry_seconds or ASK_SECONDS)
        self._metrics.show_lag(None)

    async def _ask(self) -> None:
        """Ask both servers for their positions, and note the time with which the replica has caught up."""
        asked_ns = time.monotonic_ns()
        if (flushed := await self._flushed()) is None:
            return
        connections = self._database.connections_made
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            row = await self._database.fetch_one(_REPLAYED)
        is_replica, replayed = row or (False, None)
        if not is_replica or replayed is None:
            self._fail("this server is not a replica")
            return
        if replayed > flushed:
            again = await self._flushed()
            if again is not None and replayed > again:
                self._fail("it is ahead of the primary: it follows another server")
                return
        self._succeed(asked_ns, flushed, replayed)
        if connections != self._database.connections_made:
            self._caught_up_ns = _NEVER_NS
        self._connections = self._database.connections_made

    async def _flushed(self) -> int | None:
        """The position up to which the primary's log is on disk; None if the primary fails."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                row = await self._primary.fetch_one(_FLUSHED)
        except (DatabaseUnavailable, TimeoutError):
            return None
        return row[0] if row else None

    def _succeed(self, asked_ns: int, flushed: int, replayed: int) -> None:
        self._positions.append((flushed, asked_ns))
        while self._positions and self._positions[0][0] <= replayed:
            _, self._caught_up_ns = self._positions.popleft()
            self._had_caught_up_ns = self._caught_up_ns
        if self._retry_seconds:
            _log.info("replica answers again")
        self._retry_seconds = 0.0

    def _fail(self, why: str) -> None:
        """Refuse readers until the replica answers again, and check it at growing intervals."""
        if not self._retry_seconds:
            _log.warning("replica is not used", reason=why)
        self._retry_seconds = min(max(2 * self._retry_seconds, ASK_SECONDS), _RETRY_SECONDS_MAX)
        self._caught_up_ns = _NEVER_NS
        self._positions.clear()
        for task in self._long_reads:
            task.cancel()
