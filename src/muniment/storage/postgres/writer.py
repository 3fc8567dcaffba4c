"""Writes in group commits: what waits at the same moment shares a transaction, on a few fixed connections.

When one of a group fails, the group is undone and each is done by itself, so that no neighbour pays for it.
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
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from muniment.errors import DatabaseUnavailable
from muniment.storage.backlog import Backlog
from muniment.storage.batching import WAITING_SECONDS_MAX
from muniment.storage.postgres.dispatcher import Lanes
from muniment.storage.postgres.slot import DRIVER_ERRORS, Door, Line, as_raised, is_read_only, is_worth_again, reason
from muniment.storage.postgres.transaction import CommitLost, commit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.storage.database import Work
    from muniment.storage.postgres.jobs import Run
    from muniment.storage.postgres.statements import Texts

T = TypeVar("T")

# Connections for writes: one group on its way to the disk while the next is being done.
WRITE_LINES: Final = 2
# Jobs in one transaction, as on SQLite: beyond a few hundred the commit is a small part of each.
GROUP_SIZE_MAX: Final = 256
# Jobs that make a group worth its round trips while another group is on its way.
WORTH_A_LINE: Final = 8
# A deadlock has one victim, and it begins again; five in a row are not by chance.
TRIES_MAX: Final = 5
# Before work that was a deadlock's victim begins again, by chance up to this, then twice this, …: two that come back at
# once would meet again.
_PAUSE_SECONDS: Final = 0.02

_ORDER: Final = attrgetter("order")

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Job:
    """A piece of work, where its caller waits, and until when it may begin."""

    work: Work[Any]
    order: bytes
    future: asyncio.Future[Any]
    until: float

    def tell(self, error: BaseException | None, result: object = None) -> None:
        """Wake the caller, unless it went away."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Writer:
    """Does the writes of one process to one database."""

    def __init__(self, door: Door, texts: Texts) -> None:
        """Connections are made when they are needed."""
        self._texts = texts
        # When a group that changed something was last committed, by the monotonic clock.
        self.succeeded_at = -math.inf
        self._waiting: deque[_Job] = deque()
        self._backlog = Backlog()
        lines = [Line(door) for _ in range(WRITE_LINES)]
        self._lanes = Lanes(lines, self._next, self._serve, waiting=self._waiting.__len__, worth=WORTH_A_LINE)

    def submit(self, work: Work[T], order: bytes, *, urgent: bool = False) -> asyncio.Future[T]:
        """What `work` returned or raised, once it is committed."""
        now = time.monotonic()
        self._backlog.check(len(self._waiting), self._oldest(), now, urgent=urgent)
        job = _Job(work, order, asyncio.get_running_loop().create_future(), now + WAITING_SECONDS_MAX)
        self._waiting.append(job)
        self._lanes.wake()
        return job.future

    async def close(self) -> None:
        """Do what waits, then close the connections."""
        await self._lanes.close()

    def _oldest(self) -> float | None:
        """When the first of those that wait was submitted."""
        return self._waiting[0].until - WAITING_SECONDS_MAX if self._waiting else None

    def _next(self) -> list[_Job] | None:
        count = min(len(self._waiting), GROUP_SIZE_MAX)
        jobs = [self._waiting.popleft() for _ in range(count)]
        self._backlog.look(self._oldest(), time.monotonic())
        jobs.sort(key=_ORDER)  # stable: of equal keys the first goes first
        return jobs or None

    async def _serve(self, line: Line, jobs: list[_Job], *, may_guess: bool = True) -> None:
        """Do `jobs` together, or else one by one."""
        begun = time.monotonic()
        try:
            outcomes = await self._commit(line, jobs, may_guess=may_guess)
            self._backlog.committed(time.monotonic() - begun)
        except Exception as error:  # noqa: BLE001 - whatever it is, these callers wait for it, and others for the line
            if len(jobs) == 1 or isinstance(error, DatabaseUnavailable):
                _fail(jobs, error)
                return
            outcomes = None
        if outcomes is None:
            for job in jobs:
                await self._serve(line, [job], may_guess=may_guess)
            return
        if any(outcome is not None and outcome.changed for outcome in outcomes):
            self.succeeded_at = time.monotonic()
        again: list[_Job] = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            if outcome is None:
                again.append(job)
            else:
                job.tell(outcome.error, outcome.result)
        if again:
            await self._serve(line, again, may_guess=False)

    async def _commit(self, line: Line, jobs: list[_Job], *, may_guess: bool) -> Sequence[Run | None] | None:
        """What came of each, None for those that must be done again; None or an error: one by one.

        Raises `DatabaseUnavailable` for all of them when it is the database that fails.
        """
        last: BaseException | None = None
        until = min(job.until for job in jobs)
        for turn in range(TRIES_MAX):
            if time.monotonic() > until:
                break
            try:
                works = [job.work for job in jobs]
                return await commit(await line.open(), self._texts, works, may_guess=may_guess)
            except CommitLost as error:
                raise DatabaseUnavailable(
                    "the database was lost while it committed: read whether the change is there"
                ) from error
            except DRIVER_ERRORS as error:
                if turn and is_read_only(error):  # a new session is, too
                    raise as_raised(error) from None
                last = error
                if line.lost(error):
                    continue
                if len(jobs) > 1:
                    return None
                if not is_worth_again(error):
                    raise as_raised(error) from None
                await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS * 2**turn))  # noqa: S311 - any chance will do
        if last is None:
            raise DatabaseUnavailable("the database is too busy")
        raise as_raised(last)


def _fail(jobs: list[_Job], error: Exception) -> None:
    """Tell each of them; an exception of its own, since each adds to its traceback."""
    for job in jobs:
        own = DatabaseUnavailable(error.detail) if isinstance(error, DatabaseUnavailable) else error
        job.tell(own)
    with suppress(Exception):  # a line that cannot be written is no reason to serve nobody else
        _log.error("write failed", error=reason(error.__cause__ or error), detail=str(error), jobs=len(jobs))
