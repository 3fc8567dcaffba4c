"""Long work takes turns with whatever else the event loop has to do."""

from __future__ import annotations

import asyncio

import pytest

from muniment.protocol.errors import Overloaded
from muniment.service.running.limits.overload import FairQueue


async def test_so_many_begin_in_a_turn_and_others_are_answered_in_between() -> None:
    turns, done = FairQueue(per_turn=2, waiting_max=100), list[str]()

    async def work(name: str) -> None:
        await turns.wait("a")
        done.append(name)

    async def answer_quickly() -> None:
        done.append("quick")

    async with asyncio.TaskGroup() as tasks:
        for number in range(7):
            tasks.create_task(work(str(number)))
        await asyncio.sleep(0)
        assert done == ["0", "1"]
        await asyncio.sleep(0)
        tasks.create_task(answer_quickly())
    assert [each for each in done if each != "quick"] == [str(number) for number in range(7)]
    assert done.index("quick") <= 4


async def test_one_more_than_may_wait_is_refused_and_the_others_are_served() -> None:
    turns, refused = FairQueue(per_turn=1, waiting_max=3), list[int]()

    async def work(number: int) -> None:
        try:
            await turns.wait("a")
        except Overloaded:
            refused.append(number)

    await asyncio.gather(*(work(number) for number in range(10)))
    assert refused == [4, 5, 6, 7, 8, 9]
    await asyncio.wait_for(turns.wait("a"), 60)


async def test_one_whose_client_went_away_takes_no_turn() -> None:
    turns = FairQueue(per_turn=1, waiting_max=3)
    first, gone, next_one = (asyncio.ensure_future(turns.wait("a")) for _ in range(3))
    await first
    gone.cancel()
    await asyncio.wait_for(next_one, 60)
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_of_many_who_wait_one_of_the_greediest_is_refused_for_another_client() -> None:
    turns, began, refused = FairQueue(per_turn=1, waiting_max=8), list[str](), list[str]()

    async def work(client: str) -> None:
        try:
            await turns.wait(client)
            began.append(client)
        except Overloaded:
            refused.append(client)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(work("greedy"))
        await asyncio.sleep(0)
        assert len(refused) == 11
        for client in ("b", "c", "b"):
            tasks.create_task(work(client))
    assert set(refused) == {"greedy"}
    assert sorted(began[:7]).count("b") == 2  # in rounds, and not after all of the greedy client's
    assert len(began) + len(refused) == 23


async def test_what_weighs_more_than_a_turn_takes_several() -> None:
    turns, began = FairQueue(per_turn=4, waiting_max=100), list[str]()

    async def work(client: str, weight: int) -> None:
        await turns.wait(client, weight)
        began.append(client)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work("heavy", 12))
        for number in range(3):
            tasks.create_task(work(f"light {number}", 1))
        for _ in range(3):
            await asyncio.sleep(0)
            assert began == ["heavy"]
    assert began == ["heavy", "light 0", "light 1", "light 2"]
