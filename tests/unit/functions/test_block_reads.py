"""Reads of blocks for answers: other work has other threads, and only so many reads wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from muniment.protocol.errors import StorageUnavailable
from muniment.service.resources.functions.content import READS_CONCURRENT_MAX, READS_WAITING_MAX, BlockReads


async def test_reads_that_hang_hold_up_no_other_thread_and_at_most_half_of_the_requests() -> None:
    reads, goes_on = BlockReads(), threading.Event()
    waiting = [asyncio.create_task(reads.begin(goes_on.wait)) for _ in range(READS_WAITING_MAX)]
    await asyncio.sleep(0.1)
    assert await asyncio.wait_for(asyncio.to_thread(int, 7), 60) == 7
    try:
        with pytest.raises(StorageUnavailable, match="too many reads wait"):
            await asyncio.wait_for(reads.begin(int), 60)
    except TimeoutError:
        goes_on.set()
        raise
    further = asyncio.create_task(reads.run_next(goes_on.is_set))  # an answer that has begun is not broken off
    goes_on.set()
    assert all(await asyncio.gather(*waiting))
    assert await further
    assert await reads.begin(int) == 0


async def test_a_reader_that_went_away_leaves_its_place() -> None:
    reads, goes_on = BlockReads(), threading.Event()
    held = [asyncio.create_task(reads.begin(goes_on.wait)) for _ in range(READS_CONCURRENT_MAX)]
    await asyncio.sleep(0.1)
    gone = [asyncio.create_task(reads.begin(int)) for _ in range(READS_WAITING_MAX - READS_CONCURRENT_MAX)]
    await asyncio.sleep(0.1)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    last = asyncio.create_task(reads.begin(int))
    goes_on.set()
    assert await last == 0
    await asyncio.gather(*held)


async def test_the_error_of_a_read_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await BlockReads().begin(lambda: 1 // 0)
