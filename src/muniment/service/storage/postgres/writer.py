"""Queues the writes of one database, and commits them in groups; `engine` calls it.

The `InsertOnce` of a group share a query and an INSERT, its other works share a transaction. When that fails, it is
undone and each of its works runs alone, so that one failing work does not fail the others.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import structlog

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.backlog import Backlog
from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits, InsertOnce
from muniment.service.storage.postgres.dispatcher import Dispatcher
from muniment.service.storage.postgres.driver_errors import (
    DRIVER_ERRORS,
    error_name,
    for_caller,
    is_read_only,
    is_retryable,
)
from muniment.service.storage.postgres.slot import Connector, Slot
from muniment.service.storage.postgres.transaction import CommitLost, commit_inserts, commit_works

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from muniment.service.running.metrics.recorder import DatabaseMetrics, Histogram
    from muniment.service.storage.database import Work
    from muniment.service.storage.postgres.connection import Connection
    from muniment.service.storage.postgres.statements import Statements
    from muniment.service.storage.postgres.transaction import Outcome

T = TypeVar("T")
_Commit: TypeAlias = "Callable[[Connection, Statements, Sequence[Any], Histogram], Awaitable[list[Outcome | None]]]"

# Connections for writes: while one group waits for the disk, the next one runs.
WRITE_SLOTS: Final = 2
# Queued jobs at which the second connection starts while the first is busy: fewer are not worth its round trips.
SECOND_GROUP_SIZE_MIN: Final = 8
# The victim of a deadlock begins again. Five deadlocks in a row are no coincidence.
TRIES_MAX: Final = 5
# The pause of a deadlock's victim is random, up to this, then twice this, …: otherwise the same two would meet again.
_PAUSE_SECONDS: Final = 0.02

_ORDER: Final = attrgetter("order")

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Job:
    """A work, the future that its caller awaits, and the time (monotonic, in seconds) by which it must begin."""

    work: Work[Any]
    order: bytes
    future: asyncio.Future[Any]
    until: float

    def resolve(self, error: BaseException | None, result: object = None) -> None:
        """Give the outcome to the caller, unless the caller was cancelled."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Writer:
    """Commits the writes of one process to one database."""

    def __init__(
        self, connector: Connector, statements: Statements, limits: DatabaseLimits = DATABASE_LIMITS,
        *, metrics: DatabaseMetrics,
    ) -> None:  # fmt: skip
        """Connect on first use."""
        self._metrics = metrics
        self._statements = statements
        self._limits = limits
        # The monotonic time of the last commit that changed anything.
        self.succeeded_at = -math.inf
        self.after_commit: Callable[[], object] = bool
        self._queue: deque[_Job] = deque()
        metrics.show_queue(self._queue.__len__)
        self._backlog = Backlog(limits)
        slots = [Slot(connector) for _ in range(WRITE_SLOTS)]
        self._dispatcher = Dispatcher(
            slots, self._next_group, self._serve, queue_length=self._queue.__len__, size_min=SECOND_GROUP_SIZE_MIN
        )

    def submit(self, work: Work[T], order: bytes, *, urgent: bool = False) -> asyncio.Future[T]:
        """The result of `work` once it is committed, or the error that it raised. Raises `Overloaded`."""
        now = time.monotonic()
        self._backlog.check(len(self._queue), self._oldest(), now, urgent=urgent)
        until = now + self._limits.write_wait_seconds_max
        job = _Job(work, order, asyncio.get_running_loop().create_future(), until)
        self._queue.append(job)
        self._dispatcher.wake()
        return job.future

    async def close(self) -> None:
        """Commit the writes in the queue, then close the connections."""
        await self._dispatcher.close()

    def _oldest(self) -> float | None:
        """The monotonic time at which the first job of the queue was submitted."""
        return self._queue[0].until - self._limits.write_wait_seconds_max if self._queue else None

    def _next_group(self) -> list[_Job] | None:
        count = min(len(self._queue), self._limits.writes_per_group_max)
        jobs = [self._queue.popleft() for _ in range(count)]
        self._backlog.look(self._oldest(), time.monotonic())
        jobs.sort(key=_ORDER)  # stable: jobs with equal keys keep their order
        return jobs or None

    async def _serve(self, slot: Slot, jobs: list[_Job]) -> None:
        """Commit `jobs`, and give each caller its outcome."""
        alike: dict[object, list[_Job]] = {}
        left: list[_Job] = []
        for job in jobs:
            if isinstance(job.work, InsertOnce):
                insert = cast("InsertOnce[Any]", job.work)
                alike.setdefault((insert.look_up, insert.table), []).append(job)
            else:
                left.append(job)
        for inserts in alike.values():
            missed = await self._commit(slot, inserts, commit_inserts)
            left += await self._commit(slot, missed, commit_inserts)  # it finds the row of a writer that came first
        left.sort(key=_ORDER)
        for job in await self._commit(slot, left, commit_works):
            await self._commit(slot, [job], commit_works)

    async def _commit(self, slot: Slot, jobs: list[_Job], commit: _Commit) -> list[_Job]:
        """Commit `jobs`, and give their callers their outcomes; the jobs that have none, and changed nothing."""
        if not jobs:
            return []
        begun = time.monotonic()
        try:
            outcomes = await self._outcomes(slot, jobs, commit)
        except Exception as error:  # noqa: BLE001 - every caller must get an outcome, and later groups need the slot
            if len(jobs) > 1 and not isinstance(error, DatabaseUnavailable):
                return jobs
            self._metrics.fail("write")
            _fail(jobs, error)
            return []
        self._backlog.committed(time.monotonic() - begun)
        self._metrics.wrote(time.monotonic() - begun, len(jobs))
        if any(outcome is not None and outcome.has_changed for outcome in outcomes):
            self.succeeded_at = time.monotonic()
            self.after_commit()
        left: list[_Job] = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            if outcome is None:
                left.append(job)
            else:
                job.resolve(outcome.error, outcome.result)
        return left

    async def _outcomes(self, slot: Slot, jobs: list[_Job], commit: _Commit) -> list[Outcome | None]:
        """The outcomes of `commit`, with further attempts after a lost connection or a deadlock.

        Raises `DatabaseUnavailable` when the database fails: then no job could succeed alone either. Raises any other
        error only when nothing was changed.
        """
        last: BaseException | None = None
        until = min(job.until for job in jobs)
        works = [job.work for job in jobs]
        for attempt in range(TRIES_MAX):
            if time.monotonic() > until:
                break
            try:
                return await commit(await slot.open(), self._statements, works, self._metrics.commits)
            except CommitLost as error:
                raise DatabaseUnavailable(
                    "the database was lost while it committed: read the record to see whether it was changed"
                ) from error
            except DRIVER_ERRORS as error:
                # The first attempt may have met a connection from before a failover.
                if attempt and is_read_only(error):
                    raise for_caller(error) from None
                last = error
                if slot.drop_if_lost(error):
                    continue
                if len(jobs) > 1:
                    return [None] * len(jobs)
                if not is_retryable(error):
                    raise for_caller(error) from None
                await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS * 2**attempt))  # noqa: S311 - no secret
        if last is None:
            raise DatabaseUnavailable("the database is too busy")
        raise for_caller(last)


def _fail(jobs: list[_Job], error: Exception) -> None:
    """Give each caller the error, as a separate exception, because each caller adds to its traceback."""
    for job in jobs:
        own = DatabaseUnavailable(error.detail) if isinstance(error, DatabaseUnavailable) else error
        job.resolve(own)
    with suppress(Exception):  # a log that cannot be written must not stop the writer
        _log.error("write failed", error=error_name(error.__cause__ or error), detail=str(error), jobs=len(jobs))
