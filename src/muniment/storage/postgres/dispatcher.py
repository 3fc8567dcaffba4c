"""A few connections and what waits for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from muniment.storage.batching import GATHERING_SECONDS_MAX, QUIET_TURNS, TURNS_MAX

if TYPE_CHECKING:
    from muniment.storage.postgres.slot import Line

G = TypeVar("G")

# What waits no longer for company: so long that a commit is over by then, unless it waits for somebody's lock.
PATIENCE_SECONDS: Final = 0.005


class Lanes(Generic[G]):
    """Serves groups of what waits, on as many connections as it was given.

    A connection takes a group in the next turn of the event loop, so what arrives in one turn travels together (where a
    group has a worth, it waits until turns bring no more); then whatever has gathered, until nothing waits. While one
    is on its way, another sets off only with a group that is worth its round trips; fewer go with the first one when
    that comes back.
    """

    def __init__(
        self,
        lines: list[Line],
        next_group: Callable[[], G | None],
        serve: Callable[[Line, G], Awaitable[None]],
        *,
        waiting: Callable[[], int],
        worth: int = 1,
    ) -> None:
        """`next_group` takes what waits, None when nothing does; `serve` never raises; `waiting` is how many wait.

        `worth` is how many must wait before another connection sets off for them, or else they wait a little.
        """
        self._lines = lines
        self._idle = list(lines)
        self._next_group = next_group
        self._serve = serve
        self._waiting = waiting
        self._worth = worth
        self._starting = False
        self._patience: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Something waits. One connection sets off for it at a time."""
        if self._starting or not self._idle:
            return
        if self._waiting() >= self._worth or len(self._idle) == len(self._lines):
            self._set_off()
        elif self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._lose_patience)

    def _lose_patience(self) -> None:
        """Set off with those who still wait: the connection that is on its way does not come back for them."""
        self._patience = None
        if self._waiting() and self._idle and not self._starting:
            self._set_off()

    def _set_off(self) -> None:
        self._starting = True
        task = asyncio.get_running_loop().create_task(self._run(self._idle.pop()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, line: Line) -> None:
        try:
            try:
                if self._worth > 1:
                    await self._gather()
            finally:
                self._starting = False
            while (group := self._next_group()) is not None:
                if self._waiting():  # of another kind, or too many for one group
                    self.wake()
                await self._serve(line, group)
        finally:
            self._idle.append(line)

    async def _gather(self) -> None:
        """Wait as long as the loop turns with more coming, within bounds."""
        seen, quiet = self._waiting(), 0
        until = time.monotonic() + GATHERING_SECONDS_MAX
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            count = self._waiting()
            quiet = quiet + 1 if count == seen else 0
            if quiet == QUIET_TURNS or time.monotonic() > until:
                return
            seen = count

    async def close(self) -> None:
        """Serve what waits, then close the connections."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._patience is not None:
            self._patience.cancel()
        for line in self._lines:
            await line.close()
