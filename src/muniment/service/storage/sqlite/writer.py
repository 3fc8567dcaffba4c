"""Queues the writes of one SQLite file, and commits them in groups; `engine` calls it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.backlog import Backlog
from muniment.service.storage.batching import GATHERING_SECONDS_MAX, ITERATIONS_MAX, QUIET_ITERATIONS
from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits
from muniment.service.storage.sqlite.jobs import Group, Job, is_run_cleanly, run_apart

if TYPE_CHECKING:
    from muniment.service.storage.database import Work
    from muniment.service.storage.sqlite.commits import Commits

T = TypeVar("T")

# The pause between two attempts to begin while another process writes. That process commits for milliseconds and pauses
# for tenths of one. SQLite's own wait grows to a tenth of a second between attempts, and rarely meets such a pause.
LOOK_SECONDS: Final = 0.004

_log = structlog.get_logger(__name__)


class Writer:
    """Takes works from the tasks of any event loop and commits them in groups, in the order of their arrival.

    The statements of a group run on the event loop: each takes microseconds, less than handing the interpreter lock to
    a thread. A thread commits, so that the loop serves other requests while the commit waits for the disk. If another
    process is writing, the whole group goes to the thread, which waits for the write lock.
    """

    def __init__(self, commits: Commits, *, patience_s: float, limits: DatabaseLimits = DATABASE_LIMITS) -> None:
        """Own the connection of `commits`, and start the thread. `patience_s` is the wait for other processes."""
        self._patience_s = patience_s
        self._limits = limits
        self.commits = commits
        self._connection = commits.connection
        self._queue: deque[Job] = deque()
        commits.metrics.show_queue(self._queue.__len__)
        self._backlog = Backlog(limits)
        # One group at a time has the connection, from its first statement to the end of its commit.
        self._is_busy = False
        # The loop that gathers jobs for the next group, if one does.
        self._gathering: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self.after_commit: Callable[[], object] = bool
        # The thread has ended: there are no more writes.
        self.is_over = False
        self._lock = threading.RLock()  # guards all of these
        self._ended = threading.Condition(self._lock)  # notified when a group has ended
        self._handed_over: SimpleQueue[Group | None] = SimpleQueue()
        self._finishing: Group | None = None  # the group of the thread, whose callers have no outcome yet
        self._thread = threading.Thread(target=self._serve, name="sqlite-writer", daemon=True)
        self._thread.start()

    async def submit(self, work: Work[T], *, urgent: bool = False) -> T:
        """The result of `work` once it is committed. Raises the error of the work, or of the commit."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        job = Job(work, loop.create_future(), loop, now + self._limits.write_wait_seconds_max)
        with self._lock:
            if self._closing:
                raise DatabaseUnavailable("the database is closed")
            self._backlog.check(len(self._queue), self._oldest(), now, urgent=urgent)
            self._queue.append(job)
            is_first = not self._is_gathering and not self._is_busy
            if is_first:
                self._gathering = loop
        if is_first:
            loop.call_soon(self._gather, 0, 0, 0)
        return await job.future

    def close(self) -> None:
        """Commit the queue, then close the connection. Blocks, so never call it on a loop with jobs."""
        with self._lock:
            self._closing = True
            while self._is_busy or self._queue:
                if group := self._take():
                    self._give(group)
                elif self._is_busy:
                    self._ended.wait()
        self._handed_over.put(None)
        self._thread.join()
        self._connection.close()

    def exchange(self, connect: Callable[[], Commits]) -> None:
        """Replace the connection by the one that `connect` makes, unless it is busy."""
        with self._lock:
            if not self._is_busy and not self._closing:
                self._connection.close()
                self.commits = connect()
                self._connection = self.commits.connection

    @property
    def _is_gathering(self) -> bool:
        """Whether a loop will start the next group; a closed loop will not."""
        return self._gathering is not None and not self._gathering.is_closed()

    def _gather(self, seen: int, quiet: int, iterations: int) -> None:
        """Start the next group after enough iterations of the loop without new jobs, or after enough of any kind."""
        loop = asyncio.get_running_loop()
        with self._lock:
            count = len(self._queue)
            quiet = quiet + 1 if count == seen else 0
            waits = not self._is_busy and quiet < QUIET_ITERATIONS and iterations < ITERATIONS_MAX and self._is_early()
            self._gathering = loop if waits else None
        if waits:
            loop.call_soon(self._gather, count, quiet, iterations + 1)
        else:
            self._start_next()

    def _start_next(self) -> None:
        """Run the next group on the loop. If a group is in progress, its end calls this again."""
        with self._lock:
            group = self._take()
        if group is None:
            return
        try:
            if self.commits.begin():
                group.is_run = all(is_run_cleanly(self._connection, job) for job in group.jobs)
                if not group.is_run:
                    group.needs_care = True
                    self._connection.execute("ROLLBACK")
                else:
                    group.drop_works()
        except BaseException as error:
            self._undo(group, error)
            if not isinstance(error, Exception):  # such as Ctrl-C, which also ends the loop
                raise
        finally:
            self._give(group)

    def _is_early(self) -> bool:
        """Whether the oldest job may wait longer for others. Call it with the lock."""
        oldest = self._oldest()
        return oldest is None or time.monotonic() - oldest < GATHERING_SECONDS_MAX

    def _oldest(self) -> float | None:
        """The monotonic time at which the first job of the queue was submitted."""
        return self._queue[0].until - self._limits.write_wait_seconds_max if self._queue else None

    def _take(self) -> Group | None:
        """The next group, if the connection is free; refuses jobs that waited for too long. Call it with the lock."""
        if self._is_busy:
            return None
        now, late = time.monotonic(), list[Job]()
        while self._queue and self._queue[0].until < now:
            late.append(self._queue.popleft())
        _refuse(late, "the database is too busy")
        if not self._queue:
            return None
        self._is_busy = True
        count = min(len(self._queue), self._limits.writes_per_group_max)
        group = Group([self._queue.popleft() for _ in range(count)])
        self._backlog.look(self._oldest(), now)
        return group

    def _serve(self) -> None:
        """Finish groups until the writer is closed. If an error ends the thread, refuse all jobs from then on."""
        try:
            while group := self._handed_over.get():
                self._finishing = group
                begun = time.monotonic()
                self._finish(group)
                self.commits.metrics.wrote(time.monotonic() - begun, len(group.jobs))
                _report(group.jobs)
                self.after_commit()
                self._finishing = None
                self.commits.shorten_log()
                with self._lock:
                    self._backlog.committed(time.monotonic() - begun)
                    self._is_busy = False
                    self._ended.notify_all()
                self._call_next()
        finally:
            with self._lock:
                self.is_over = self._closing = True
            if self._finishing:
                self._handed_over.put(self._finishing)
            self._refuse_all()

    def _give(self, group: Group) -> None:
        """Give a group to the thread, which finishes it."""
        self._handed_over.put(group)
        if self.is_over:
            self._refuse_all()

    def _refuse_all(self) -> None:
        """Undo and refuse all jobs, because the thread has ended."""
        with self._lock:
            left = list(self._queue)
            self._queue.clear()
            with suppress(Empty):
                while True:
                    if group := self._handed_over.get_nowait():
                        left += group.jobs
                        self._roll_back()
                        self._is_busy = False
            self._ended.notify_all()
        _refuse(left, "the database no longer has a writer")

    def _finish(self, group: Group) -> None:
        try:
            if not group.is_run and not group.is_undone:
                self._run(group)
            if not group.is_undone:
                self._make_durable()
        except BaseException as error:  # noqa: BLE001 - the thread must go on: every later caller waits for it
            self._undo(group, error)

    def _call_next(self) -> None:
        """Start the next group on the loop of its first job, or on this thread if that loop is closed."""
        with self._lock:
            if not self._queue or self._is_busy or self._is_gathering or self._closing:
                return
            self._gathering = loop = self._queue[0].loop
        try:
            loop.call_soon_threadsafe(self._gather, 0, 0, 0)
        except RuntimeError:  # it is closed
            with self._lock:
                self._gathering = None
                group = self._take()
            if group is not None:
                self._give(group)

    def _begin_when_free(self) -> None:
        """Begin a transaction once no other process is writing."""
        until = time.monotonic() + self._patience_s
        while time.monotonic() < until:
            if self.commits.begin():
                return
            time.sleep(LOOK_SECONDS)
        self._connection.execute("BEGIN IMMEDIATE")  # the last attempt, which raises

    def _run(self, group: Group) -> None:
        """Run a group on the thread, which may wait for other processes."""
        self._begin_when_free()
        if not group.needs_care:
            if all(is_run_cleanly(self._connection, job) for job in group.jobs):
                return
            self._connection.execute("ROLLBACK")
            self._begin_when_free()
        for job in group.jobs:
            run_apart(self._connection, job)

    def _make_durable(self) -> None:
        """Return once the group is on disk."""
        self.commits.commit()

    def _undo(self, group: Group, error: BaseException) -> None:
        """Undo a group after a failure of the database itself, and give each caller the failure.

        This includes callers whose work was refused: the reason may be a row of another job, which is undone now.
        """
        group.is_undone = True
        self._roll_back()
        detail = self.commits.failed(error)
        for job in group.jobs:
            job.error = DatabaseUnavailable(detail)
        with suppress(Exception):  # a failing log must not keep the callers waiting
            _log.error("write failed", error=detail, detail=str(error), jobs=len(group.jobs))

    def _roll_back(self) -> None:
        with suppress(Exception):  # if it fails, the BEGIN of the next group fails too
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _refuse(jobs: list[Job], detail: str) -> None:
    """Refuse jobs that have not run."""
    for job in jobs:
        job.error = DatabaseUnavailable(detail)
    _report(jobs)


def _report(jobs: list[Job]) -> None:
    """Give each caller its outcome, with one call per event loop."""
    for loop in {job.loop for job in jobs}:
        with suppress(RuntimeError):  # the loop is closed, and its callers have ended
            loop.call_soon_threadsafe(_resolve, [job for job in jobs if job.loop is loop])


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future.done():  # the caller was cancelled
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
