"""Streams before the recent events, which read pages of the feed: their costs and their waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from muniment.service.context import Context
from muniment.service.http.admission import ClientAddresses
from muniment.service.resources.feed import hub as hub_module, reading
from muniment.service.resources.feed.events import EVERYTHING, EventFilter, Position
from muniment.service.resources.feed.hub import Hub
from muniment.service.resources.feed.routes import Follower
from muniment.service.storage.database import Transaction

pytestmark = pytest.mark.spoils_events("events are filled in by SQL")
EVENTS = 350
AT_MS = 1_795_204_080_123
ADD = "INSERT INTO events (at_ms, kind, subject, owners, origin, facts) VALUES (?, 3, ?, ?, ?, '{}')"
NOBODYS = EventFilter(owners=frozenset({bytes([255]) * 20}))


@dataclass
class Purse:
    """The limit of a client: how long it must wait before each page, in nanoseconds, and what was charged."""

    waits_ns: list[int] = field(default_factory=list[int])
    owed: list[int] = field(default_factory=list[int])
    asked: int = 0

    def wait_ns(self, units: int) -> int:
        del units
        self.asked += 1
        return self.waits_ns.pop(0) if self.waits_ns else 0


def stream_of(hub: Hub, epoch: int, purse: Purse, name: str, wanted: EventFilter) -> Any:
    request: Any = SimpleNamespace(
        client=SimpleNamespace(name=name, names=(name,), client=purse), peer="192.0.2.1", context=hub.context, id="x",
        fields=[], owe=lambda key, units: key.owed.append(units),
    )  # fmt: skip
    return Follower(hub, request, Position.at(epoch, 1), wanted, is_refused=False).texts()


@pytest.fixture
async def hub(context: Context, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    """The hub of a registry with many events, of which it keeps few in memory."""
    monkeypatch.setattr(hub_module, "RECENT_EVENTS_MAX", 10)
    monkeypatch.setattr(ClientAddresses, "address", lambda *_: "client")

    async def fill(tx: Transaction) -> None:
        for number in range(EVENTS):
            await tx.execute(ADD, (AT_MS, number.to_bytes(32), bytes(20), bytes(32)))

    await context.database.write(fill)
    made = Hub(context)
    yield made
    await made.close()


async def test_a_hub_that_wakes_while_old_events_are_removed_begins_after_them(
    hub: Hub, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the cursor of a poll that lacks none of them would be too old."""
    database, is_removed = context.database, False

    async def read(*about: Any) -> Any:
        nonlocal is_removed
        while not is_removed:  # after the hub has chosen where to begin
            is_removed = not await database.write(lambda tx: reading.remove_old(tx, 2 * AT_MS, 1))
        return await reading.read_slice(*about)

    monkeypatch.setattr(hub_module, "read_slice", read)
    await hub.awake()
    begun = hub.recent.begin_seq
    piece = hub.recent.take(begun, EVERYTHING)
    assert (begun, piece and piece.events) == (await reading.floor(database), 1)


async def test_a_stream_whose_client_is_over_its_limit_waits_and_continues(hub: Hub, context: Context) -> None:
    epoch = await context.epochs.number(context.database)
    purse = Purse(waits_ns=[0, 1_000_000, 1_000_000, 1_000_000])
    texts = stream_of(hub, epoch, purse, "a", EVERYTHING)
    seen = 0
    async with asyncio.timeout(60):
        while seen < EVENTS - 1:
            text = await anext(texts)
            seen += text.count(b"data: ")
            if seen == 100:
                assert purse.owed == [4 + 100 // 80 + len(text) // 1_024]
    await texts.aclose()
    # Before each page the limit is asked; three times there was no room.
    assert purse.asked == len(purse.owed) + 3
    assert len(purse.owed) == 4


async def test_a_page_of_a_stream_is_charged_for_the_rows_that_its_filter_leaves_out(
    hub: Hub, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a page of GET /events is."""
    monkeypatch.setattr(reading, "WALKED_MAX", 170)
    epoch, purse = await context.epochs.number(context.database), Purse()
    walking = asyncio.create_task(drain(stream_of(hub, epoch, purse, "a", NOBODYS)))
    async with asyncio.timeout(60):
        while len(purse.owed) < 2:
            await asyncio.sleep(0.01)
    walking.cancel()
    await asyncio.gather(walking, return_exceptions=True)
    assert purse.owed[:2] == [4 + 170 // 80] * 2


async def test_a_stream_that_waits_or_finds_no_event_sends_heartbeats(
    hub: Hub, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise proxies end it."""
    monkeypatch.setattr(hub, "heartbeat_seconds", 0.0)
    epoch = await context.epochs.number(context.database)
    texts = stream_of(hub, epoch, Purse(waits_ns=[60 * 10**9] * 1_000), "a", NOBODYS)
    async with asyncio.timeout(60):
        blocks = [await anext(texts) for _ in range(3)]
    await texts.aclose()
    assert blocks[1:] == [b"id: %b\n\n" % Position.at(epoch, 1).encode()] * 2


async def test_clients_read_pages_in_rounds(hub: Hub, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many streams a client has."""
    monkeypatch.setattr(reading, "WALKED_MAX", 5)
    monkeypatch.setattr(hub_module, "read_slice", counted := Counted(hub_module.read_slice))
    epoch = await context.epochs.number(context.database)
    walking = [stream_of(hub, epoch, Purse(), "greedy", NOBODYS) for _ in range(10)]
    honest = stream_of(hub, epoch, Purse(), "honest", EVERYTHING)
    tasks = [asyncio.create_task(drain(texts)) for texts in walking]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        seen = 0
        while seen < EVENTS - 1:
            seen += (await anext(honest)).count(b"data: ")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await honest.aclose()
    own = [place for place, wanted in enumerate(counted.pages) if wanted is EVERYTHING]
    assert len(own) == 4
    assert own[-1] - own[0] <= 2 * 3, "one page of the other client between two of this one"


class Counted:
    """A read of the feed that counts its filters."""

    def __init__(self, read: Any) -> None:
        self._read = read
        self.pages: list[EventFilter] = []

    async def __call__(self, database: Any, seq: int, wanted: EventFilter, limit: int) -> Any:
        if limit == hub_module.PIECE_EVENTS_MAX:
            self.pages.append(wanted)
        return await self._read(database, seq, wanted, limit)


async def drain(texts: Any) -> None:
    async for _ in texts:
        pass
