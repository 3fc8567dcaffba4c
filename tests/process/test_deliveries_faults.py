"""Receivers that fail in every way beside one that works: each costs only itself."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from delivering import ENGINES, SECONDS_MAX, Registry, delivering, until
from muniment.service.resources.feed.events import Position
from muniment.service.resources.webhooks import store
from muniment.service.resources.webhooks.types import WebhookId
from receiving import Answer, Received, Receiver, Reply, echo, raw_receiver

EVENTS = 40


@pytest.fixture(params=ENGINES)
async def registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Registry]:
    async with delivering(request.param, tmp_path) as made:
        yield made


def status(line: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {line}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()

    return answer


async def hang(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        await asyncio.sleep(0.2)


async def reset(writer: asyncio.StreamWriter) -> None:
    linger: socket.socket = writer.get_extra_info("socket")
    linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def never_end(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not writer.is_closing():
        writer.write(bytes(1024))
        await writer.drain()
        await asyncio.sleep(0.001)


async def never_end_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not writer.is_closing():
        writer.write(b"x-a: b\r\n")
        await writer.drain()
        await asyncio.sleep(0.2)


# What receivers do, and the status, the word and the next state of their hooks.
FAULTS: dict[str, tuple[Answer, int | None, str, str]] = {
    "error": (status("500 Oops"), 500, "http-500", "active"),
    "hang": (hang, None, "timeout", "active"),
    "reset": (reset, None, "unreachable", "active"),
    "gone": (status("410 Gone"), 410, "http-410", "disabled"),
    "busy": (status("429 Slowly\r\nretry-after: 1800"), 429, "http-429", "active"),
    "redirect": (status("302 Found\r\nlocation: http://127.0.0.1:1/"), 302, "http-302", "active"),
    "refusal": (status("422 No"), 422, "http-422", "active"),
    "head": (never_end_head, None, "timeout", "active"),
}


@pytest.mark.long
# Each receiver is a host of its own: four requests at a time go to one host.
@pytest.mark.timed
@pytest.mark.allow_hosts(["127.0.0.1", *(f"127.0.2.{number}" for number in (*range(1, 10), 99))])
async def test_receivers_that_fail_cost_only_themselves(registry: Registry) -> None:
    good, seen, hooks = Receiver(), list[str](), dict[str, WebhookId]()

    def take(received: Received) -> Reply:
        if received.event["type"].endswith("challenge"):
            return echo(received)
        seen.append(received.event["id"])
        return 200, {}, b""

    good.reply = take
    async with AsyncExitStack() as stack:
        stack.enter_context(good.listening())
        for number, (name, (answer, *_)) in enumerate(FAULTS.items()):
            url = await stack.enter_async_context(raw_receiver(f"127.0.2.{number + 1}", answer))
            hooks[name], _ = await registry.hook(url)
        endless_url = await stack.enter_async_context(raw_receiver("127.0.2.99", never_end))
        endless, _ = await registry.hook(endless_url)
        await registry.hook(good.url)
        registry.deliver()
        await until(lambda: "delivering to webhooks" in registry.logs())
        began = time.monotonic()
        await registry.add(EVENTS)
        await until(lambda: len(seen) >= EVENTS)
        took_s = time.monotonic() - began
        async with asyncio.timeout(SECONDS_MAX):  # the longest attempt takes 15 seconds, and then its write
            while True:
                shown = {name: await registry.shown(hook) for name, hook in hooks.items()}
                at_end = await registry.shown(endless)
                if all(len(attempts) >= 2 for _, attempts in (*shown.values(), at_end)):
                    break
                await asyncio.sleep(0.2)
    print(f"{EVENTS} events to the good receiver in {took_s:.2f} s")
    assert seen == await registry.ids()
    assert took_s < 10  # no receiver waited for another one, of which one takes 15 seconds
    for name, (_, wanted, word, state) in FAULTS.items():
        hook, attempts = shown[name]
        assert (attempts[0].status, attempts[0].outcome, hook.status) == (wanted, word, state), name
        assert hook.failures <= 3, name
    assert at_end[1][0].outcome == "delivered"
    assert "127.0.2" not in registry.logs()
    assert shown["gone"][0].reason == "the receiver answered 410: it wants no more events"


@pytest.mark.long
async def test_a_hook_with_batches_gets_arrays_and_a_reset_when_events_were_removed(registry: Registry) -> None:
    receiver, batches = Receiver(), list[list[dict[str, Any]]]()

    def take(received: Received) -> Reply:
        if received.fields["content-type"] == "application/cloudevents+json":
            return echo(received)
        batches.append(json.loads(received.body))
        return 200, {}, b""

    receiver.reply = take
    await registry.add(5)
    with receiver.listening():
        _, secret = await registry.hook(receiver.url, batch=True)
        await registry.add(250)
        kept = (await registry.ids())[-100:]
        await registry.remove_oldest(155)
        registry.deliver()
        await until(lambda: sum(map(len, batches)) >= 101)
        for each in receiver.received:
            each.verify(secret)
    assert [event["type"] for event in batches[0]] == ["muniment.feed.reset"]
    assert batches[0][0]["data"]["code"] == "cursor-too-old"
    assert [event["id"] for batch in batches[1:] for event in batch] == kept
    assert max(map(len, batches)) > 1
    assert receiver.received[-1].fields["webhook-id"] == batches[-1][-1]["id"]
    assert receiver.received[-1].fields["content-type"] == "application/cloudevents-batch+json"


@pytest.mark.long
async def test_a_name_that_points_inward_later_gets_no_connection(registry: Registry) -> None:
    connected: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(str(await reader.read(1)))
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    good = Receiver()
    with good.listening():
        hook_id, _ = await registry.hook(good.url)
    # The receiver had agreed under a public address. Its name points to this machine now.
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}/"
    await registry.write("UPDATE webhooks SET url = ?", url)
    registry.deliver(MUNIMENT_ALLOW_PRIVATE_NETWORKS="false")
    await registry.add(1)
    await until(lambda: "webhook fails" in registry.logs())
    async with asyncio.timeout(SECONDS_MAX):
        while len(attempts := (await registry.shown(hook_id))[1]) < 2:  # the oldest is the challenge
            await asyncio.sleep(0.05)
    server.close()
    await server.wait_closed()
    assert {each.outcome for each in attempts[:-1]} == {"forbidden-address"}
    assert connected == []


@pytest.mark.long
async def test_an_event_that_is_refused_five_times_is_a_dead_letter_and_can_be_replayed(registry: Registry) -> None:
    receiver, seen, refuses = Receiver(), list[str](), [True]

    def take(received: Received) -> Reply:
        if received.event["type"].endswith("challenge"):
            return echo(received)
        seen.append(received.event["id"])
        return (422 if refuses[0] and seen[-1] == seen[0] else 200), {}, b""

    receiver.reply = take
    with receiver.listening():
        hook_id, _ = await registry.hook(receiver.url)
        start = (await registry.shown(hook_id))[0].cursor
        await registry.write("UPDATE webhooks SET refused = 4, failures = 4, failing_since_ms = 1")
        await registry.add(3)
        registry.deliver()
        await until(lambda: len(seen) >= 3)
        ids = await registry.ids()
        async with asyncio.timeout(SECONDS_MAX):
            while (hook := (await registry.shown(hook_id))[0]).cursor != ids[-1]:
                await asyncio.sleep(0.05)
        letters = await store.dead_letters(registry.context.database, hook_id.raw)
        assert [Position.at(each.epoch, each.seq) for each in letters] == ids[:1]
        assert (hook.status, hook.failures, hook.cursor) == ("active", 0, ids[-1])
        refuses[0] = False
        await registry.run("webhooks", "replay", hook_id, start)
        await until(lambda: len(seen) >= 6)
    assert seen == ids + ids
