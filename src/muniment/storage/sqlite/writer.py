"""The one way by which a process writes to its SQLite file: in group commits."""

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

from muniment.errors import DatabaseUnavailable
from muniment.storage.backlog import Backlog
from muniment.storage.batching import GATHERING_SECONDS_MAX, QUIET_TURNS, TURNS_MAX, WAITING_SECONDS_MAX
from muniment.storage.sqlite.jobs import Group, Job, is_run_cleanly, run_apart

if TYPE_CHECKING:
    from muniment.storage.database import Work
    from muniment.storage.sqlite.commits import Commits

T = TypeVar("T")

# Jobs in one transaction. Beyond a few hundred the fsync is a small part of each, and the first waits for the last.
GROUP_SIZE_MAX: Final = 256
# Between two looks whether another process still writes. It commits for milliseconds, and pauses for a few tenths of
# one; SQLite's own waiting looks every tenth of a second in the end, and finds such a pause by rare chance.
LOOK_SECONDS: Final = 0.004

_log = structlog.get_logger(__name__)


class Writer:
    """Takes work from any task of any loop and commits it, group after group, in the order in which it came.

    The statements of a group run on the event loop, and a thread commits. Statements take microseconds each, like
    reads: a thread would wait for the interpreter at every one of them, and take it from the loop, which costs more
    than they do. A commit waits for the disk, and the loop serves others meanwhile. When another process is writing,
    the whole group goes to the thread, which waits for its turn.
    """

    def __init__(self, commits: Commits, *, patience_s: float) -> None:
        """Own the connection of `commits`; the thread ends with `close`. `patience_s` is for other processes."""
        self._patience_s = patience_s
        self.commits = commits
        self._connection = commits.connection
        self._queue: deque[Job] = deque()
        self._backlog = Backlog()
        # One group at a time has the connection, from its first statement to the end of its commit.
        self._is_busy = False
        # Until then this loop is waiting for more jobs to come, and starts the next one.
        self._gathering: asyncio.AbstractEventLoop | None = None
        self._closing = False
        # The thread has ended: nothing is written any more.
        self.is_over = False
        self._door = threading.Condition()  # around all of these; it is notified when a group is done
        self._given: SimpleQueue[Group | None] = SimpleQueue()
        self._in_hand: Group | None = None  # what the thread has taken, and not told of yet
        self._thread = threading.Thread(target=self._serve, name="sqlite-writer", daemon=True)
        self._thread.start()

    async def submit(self, work: Work[T], *, urgent: bool = False) -> T:
        """Wait until `work` is committed, or raise what it, or the commit, raised."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        job = Job(work, loop.create_future(), loop, now + WAITING_SECONDS_MAX)
        with self._door:
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
        """Commit what is queued, then close the connection. Blocks; not to be called on a loop that has jobs."""
        with self._door:
            self._closing = True
            while self._is_busy or self._queue:
                if group := self._take():
                    self._give(group)
                elif self._is_busy:
                    self._door.wait()
        self._given.put(None)
        self._thread.join()
        self._connection.close()

    def exchange(self, connect: Callable[[], Commits]) -> None:
        """Own another connection in place of this one, which is closed before, unless it is at work."""
        with self._door:
            if not self._is_busy and not self._closing:
                self._connection.close()
                self.commits = connect()
                self._connection = self.commits.connection

    @property
    def _is_gathering(self) -> bool:
        """Whether a loop will start the next group: one that was closed meanwhile will not."""
        return self._gathering is not None and not self._gathering.is_closed()

    def _gather(self, seen: int, quiet: int, turns: int) -> None:
        """Start the next group once the loop has turned without more coming, or often enough."""
        loop = asyncio.get_running_loop()
        with self._door:
            count = len(self._queue)
            quiet = quiet + 1 if count == seen else 0
            waits = not self._is_busy and quiet < QUIET_TURNS and turns < TURNS_MAX and self._is_early()
            self._gathering = loop if waits else None
        if waits:
            loop.call_soon(self._gather, count, quiet, turns + 1)
        else:
            self._start_next()

    def _start_next(self) -> None:
        """Run the next group, on the loop, unless one is being run or committed: the end of that one calls again."""
        with self._door:
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
                    group.let_go()
        except BaseException as error:
            self._undo(group, error)
            if not isinstance(error, Exception):  # it is meant for the loop, and the group's outcome all the same
                raise
        finally:
            self._give(group)

    def _is_early(self) -> bool:
        """Whether nobody has waited for company for longer than it is worth; the door is held."""
        oldest = self._oldest()
        return oldest is None or time.monotonic() - oldest < GATHERING_SECONDS_MAX

    def _oldest(self) -> float | None:
        """When the first of those that wait was submitted."""
        return self._queue[0].until - WAITING_SECONDS_MAX if self._queue else None

    def _take(self) -> Group | None:
        """What is queued, if nobody has the connection; the door is held. Who has waited too long is told so."""
        if self._is_busy:
            return None
        now, late = time.monotonic(), list[Job]()
        while self._queue and self._queue[0].until < now:
            late.append(self._queue.popleft())
        _refuse(late, "the database is too busy")
        if not self._queue:
            return None
        self._is_busy = True
        group = Group([self._queue.popleft() for _ in range(min(len(self._queue), GROUP_SIZE_MAX))])
        self._backlog.look(self._oldest(), now)
        return group

    def _serve(self) -> None:
        """Finish groups until it is closed. Were that to end by an error, all are told, now and later."""
        try:
            while group := self._given.get():
                self._in_hand = group
                begun = time.monotonic()
                self._finish(group)
                _report(group.jobs)
                self._in_hand = None
                self.commits.shorten_log()
                with self._door:
                    self._backlog.committed(time.monotonic() - begun)
                    self._is_busy = False
                    self._door.notify_all()
                self._call_next()
        finally:
            with self._door:
                self.is_over = self._closing = True
            if self._in_hand:
                self._given.put(self._in_hand)
            self._refuse_all()

    def _give(self, group: Group) -> None:
        """Leave the rest to the thread."""
        self._given.put(group)
        if self.is_over:
            self._refuse_all()

    def _refuse_all(self) -> None:
        """Keep nothing of what the thread, which has ended, would have finished."""
        with self._door:
            left = list(self._queue)
            self._queue.clear()
            with suppress(Empty):
                while True:
                    if group := self._given.get_nowait():
                        left += group.jobs
                        self._roll_back()
                        self._is_busy = False
            self._door.notify_all()
        _refuse(left, "the database has no writer any more")

    def _finish(self, group: Group) -> None:
        try:
            if not group.is_run and not group.is_undone:
                self._run(group)
            if not group.is_undone:
                self._make_durable()
        except BaseException as error:  # noqa: BLE001 - a thread that ended would leave every later caller waiting
            self._undo(group, error)

    def _call_next(self) -> None:
        """Have the next group run on the loop of its first job, or here if that loop is no more."""
        with self._door:
            if not self._queue or self._is_busy or self._is_gathering or self._closing:
                return
            self._gathering = loop = self._queue[0].loop
        try:
            loop.call_soon_threadsafe(self._gather, 0, 0, 0)
        except RuntimeError:  # it is closed
            with self._door:
                self._gathering = None
                group = self._take()
            if group is not None:
                self._give(group)

    def _begin_in_turn(self) -> None:
        """Open a transaction as soon as the other processes let us."""
        until = time.monotonic() + self._patience_s
        while time.monotonic() < until:
            if self.commits.begin():
                return
            time.sleep(LOOK_SECONDS)
        self._connection.execute("BEGIN IMMEDIATE")  # for the last time: what it raises is the outcome

    def _run(self, group: Group) -> None:
        """Run a group in the thread, which may wait."""
        self._begin_in_turn()
        if not group.needs_care:
            if all(is_run_cleanly(self._connection, job) for job in group.jobs):
                return
            self._connection.execute("ROLLBACK")
            self._begin_in_turn()
        for job in group.jobs:
            run_apart(self._connection, job)

    def _make_durable(self) -> None:
        """Return once the group is on disk."""
        self.commits.commit()

    def _undo(self, group: Group, error: BaseException) -> None:
        """After a failure of the database itself nothing of the group is kept, and every caller is told.

        Also those whose work was refused: the reason may be a neighbour's row, which is gone now.
        """
        group.is_undone = True
        self._roll_back()
        detail = self.commits.failed(error)
        for job in group.jobs:
            job.error = DatabaseUnavailable(detail)
        with suppress(Exception):  # a line that cannot be written is no reason to tell nobody
            _log.error("write failed", error=detail, detail=str(error), jobs=len(group.jobs))

    def _roll_back(self) -> None:
        with suppress(Exception):  # or BEGIN fails for the next group, and this is tried again
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _refuse(jobs: list[Job], detail: str) -> None:
    """Tell each that nothing of its work was kept."""
    for job in jobs:
        job.error = DatabaseUnavailable(detail)
    _report(jobs)


def _report(jobs: list[Job]) -> None:
    """Wake the callers, with one call into each event loop."""
    for loop in {job.loop for job in jobs}:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, [job for job in jobs if job.loop is loop])


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future.done():  # its caller was cancelled
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
