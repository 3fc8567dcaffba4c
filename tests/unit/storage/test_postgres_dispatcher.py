"""Which slot starts for the queue, and with which group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from each_row import each_row
from muniment.service.storage.postgres import dispatcher
from muniment.service.storage.postgres.dispatcher import Dispatcher

GROUP_MAX = 5


class Queue:
    """A queue of numbers; each group of them is served until the test finishes it."""

    def __init__(self, *, size_min: int, small_group_seconds_max: float = 60) -> None:
        self.numbers: list[int] = []
        self.groups: list[list[int]] = []
        self.started = asyncio.Event()
        self._gates: list[asyncio.Event] = []
        slots: list[Any] = [_Slot(), _Slot()]
        length = self._length
        self.dispatcher = Dispatcher(
            slots, self._next_group, self._serve,
            queue_length=length, size_min=size_min, small_group_seconds_max=small_group_seconds_max,
        )  # fmt: skip

    def add(self, *numbers: int) -> None:
        for number in numbers:
            self.numbers.append(number)
            self.dispatcher.wake()

    def finish(self, group: int) -> None:
        self._gates[group].set()

    def _length(self) -> int:
        return len(self.numbers)

    def _next_group(self) -> list[int] | None:
        group, self.numbers = self.numbers[:GROUP_MAX], self.numbers[GROUP_MAX:]
        return group or None

    async def _serve(self, _: object, group: list[int]) -> None:
        self.groups.append(group)
        self.started.set()
        self._gates.append(asyncio.Event())
        await self._gates[-1].wait()


class _Slot:
    async def close(self) -> None:
        """Nothing is open."""


async def an_iteration() -> None:
    """Let the event loop run what is ready."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_all_that_arrives_in_one_iteration_is_one_group() -> None:
    queue = Queue(size_min=3)
    queue.add(1)
    queue.add(2)
    await an_iteration()
    assert queue.groups == [[1, 2]]


async def test_a_small_group_waits_for_the_busy_slot() -> None:
    queue = Queue(size_min=3)
    queue.add(1)
    await an_iteration()
    queue.add(2, 3)
    await an_iteration()
    assert queue.groups == [[1]]
    queue.finish(0)
    await an_iteration()
    assert queue.groups == [[1], [2, 3]]


async def test_a_group_of_the_minimum_size_starts_another_slot() -> None:
    queue = Queue(size_min=3)
    queue.add(1)
    await an_iteration()
    queue.add(2, 3, 4)
    await an_iteration()
    assert queue.groups == [[1], [2, 3, 4]]


async def test_a_small_group_starts_another_slot_when_the_busy_slot_takes_too_long() -> None:
    queue = Queue(size_min=3, small_group_seconds_max=0.01)
    queue.add(1)
    await an_iteration()
    queue.started.clear()
    queue.add(2)
    async with asyncio.timeout(60):
        await queue.started.wait()
    assert queue.groups == [[1], [2]]
    queue.add(3)  # both slots are busy
    await asyncio.sleep(0.05)
    assert queue.groups == [[1], [2]]
    queue.finish(1)
    await an_iteration()
    assert queue.groups == [[1], [2], [3]]
    queue.finish(2)
    await an_iteration()
    queue.started.clear()
    queue.add(4)
    async with asyncio.timeout(60):
        await queue.started.wait()
    assert queue.groups == [[1], [2], [3], [4]]


async def test_without_a_minimum_size_no_group_waits() -> None:
    queue = Queue(size_min=1)
    queue.add(1)
    await an_iteration()
    queue.add(2)
    await an_iteration()
    assert queue.groups == [[1], [2]]


@each_row("size_min", [1, 3])
async def test_the_rest_of_a_full_group_starts_the_other_slot(size_min: int) -> None:
    queue = Queue(size_min=size_min)
    queue.add(*range(8))
    await an_iteration()
    await an_iteration()
    assert queue.groups == [[0, 1, 2, 3, 4], [5, 6, 7]]


@each_row(("size_min", "groups"), [(1, [[1], [2]]), (3, [[1, 2, 3, 4]])])
async def test_with_a_minimum_size_a_group_waits_until_no_more_arrives(
    size_min: int, groups: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "GATHERING_SECONDS_MAX", 60)
    queue = Queue(size_min=size_min)
    for number in range(1, 5):
        queue.add(number)
        await asyncio.sleep(0)
    await an_iteration()
    await an_iteration()
    assert queue.groups == groups


async def test_closing_serves_the_queue() -> None:
    queue = Queue(size_min=3)
    queue.add(1)
    await an_iteration()
    queue.add(2)
    closing = asyncio.ensure_future(queue.dispatcher.close())
    await an_iteration()
    queue.finish(0)
    await an_iteration()
    queue.finish(1)
    await closing
    assert queue.groups == [[1], [2]]
