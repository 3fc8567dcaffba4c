"""Which connection sets off for what waits, and with how many."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muniment.storage.postgres import dispatcher as postgres_lanes
from muniment.storage.postgres.dispatcher import Lanes

GROUP_MAX = 5


class Waiting:
    """Numbers that wait, served in groups that go on their way until they are let go."""

    def __init__(self, *, worth: int) -> None:
        self.waiting: list[int] = []
        self.groups: list[list[int]] = []
        self.set_off = asyncio.Event()
        self._gates: list[asyncio.Event] = []
        lines: list[Any] = [_Line(), _Line()]
        self.lanes = Lanes(lines, self._next, self._serve, waiting=lambda: len(self.waiting), worth=worth)

    def add(self, *numbers: int) -> None:
        for number in numbers:
            self.waiting.append(number)
            self.lanes.wake()

    def finish(self, group: int) -> None:
        self._gates[group].set()

    def _next(self) -> list[int] | None:
        taken, self.waiting = self.waiting[:GROUP_MAX], self.waiting[GROUP_MAX:]
        return taken or None

    async def _serve(self, _: object, group: list[int]) -> None:
        self.groups.append(group)
        self.set_off.set()
        self._gates.append(asyncio.Event())
        await self._gates[-1].wait()


class _Line:
    async def close(self) -> None:
        """Nothing is open."""


async def a_turn() -> None:
    """Let the event loop do what it has to do."""
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long, unless a test is about it."""
    monkeypatch.setattr(postgres_lanes, "PATIENCE_SECONDS", 60.0)


async def test_what_arrives_in_one_turn_goes_together_at_once() -> None:
    waiting = Waiting(worth=3)
    waiting.add(1)
    waiting.add(2)
    await a_turn()
    assert waiting.groups == [[1, 2]]


async def test_few_wait_for_the_group_that_is_on_its_way() -> None:
    waiting = Waiting(worth=3)
    waiting.add(1)
    await a_turn()
    waiting.add(2, 3)
    await a_turn()
    assert waiting.groups == [[1]]
    waiting.finish(0)
    await a_turn()
    assert waiting.groups == [[1], [2, 3]]


async def test_enough_set_off_on_another_connection() -> None:
    waiting = Waiting(worth=3)
    waiting.add(1)
    await a_turn()
    waiting.add(2, 3, 4)
    await a_turn()
    assert waiting.groups == [[1], [2, 3, 4]]


async def test_few_set_off_too_when_the_group_before_them_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_lanes, "PATIENCE_SECONDS", 0.01)
    waiting = Waiting(worth=3)
    waiting.add(1)
    await a_turn()
    waiting.set_off.clear()
    waiting.add(2)
    async with asyncio.timeout(60):
        await waiting.set_off.wait()
    assert waiting.groups == [[1], [2]]
    waiting.add(3)  # both connections are away
    await asyncio.sleep(0.05)
    assert waiting.groups == [[1], [2]]
    waiting.finish(1)
    await a_turn()
    assert waiting.groups == [[1], [2], [3]]
    waiting.finish(2)
    await a_turn()
    waiting.set_off.clear()
    waiting.add(4)
    async with asyncio.timeout(60):
        await waiting.set_off.wait()
    assert waiting.groups == [[1], [2], [3], [4]]


async def test_where_one_is_worth_it_nobody_waits() -> None:
    waiting = Waiting(worth=1)
    waiting.add(1)
    await a_turn()
    waiting.add(2)
    await a_turn()
    assert waiting.groups == [[1], [2]]


@pytest.mark.parametrize("worth", [1, 3])
async def test_what_a_group_leaves_goes_on_the_other_connection_at_once(worth: int) -> None:
    waiting = Waiting(worth=worth)
    waiting.add(*range(8))
    await a_turn()
    await a_turn()
    assert waiting.groups == [[0, 1, 2, 3, 4], [5, 6, 7]]


@pytest.mark.parametrize(("worth", "groups"), [(1, [[1], [2]]), (3, [[1, 2, 3, 4]])])
async def test_a_group_that_has_a_worth_waits_for_what_the_next_turns_bring(
    worth: int, groups: list[list[int]]
) -> None:
    waiting = Waiting(worth=worth)
    for number in range(1, 5):
        waiting.add(number)
        await asyncio.sleep(0)
    await a_turn()
    await a_turn()
    assert waiting.groups == groups


async def test_closing_serves_what_waits() -> None:
    waiting = Waiting(worth=3)
    waiting.add(1)
    await a_turn()
    waiting.add(2)
    closing = asyncio.ensure_future(waiting.lanes.close())
    await a_turn()
    waiting.finish(0)
    await a_turn()
    waiting.finish(1)
    await closing
    assert waiting.groups == [[1], [2]]
