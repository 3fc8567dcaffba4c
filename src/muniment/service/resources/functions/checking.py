"""Checks modules, one at a time per creator, so that no creator waits for the many uploads of another.

A check takes a core for up to a few seconds. It runs in a thread, because the validator lets other threads run, and a
separate process would hold 55 MB for rare uploads.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from muniment.protocol.errors import TooManyUploads
from muniment.protocol.evm.address import Address

# How long an upload waits for other uploads of its creator before it is refused.
QUEUE_SECONDS_MAX: Final = 5.0


class Checks:
    """Runs checks concurrently, at most one per creator."""

    def __init__(self, concurrent_max: int, name: str, *, queue_seconds_max: float = QUEUE_SECONDS_MAX) -> None:
        """Run at most `concurrent_max` checks concurrently, in threads with names that begin with `name`.

        An upload waits at most `queue_seconds_max` for others of its creator.
        """
        self._queue_seconds_max = queue_seconds_max
        self._threads = ThreadPoolExecutor(concurrent_max, thread_name_prefix=name)
        self._free = concurrent_max
        self._busy: set[Address] = set()
        # Waiting uploads by creator, in the order in which creators are served.
        self._waiting: OrderedDict[Address, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, creator: Address, check: Callable[[], None]) -> None:
        """Run `check` in a thread when it is the turn of `creator`; its error is raised here.

        Raises `TooManyUploads` for an upload that waited too long for others of its creator.
        """
        await self._turn(creator)
        job = asyncio.get_running_loop().run_in_executor(self._threads, check)
        # The turn ends with the thread: the check continues after its client disconnects.
        job.add_done_callback(lambda _: self._end(creator))
        await asyncio.shield(job)

    async def _turn(self, creator: Address) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(creator, deque()).append(turn)
        self._serve()
        try:
            if not turn.done():
                await asyncio.wait({turn}, timeout=self._queue_seconds_max)
                self._refuse_late(creator, turn)
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._end(creator)
            else:
                self._forget(creator, turn)
            raise

    def _refuse_late(self, creator: Address, turn: asyncio.Future[None]) -> None:
        if not turn.done() and self._waiting[creator][0] is not turn:
            raise TooManyUploads(
                f"your uploads have waited for over {self._queue_seconds_max:.0f} s; send them one after the other",
                facts={"retryAfter": round(self._queue_seconds_max)},
            )

    def _serve(self) -> None:
        """Give the free turns to the creators whose last turn was longest ago."""
        for creator in [each for each in self._waiting if each not in self._busy][: self._free]:
            turn = self._waiting[creator].popleft()
            if not self._waiting[creator]:
                del self._waiting[creator]
            self._free -= 1
            self._busy.add(creator)
            turn.set_result(None)

    def _end(self, creator: Address) -> None:
        self._free += 1
        self._busy.discard(creator)
        if creator in self._waiting:
            self._waiting.move_to_end(creator)
        self._serve()

    def _forget(self, creator: Address, turn: asyncio.Future[None]) -> None:
        self._waiting[creator].remove(turn)
        if not self._waiting[creator]:
            del self._waiting[creator]
