"""How many deliveries are on their way at the same time: in all, to one host, and to receivers that are slow."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from delivering import Registry, delivering_at, until
from receiving import Answer, raw_receiver

HOSTS = [f"127.0.3.{number}" for number in range(1, 41)]
HOOKS_PER_OPERATOR = 20
pytestmark = [pytest.mark.long, pytest.mark.allow_hosts(["127.0.0.1", *HOSTS])]


@dataclass
class Crowd:
    """Receivers, each on a host of its own, and their deliveries."""

    registry: Registry
    stack: AsyncExitStack
    # Deliveries to these hosts do not end before `gate` is open.
    held: set[str] = field(default_factory=set[str])
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    on_their_way: Counter[str] = field(default_factory=Counter[str])
    ended: Counter[str] = field(default_factory=Counter[str])
    most: int = 0
    hooks: int = 0

    async def add(self, hosts: list[str], *, hooks: int = 1) -> None:
        """Add a receiver on each of these hosts, with so many hooks."""
        for host in hosts:
            url = await self.stack.enter_async_context(raw_receiver(host, self._answer(host)))
            for number in range(hooks):
                await self.registry.hook(f"{url}{number}", operator=f"operator {self.hooks // HOOKS_PER_OPERATOR}")
                self.hooks += 1

    def _answer(self, host: str) -> Answer:
        async def answer(writer: asyncio.StreamWriter) -> None:
            self.on_their_way[host] += 1
            self.most = max(self.most, self.on_their_way.total())
            if host in self.held:
                await self.gate.wait()
            self.on_their_way[host] -= 1
            self.ended[host] += 1
            writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
            await writer.drain()

        return answer

    async def begin(self) -> None:
        """Begin to deliver."""
        self.registry.deliver()
        await until(lambda: "delivering to webhooks" in self.registry.logs())

    def counted(self, hosts: list[str]) -> int:
        """How many deliveries are on their way to these hosts."""
        return sum(self.on_their_way[host] for host in hosts)


@pytest.fixture
async def crowd(tmp_path: Path) -> AsyncIterator[Crowd]:
    """On SQLite: the process that delivers counts in its memory."""
    async with delivering_at("", tmp_path) as registry, AsyncExitStack() as stack:
        yield Crowd(registry, stack)


@pytest.mark.timed  # after a second they are slow, and one of them is sent again
async def test_at_most_4_of_them_go_to_one_host(crowd: Crowd) -> None:
    crowded, other = HOSTS[:2]
    await crowd.add([crowded], hooks=10)
    await crowd.add([other])
    crowd.held |= {crowded, other}
    await crowd.begin()
    await crowd.registry.add(1)
    await until(lambda: crowd.on_their_way[crowded] >= 4 and crowd.on_their_way[other] >= 1)
    await asyncio.sleep(0.2)
    assert crowd.on_their_way == {crowded: 4, other: 1}
    crowd.gate.set()
    await until(lambda: crowd.ended == {crowded: 10, other: 1})
    assert crowd.most == 5


@pytest.mark.timed
async def test_slow_receivers_leave_places_to_quick_ones_also_those_that_become_slow(crowd: Crowd) -> None:
    slow, turning, quick = HOSTS[:24], HOSTS[24:36], HOSTS[36:]
    await crowd.add(HOSTS)
    crowd.held = set(slow)
    await crowd.begin()
    await crowd.registry.add(1)
    await until(lambda: crowd.counted(slow) == 24 and crowd.ended.total() == 16)
    for event in range(2, 8):
        if event == 5:
            crowd.held |= set(turning)
        begun = time.monotonic()
        await crowd.registry.add(1)
        await until(lambda event=event: all(crowd.ended[host] == event for host in quick))
        assert time.monotonic() - begun < 5, "a delivery to a slow one takes 15 seconds"
    await until(lambda: all(crowd.on_their_way[host] for host in turning))  # each had its request, and none for long
    crowd.gate.set()
    await until(lambda: all(crowd.ended[host] >= 7 for host in HOSTS))
