"""What ends the deliveries to a hook by itself, and how they begin again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import WebhookVerificationError

from delivering import ENGINES, SECONDS_MAX, Registry, delivering_at, until
from muniment.service.resources.webhooks import managing, store
from muniment.service.resources.webhooks.store import DeadLetter
from muniment.service.resources.webhooks.types import WebhookId
from muniment.service.storage.database import Transaction
from receiving import Received, Receiver, Reply, echo

REFUSED_AT_ONCE = str(Path(__file__).parent / "refused_at_once.py")


@pytest.fixture(params=ENGINES)
def database_url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else ""


@pytest.fixture
async def registry(database_url: str, tmp_path: Path) -> AsyncIterator[Registry]:
    async with delivering_at(database_url, tmp_path) as made:
        yield made


class Taker:
    """A receiver that agrees and notes events; `status` is its answer to them, after `pause_s`."""

    def __init__(self, receiver: Receiver) -> None:
        self.events: list[Received] = []
        self.status = 204
        self.pause_s = 0.0
        receiver.reply = self.reply

    def reply(self, received: Received) -> Reply:
        if received.event["type"].endswith("challenge"):
            return echo(received)
        time.sleep(self.pause_s)
        self.events.append(received)
        return self.status, {}, b""

    @property
    def ids(self) -> list[str]:
        return [each.event["id"] for each in self.events]


async def shown(registry: Registry, hook_id: WebhookId) -> dict[str, Any]:
    """The hook with its attempts, as `muniment webhooks show` prints it."""
    return json.loads(await registry.run("webhooks", "show", hook_id))


async def until_status(registry: Registry, hook_id: WebhookId, status: str) -> None:
    """Wait until the row of the hook has this status."""
    async with asyncio.timeout(SECONDS_MAX):
        while (await managing.get(registry.context, None, hook_id)).status != status:
            await asyncio.sleep(0.05)


async def refuse_before(registry: Registry, hook_id: WebhookId, count: int) -> None:
    """Store what the first so many events leave when the receiver has refused them."""
    hook = await managing.get(registry.context, None, hook_id)

    async def write(tx: Transaction) -> None:
        rows = await tx.fetch("SELECT seq FROM events ORDER BY seq LIMIT ?", (count,))
        for (seq,) in rows:
            await store.add_dead_letter(tx, hook.id, DeadLetter(hook.epoch, seq, registry.context.clock.now_ms(), 422))
        assert await store.store_progress(tx, replace(hook, seq=rows[-1][0]))

    await registry.context.database.write(write)


@pytest.mark.long
async def test_a_hook_is_disabled_at_100_refused_events_and_can_begin_again(registry: Registry) -> None:
    receiver = Receiver()
    taker = Taker(receiver)
    taker.status = 422
    with receiver.listening():
        hook_id, _ = await registry.hook(receiver.url)
        start = (await registry.shown(hook_id))[0].cursor
        await registry.add(103)
        await refuse_before(registry, hook_id, 80)
        registry.deliver(program=[REFUSED_AT_ONCE])
        await until_status(registry, hook_id, "disabled")
        found, ids = await shown(registry, hook_id), await registry.ids()
        assert taker.ids == [each for each in ids[80:100] for _ in range(5)]
        assert found["webhook"]["reason"] == "the receiver has refused 100 events"
        assert found["webhook"]["deadLetters"] == ids[:100]
        assert found["webhook"]["cursor"] == ids[99]
        assert len(found["attempts"]) == 100
        assert {each["event"] for each in found["attempts"]} == set(ids[80:100]), "the challenge is the oldest of 101"
        await until(lambda: "webhook is disabled" in registry.logs())

        taker.status = 204
        await registry.add(2)
        await asyncio.sleep(1)  # in which the process reads the hooks again
        assert len(taker.ids) == 100, "a disabled hook gets nothing"
        taker.events.clear()
        await registry.run("webhooks", "resume", hook_id)
        ids = await registry.ids()
        await until(lambda: taker.ids == ids[100:])
        assert (await registry.shown(hook_id))[0].status == "active"
        assert await store.dead_letters(registry.context.database, hook_id.raw) == []
        taker.events.clear()
        await registry.run("webhooks", "replay", hook_id, start)
        await until(lambda: len(taker.ids) >= len(ids))
    assert taker.ids == ids


@pytest.mark.long
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_hook_whose_secret_is_retired_while_events_are_delivered_is_suspended_until_a_rotation(
    registry: Registry,
) -> None:
    receiver = Receiver()
    taker = Taker(receiver)
    taker.pause_s = 0.03
    with receiver.listening():
        hook_id, first_secret = await registry.hook(receiver.url)
        await registry.run("secrets", "rotate")
        await registry.add(200)
        registry.deliver()
        await until(lambda: len(taker.ids) >= 20)
        taker.pause_s = 0.3  # the others take a minute, the command less
        await registry.run("secrets", "retire")
        await until_status(registry, hook_id, "suspended")
        sent = len(taker.ids)
        found = await shown(registry, hook_id)
        ids = await registry.ids()
        assert found["webhook"]["reason"] == "the secret of its key was retired; rotate gives it a new one"
        assert 20 <= sent < 200
        assert found["webhook"]["cursor"] == taker.ids[-1] == ids[sent - 1]

        await until(lambda: "webhook is suspended" in registry.logs())

        await registry.add(1)
        await asyncio.sleep(1)
        assert len(taker.ids) == sent, "a suspended hook gets nothing"
        second_secret = (await registry.run("webhooks", "rotate", hook_id)).split()[-1]
        assert (await shown(registry, hook_id))["webhook"]["status"] == "pending"
        await registry.run("webhooks", "test", hook_id)
        taker.pause_s = 0
        ids = await registry.ids()
        await until(lambda: len(taker.ids) >= len(ids))
    assert taker.ids == ids
    for number, each in enumerate(taker.events):
        each.verify(first_secret if number < sent else second_secret)
    with pytest.raises(WebhookVerificationError):
        taker.events[-1].verify(first_secret)
