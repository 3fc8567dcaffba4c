"""Challenges at the same time: their number is bounded, of one operator and of all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal
from webhooks_world import Maker

from muniment.service.context import Context
from muniment.service.running.settings import Settings
from operator_client import operator_key
from receiving import Received, Receiver, Reply, echo


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, allow_private_networks=True)


@dataclass
class Held:
    """A receiver that answers no challenge before `gate` is open, and the tests that wait for it."""

    url: str
    arrived: threading.Semaphore
    gate: threading.Event
    tests: list[asyncio.Task[Any]] = field(default_factory=list[asyncio.Task[Any]])

    async def begin(self, maker: Maker, path: str) -> None:
        """Begin a test, and return when the challenge has arrived."""
        self.tests.append(asyncio.create_task(maker.done("POST", f"{path}/test")))
        assert await asyncio.to_thread(self.arrived.acquire, timeout=60)

    async def statuses(self) -> list[str]:
        """Let the receiver answer; the statuses of the webhooks after their tests."""
        self.gate.set()
        return [(await each)["status"] for each in self.tests]


@pytest.fixture
def held() -> Iterator[Held]:
    arrived, gate = threading.Semaphore(0), threading.Event()

    def late(received: Received) -> Reply:
        arrived.release()
        assert gate.wait(60)
        return echo(received)

    with Receiver().listening() as receiver:
        receiver.reply = late
        yield Held(receiver.url, arrived, gate)
        gate.set()


async def test_an_operator_tests_two_webhooks_at_a_time_and_leaves_tests_to_others(
    client: httpx2.AsyncClient, context: Context, held: Held
) -> None:
    operator, other = [Maker(client, {"x-operator-key": await operator_key(context, name)}) for name in ("a", "b")]
    paths = [await operator.added(held.url) for _ in range(3)]
    path_of_other = await other.added(held.url)
    for path in paths[:2]:
        await held.begin(operator, path)
    check_refusal(await operator.call("POST", f"{paths[2]}/test"), 503, "overloaded")
    await held.begin(other, path_of_other)
    assert await held.statuses() == ["active"] * 3
    assert (await operator.done("POST", f"{paths[2]}/test"))["status"] == "active"


@pytest.mark.one_engine
async def test_a_process_runs_sixteen_tests_at_a_time(client: httpx2.AsyncClient, context: Context, held: Held) -> None:
    makers = [Maker(client, {"x-operator-key": await operator_key(context, f"operator{n}")}) for n in range(17)]
    paths = [await maker.added(held.url) for maker in makers]
    for maker, path in zip(makers[:16], paths, strict=False):
        await held.begin(maker, path)
    check_refusal(await makers[16].call("POST", f"{paths[16]}/test"), 503, "overloaded")
    assert await held.statuses() == ["active"] * 16
    assert (await makers[16].done("POST", f"{paths[16]}/test"))["status"] == "active"
