"""Services that deliver, with real receivers that verify each request."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from delivering import ENGINES, SECONDS_MAX, Registry, delivering, until
from ports import free_port
from receiving import Received, Receiver, Reply, echo
from service import Service

# This ends a hang: hundreds of deliveries, one after the other, take half a minute when nothing else is to be done.
MANY_SECONDS_MAX = 600


@pytest.fixture(params=ENGINES)
async def registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Registry]:
    async with delivering(request.param, tmp_path) as made:
        yield made


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Registry]:
    """On PostgreSQL, which several services may share."""
    async with delivering("postgres", tmp_path) as made:
        yield made


class Taker:
    """A receiver that agrees and notes the ids of events; `pause_s` is how long it takes for each."""

    def __init__(self, receiver: Receiver) -> None:
        self.ids: list[str] = []
        self.at: list[float] = []
        self.at_once = 0
        self.pause_s = 0.0
        self._now = 0
        receiver.reply = self.reply

    def reply(self, received: Received) -> Reply:
        if received.event["type"].endswith("challenge"):
            return echo(received)
        self._now += 1
        self.at_once = max(self.at_once, self._now)
        time.sleep(self.pause_s)
        self.ids.append(received.event["id"])
        self.at.append(time.monotonic())
        self._now -= 1
        return 204, {}, b""


@pytest.mark.long
async def test_a_receiver_gets_what_the_feed_has_in_order_and_signed(registry: Registry) -> None:
    receiver = Receiver()
    taker = Taker(receiver)
    with receiver.listening():
        _, secret = await registry.hook(receiver.url)
        registry.deliver()
        await registry.add(300)
        await until(lambda: len(taker.ids) >= 300)
        await registry.add(20)
        await until(lambda: len(taker.ids) >= 320)
    assert taker.ids == await registry.ids()
    assert taker.at_once == 1
    for each in receiver.received:
        each.verify(secret)
        assert each.fields["content-type"] == "application/cloudevents+json"
    assert receiver.received[-1].fields["webhook-id"] == taker.ids[-1]
    assert "key=private" not in registry.logs()


@pytest.mark.timed
async def test_a_killed_service_is_followed_by_another_one_and_repeats_a_second_at_most(registry: Registry) -> None:
    receiver = Receiver()
    taker = Taker(receiver)
    taker.pause_s = 0.005
    with receiver.listening():
        await registry.hook(receiver.url)
        first = registry.deliver()
        await registry.add(700)
        await until(lambda: len(taker.ids) >= 300)
        if registry.url:
            registry.deliver()  # it stands by
        first.kill()
        first.wait()
        if not registry.url:
            registry.deliver()
        await asyncio.sleep(0.1)
        before = len(taker.ids)
        await until(lambda: taker.ids[-1] == taker.ids[before - 1] or len(taker.ids) > before)
        expected = await registry.ids()
        await until(lambda: taker.ids[-1] == expected[-1], MANY_SECONDS_MAX)
    again = taker.ids.index(taker.ids[before]) if taker.ids[before] in taker.ids[:before] else before
    repeated_s = taker.at[before - 1] - taker.at[again] if again < before else 0
    print(f"{before - again} events repeated, of {repeated_s:.2f} s")
    assert taker.ids[:before] == expected[:before]
    assert taker.ids[:again] + taker.ids[before:] == expected
    assert repeated_s <= 1.2  # one second, and the answer that was on its way
    assert taker.at_once == 1


@pytest.mark.long
async def test_a_service_that_was_stopped_for_20_seconds_begins_no_further_request(shared: Registry) -> None:
    receiver = Receiver()
    taker = Taker(receiver)
    taker.pause_s = 0.02
    with receiver.listening():
        await shared.hook(receiver.url)
        first = shared.deliver()
        await shared.add(700)
        await until(lambda: len(taker.ids) >= 100)
        shared.deliver()
        first.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(0.3)
            before = len(taker.ids)
            await asyncio.sleep(20)
            await until(lambda: len(taker.ids) > before)
        finally:
            first.send_signal(signal.SIGCONT)
        expected = await shared.ids()
        await until(lambda: taker.ids[-1] == expected[-1], MANY_SECONDS_MAX)
        # PostgreSQL has ended the connection of a process that was stopped within a transaction.
        stepped_back = ("another process delivers", "cannot deliver to webhooks")
        await until(lambda: any(each in shared.logs() for each in stepped_back))
    # The second process goes back once, to where it begins. A request that the first one had just begun, its connection
    # not open yet, leaves when it wakes up: that is one more.
    assert taker.at_once <= 2
    places = [expected.index(each) for each in taker.ids]
    assert sum(b <= a for a, b in pairwise(places)) <= 2


@pytest.mark.long
async def test_a_new_epoch_while_events_are_delivered_is_a_reset_and_then_its_events(registry: Registry) -> None:
    receiver = Receiver()
    taker = Taker(receiver)
    with receiver.listening():
        await registry.hook(receiver.url)
        registry.deliver()
        await registry.add(5)
        await until(lambda: len(taker.ids) >= 5)
        await registry.run("epoch", "renew")
        await until(lambda: len(taker.ids) >= 6)  # without an event
        registry.context.epochs._until = float("-inf")
        await registry.add(5)
        await until(lambda: len(taker.ids) >= 11)
    expected = await registry.ids()
    assert taker.ids[5] == f"reset-{expected[4]}"
    assert taker.ids[6:] == expected[5:]


@pytest.mark.long
async def test_a_receiver_that_is_killed_gets_what_it_missed_in_order(registry: Registry) -> None:
    receiver, port = Receiver(), free_port()
    taker = Taker(receiver)
    with receiver.listening(port):
        hook_id, _ = await registry.hook(receiver.url)
        registry.deliver()
        await registry.add(50)
        await until(lambda: len(taker.ids) >= 50)
    await registry.add(50)
    await asyncio.sleep(1)
    with receiver.listening(port):
        await registry.run("webhooks", "resume", hook_id)
        await until(lambda: len(taker.ids) >= 100)
    assert taker.ids == await registry.ids()


async def test_of_two_services_on_one_postgresql_one_delivers_and_the_other_takes_over(shared: Registry) -> None:
    receiver = Receiver()
    taker = Taker(receiver)
    with receiver.listening():
        hook_id, _ = await shared.hook(receiver.url)
        services = [shared.deliver() for _ in range(2)]
        await shared.add(20)
        await until(lambda: len(taker.ids) >= 20)
        async with asyncio.timeout(SECONDS_MAX):  # what is not stored would come again
            while (await shared.shown(hook_id))[0].cursor != taker.ids[-1]:
                await asyncio.sleep(0.05)
        (one,) = [each for each in services if "delivering to webhooks" in shared.log(each)]
        one.terminate()
        assert await asyncio.to_thread(one.wait, SECONDS_MAX) == 0
        await shared.add(20)
        await until(lambda: len(taker.ids) >= 40)
    assert taker.ids == await shared.ids()
    assert taker.at_once == 1


@pytest.mark.timed
@pytest.mark.parametrize("setting", ["MUNIMENT_WEBHOOKS", "MUNIMENT_FEED"])
async def test_a_service_delivers_unless_the_setting_is_off(registry: Registry, setting: str) -> None:
    receiver = Receiver()
    taker = Taker(receiver)
    with receiver.listening():
        await registry.hook(receiver.url)
        with Service(registry.data_dir, environment={**registry.settings, setting: "off"}):
            await registry.add(10)
            await asyncio.sleep(5)
        assert taker.ids == []
        with Service(registry.data_dir, environment=registry.settings):
            await until(lambda: len(taker.ids) >= 10)
            began = time.monotonic()
            await registry.add(1)
            await until(lambda: len(taker.ids) >= 11)
            took_s = time.monotonic() - began
    print(f"an event came after {took_s:.2f} s")
    assert taker.ids == await registry.ids()
    assert took_s < 5
