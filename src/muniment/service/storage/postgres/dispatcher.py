"""Starts the next group of reads or writes when a connection is free; `read_queue` and `writer` each have a dispatcher.

The queue belongs to the caller. The dispatcher only decides when to take a group from it, and on which connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from muniment.service.storage.batching import GATHERING_SECONDS_MAX, ITERATIONS_MAX, QUIET_ITERATIONS

if TYPE_CHECKING:
    from muniment.service.storage.postgres.slot import Slot

G = TypeVar("G")

# How long a group below the minimum size waits for a busy slot. A commit takes less, unless it waits for a lock.
SMALL_GROUP_SECONDS_MAX: Final = 0.005


class Dispatcher(Generic[G]):
    """Serves groups on a fixed set of slots.

    A slot takes its first group in the next iteration of the event loop, so that the group holds all requests of this
    iteration. With a minimum size, the slot first waits until no more requests arrive. Then it takes group after group
    until the queue is empty. While one slot is busy, a second one starts only for a group of the minimum size; a
    smaller group waits for the busy slot, up to `small_group_seconds_max`.
    """

    def __init__(
        self,
        slots: list[Slot],
        next_group: Callable[[], G | None],
        serve: Callable[[Slot, G], Awaitable[None]],
        *,
        queue_length: Callable[[], int],
        size_min: int = 1,
        small_group_seconds_max: float = SMALL_GROUP_SECONDS_MAX,
    ) -> None:
        """`next_group` takes a group from the queue, None when the queue is empty; `serve` never raises.

        `size_min` is the queue length at which a second slot starts while the first is busy.
        """
        self._slots = slots
        self._idle = list(slots)
        self._next_group = next_group
        self._serve = serve
        self._queue_length = queue_length
        self._size_min = size_min
        self._small_group_seconds_max = small_group_seconds_max
        self._is_starting = False
        self._small_group_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Start a slot for the queue, if one is due. One slot starts at a time."""
        if self._is_starting or not self._idle:
            return
        if self._queue_length() >= self._size_min or len(self._idle) == len(self._slots):
            self._start_slot()
        elif self._small_group_timer is None:
            loop = asyncio.get_running_loop()
            self._small_group_timer = loop.call_later(self._small_group_seconds_max, self._start_small_group)

    def _start_small_group(self) -> None:
        """Start a slot for a small group, because the busy slot took too long."""
        self._small_group_timer = None
        if self._queue_length() and self._idle and not self._is_starting:
            self._start_slot()

    def _start_slot(self) -> None:
        self._is_starting = True
        task = asyncio.get_running_loop().create_task(self._serve_groups(self._idle.pop()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_groups(self, slot: Slot) -> None:
        """Serve group after group until the queue is empty."""
        try:
            try:
                if self._size_min > 1:
                    await self._gather()
            finally:
                self._is_starting = False
            while (group := self._next_group()) is not None:
                if self._queue_length():  # reads of another statement, or too many for one group
                    self.wake()
                await self._serve(slot, group)
        finally:
            self._idle.append(slot)

    async def _gather(self) -> None:
        """Wait while each iteration of the event loop brings more requests, within bounds."""
        last_length, quiet = self._queue_length(), 0
        until = time.monotonic() + GATHERING_SECONDS_MAX
        for _ in range(ITERATIONS_MAX):
            await asyncio.sleep(0)
            length = self._queue_length()
            quiet = quiet + 1 if length == last_length else 0
            if quiet == QUIET_ITERATIONS or time.monotonic() > until:
                return
            last_length = length

    async def close(self) -> None:
        """Serve the queue until it is empty, then close the connections."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._small_group_timer is not None:
            self._small_group_timer.cancel()
        for slot in self._slots:
            await slot.close()
