"""Who may have a module checked next: creators in rounds, so that nobody waits behind another's many uploads.

A check takes a core for up to a few seconds. It runs in a thread: the validator lets others run meanwhile, and a
process of its own would hold its 55 MB for uploads that are rare.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from muniment.errors import TooManyUploads
from muniment.evm.address import Address

# How long an upload waits behind others of its own creator before it is refused.
QUEUE_SECONDS_MAX: Final = 5.0


class Checks:
    """Checks that run at the same time, at most one of them for any creator."""

    def __init__(self, at_once: int, name: str) -> None:
        """Run `at_once` checks beside one another, in threads that are called `name`."""
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=name)
        self._free = at_once
        self._busy: set[Address] = set()
        # Creators in the order in which they are served, each with the turns that its uploads wait for.
        self._waiting: OrderedDict[Address, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, creator: Address, check: Callable[[], None]) -> None:
        """Run `check` in a thread when it is the turn of `creator`, and raise what it raises.

        Raises `TooManyUploads` for one that has waited behind others of its creator for `QUEUE_SECONDS_MAX`.
        """
        await self._turn(creator)
        loop = asyncio.get_running_loop()
        job = self._threads.submit(check)

        def end(_: Future[None]) -> None:
            # Not when the request ends: a thread goes on where a client went away, and takes its core.
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(self._end, creator)

        job.add_done_callback(end)
        await asyncio.wrap_future(job)

    async def _turn(self, creator: Address) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(creator, deque()).append(turn)
        self._serve()
        try:
            await asyncio.wait({turn}, timeout=QUEUE_SECONDS_MAX)
            self._refuse_behind_others(creator, turn)
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._end(creator)
            else:
                self._forget(creator, turn)
            raise

    def _refuse_behind_others(self, creator: Address, turn: asyncio.Future[None]) -> None:
        if not turn.done() and self._waiting[creator][0] is not turn:
            raise TooManyUploads(
                f"uploads of yours wait for longer than {QUEUE_SECONDS_MAX:.0f} s; send them one after the other",
                facts={"retryAfter": round(QUEUE_SECONDS_MAX)},
            )

    def _serve(self) -> None:
        """Give turns to the creators who have waited longest since their last one, while there are any."""
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
