"""Reads of blocks for answers, in threads of their own.

A block store that hangs occupies its threads. Other work has other threads, such as look-ups of host names.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from muniment.errors import StorageUnavailable
from muniment.limits.overload import IN_FLIGHT_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# A read of the disk or of S3 mostly waits.
READS_CONCURRENT_MAX: Final = 16
# Half of the requests that a process serves at once: a store that hangs leaves the other half to triggers and intents.
READS_WAITING_MAX: Final = IN_FLIGHT_MAX // 2


class BlockReads:
    """Runs reads in threads. It belongs to one event loop."""

    def __init__(self) -> None:
        """Begin without a read."""
        self._threads = ThreadPoolExecutor(READS_CONCURRENT_MAX, thread_name_prefix="block-read")
        self._count = 0

    async def begin(self, read: Callable[[], T]) -> T:
        """The result of the first read of an answer; raises `StorageUnavailable` when too many reads wait already."""
        if self._count >= READS_WAITING_MAX:
            raise StorageUnavailable("the block store does not answer: too many reads wait for it")
        return await self.go_on(read)

    async def go_on(self, read: Callable[[], T]) -> T:
        """The result of a further read of an answer that has begun."""
        self._count += 1
        try:
            # As asyncio.to_thread does, which has the threads of all other work.
            return await asyncio.get_running_loop().run_in_executor(self._threads, partial(copy_context().run, read))
        finally:
            self._count -= 1


block_reads: Final = BlockReads()
