"""The lock that serves clients in rounds."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from each_row import each_row
from muniment.service.resources.feed.waiting import FairLock


class Crowd:
    """Tasks that want the lock, and the order in which they get it."""

    def __init__(self) -> None:
        self.lock = FairLock()
        self.got: list[str] = []
        self.inside = 0

    async def take(self, name: str, times: int = 1) -> None:
        """Take the lock as the client that is the first letter of `name`."""
        for _ in range(times):
            async with self.lock.held_for(name[0]):
                self.inside += 1
                assert self.inside == 1
                self.got.append(name)
                try:
                    await asyncio.sleep(0)
                finally:
                    self.inside -= 1

    def begin(self, *names: str, times: int = 1) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.take(name, times)) for name in names]


async def test_a_client_with_many_tasks_gets_the_lock_once_in_each_round() -> None:
    crowd = Crowd()
    tasks = crowd.begin(*(f"a{number}" for number in range(20)), times=5)
    await asyncio.sleep(0)
    tasks += crowd.begin("b0", "c0", times=5)
    await asyncio.gather(*tasks)
    for name in "bc":
        places = [place for place, got in enumerate(crowd.got) if got[0] == name]
        assert max(places) <= 3 * 5 + 1, crowd.got


async def test_tasks_of_a_client_get_the_lock_in_their_order() -> None:
    crowd = Crowd()
    await asyncio.gather(*crowd.begin("a1", "a2", "a3"))
    assert crowd.got == ["a1", "a2", "a3"]


@each_row("turns", range(4))
async def test_cancelled_tasks_do_not_block_the_others(turns: int) -> None:
    """Also at the moment at which they get the lock."""
    crowd = Crowd()
    first, *others = crowd.begin("a1", "b1", "a2", "c1")
    for _ in range(turns):
        await asyncio.sleep(0)
    others[0].cancel()
    with suppress(asyncio.CancelledError):
        await others[0]
    await asyncio.gather(first, *others[1:])
    await asyncio.gather(*crowd.begin("d1"))
    assert sorted(name for name in crowd.got if name != "b1") == ["a1", "a2", "c1", "d1"]
