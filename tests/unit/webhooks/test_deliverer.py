"""The deliverer while the database does not answer for a moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from delivering import Registry, delivering_at
from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.resources.feed.events import Position
from muniment.service.resources.feed.reading import newest
from muniment.service.resources.webhooks import managing
from muniment.service.resources.webhooks.deliverer import ActiveHook, Deliverer
from muniment.service.resources.webhooks.hook_state import HookState
from muniment.service.resources.webhooks.types import WebhookId
from muniment.service.storage.database import Transaction
from muniment.service.storage.epoch import renew
from receiving import Received, Receiver, Reply, echo

EPOCH = 0x0BADCAFE


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with delivering_at("", tmp_path) as made:
        yield made


def fail_once(monkeypatch: pytest.MonkeyPatch, registry: Registry, text: str) -> list[str]:
    """Make the next read whose statement contains `text` fail; the result then has the statement."""
    kind: Any = type(registry.context.database)
    fetch, failed = kind.fetch, list[str]()

    async def fetch_or_fail(database: object, sql: str, *others: object, **named: object) -> object:
        if text in sql and not failed:
            failed.append(sql)
            raise DatabaseUnavailable("no connection for a moment")
        return await fetch(database, sql, *others, **named)

    monkeypatch.setattr(kind, "fetch", fetch_or_fail)
    return failed


async def begin(registry: Registry, hook_id: WebhookId) -> tuple[Deliverer, ActiveHook]:
    """A deliverer, and the hook in its memory."""
    hook = await managing.get(registry.context, None, hook_id)
    return Deliverer(registry.context), ActiveHook(HookState(hook))


async def add_event(registry: Registry) -> None:
    await registry.write(
        "INSERT INTO events (at_ms, kind, subject, owners, origin, facts) VALUES (?, 3, ?, ?, ?, '{}')",
        1_795_204_080_123, bytes(32), bytes(20), bytes(32),
    )  # fmt: skip


class Taker:
    """A receiver that answers challenges and keeps the types and ids of events."""

    def __init__(self, receiver: Receiver) -> None:
        self.types: list[str] = []
        self.ids: list[str] = []
        receiver.reply = self.reply

    def reply(self, received: Received) -> Reply:
        if received.event["type"].endswith("challenge"):
            return echo(received)
        self.types.append(received.event["type"])
        self.ids.append(received.event["id"])
        return 200, {}, b""


async def test_an_event_whose_read_failed_is_read_again(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    database, receiver = registry.context.database, Receiver()
    with receiver.listening():
        taker = Taker(receiver)
        hook_id, _ = await registry.hook(receiver.url)
        deliverer, active = await begin(registry, hook_id)
        await add_event(registry)
        failed = fail_once(monkeypatch, registry, "w.walked")
        with pytest.raises(DatabaseUnavailable):
            await deliverer.deliver_next(active)
        assert failed

        active.note_events([], await newest(database))
        assert active.has_pending
        assert await deliverer.deliver_next(active)
    assert taker.ids == await registry.ids()


@pytest.mark.parametrize("text", ["FROM epoch", "SELECT floor_seq FROM feed"])
async def test_a_reset_is_sent_although_the_check_of_the_cursor_failed_first(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    context, receiver = registry.context, Receiver()

    async def begin_epoch(tx: Transaction) -> None:
        await renew(tx, EPOCH)

    with receiver.listening():
        taker = Taker(receiver)
        await add_event(registry)
        hook_id, _ = await registry.hook(receiver.url)
        await context.database.write(begin_epoch)
        await context.epochs.number_now()
        deliverer, active = await begin(registry, hook_id)
        failed = fail_once(monkeypatch, registry, text)
        with pytest.raises(DatabaseUnavailable):
            await deliverer.deliver_next(active)
        assert failed
        await add_event(registry)
        assert await deliverer.deliver_next(active)
    assert taker.types == ["muniment.feed.reset"]
    assert Position.parse(taker.ids[0].removeprefix("reset-")).epoch == EPOCH
