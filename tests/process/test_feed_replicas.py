"""The change feed, and lists that a client follows, of a service whose streaming replica stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from answers import ok, target_of
from builders import Bundle, Wallet, deploy, register
from event_stream import EventStream
from postgres import Cluster
from replicas_world import (
    a_client,
    new_draft,
    own_replica,
    primary,
    replica,
    sees,
    service,
    standing_still,
    started,
    until_served_by,
)
from service import Service

__all__ = ["own_replica", "primary", "replica", "service"]  # the fixtures

pytestmark = pytest.mark.long
TRIGGERS = 12
SECONDS_MAX = 60


@dataclass
class Poller:
    """Reads page after page; no page may fail."""

    client: httpx2.AsyncClient
    target: str
    member: str = "subject"
    subjects: list[str] = field(default_factory=list[str])
    empty_pages: int = 0

    @property
    def cursor(self) -> str:
        """The position of the next page."""
        return parse_qs(urlsplit(self.target).query)["cursor"][0]

    async def read(self) -> None:
        """Read the next page."""
        answer = await self.client.get(self.target)
        assert answer.status_code == 200, answer.text
        page = [each[self.member] for each in answer.json()]
        self.subjects += page
        self.empty_pages += not page
        self.target = target_of(answer) or self.target

    async def read_until(self, count: int) -> None:
        """Read until there are `count` subjects."""
        while len(self.subjects) < count:
            await self.read()

    async def read_to_end(self) -> None:
        """Read to the end of the feed."""
        pages = self.empty_pages
        while self.empty_pages == pages:
            await self.read()


@asynccontextmanager
async def a_stream(client: httpx2.AsyncClient, **given: Any) -> AsyncGenerator[EventStream]:
    """A stream, after its first block."""
    stream = await EventStream.open(str(client.base_url), **given)
    assert stream.status == 200
    await stream.block()
    try:
        yield stream
    finally:
        await stream.close()


async def test_followers_behind_a_late_replica_get_each_event_once_and_in_order(
    service: Service, replica: Cluster
) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(a_client(service))
        cid = await deploy(client)
        start = Poller(client, "/events")
        await start.read_to_end()  # the beginning, which is ten minutes ago
        await start.read_to_end()
        stream = await stack.enter_async_context(a_stream(client, after=start.cursor))
        async for _ in standing_still(replica, client):
            poller, waiter = Poller(client, start.target), Poller(client, f"{start.target}&wait=30")
            sigs = [(await register(client, new_draft(cid, Wallet(1))))["sig"] for _ in range(TRIGGERS)]
            async with asyncio.timeout(SECONDS_MAX):
                # These get their events as soon as without a replica.
                await waiter.read_until(TRIGGERS)
                assert waiter.empty_pages == 0, "a wait ends with an event"
                assert [(await stream.event()).data["subject"] for _ in sigs] == waiter.subjects == sigs
                # This one begins at a place that the replica does not have yet.
                ahead = Poller(client, f"/events?cursor={waiter.cursor}")
                for _ in range(10):
                    await asyncio.gather(ahead.read(), poller.read())
                if not poller.empty_pages:  # the primary has answered: again
                    start.target = ahead.target
                    continue
                await replica.execute("SELECT pg_wal_replay_resume()")
                await poller.read_until(TRIGGERS)
                assert poller.subjects == sigs
                last = (await register(client, new_draft(cid, Wallet(1))))["sig"]
                assert (await stream.event()).data["subject"] == last
                await asyncio.gather(
                    waiter.read_until(TRIGGERS + 1), poller.read_until(TRIGGERS + 1), ahead.read_until(1)
                )
            assert waiter.subjects == poller.subjects == [*sigs, last]
            assert ahead.subjects == [last]
            return


async def test_a_follower_gets_each_row_once_and_in_order_whichever_replica_answers(
    tmp_path: Path, primary: Cluster, replica: Cluster
) -> None:
    with primary.replica() as other, started(tmp_path, primary, replica, other) as service:
        async with a_client(service) as client:
            cid = await deploy(client)
            followers = [Poller(client, "/events"), Poller(client, "/triggers?sort=1&limit=100", "sig")]
            await until_served_by(replica, client)
            await until_served_by(other, client)
            async with asyncio.timeout(SECONDS_MAX):
                while cid not in followers[0].subjects:
                    await followers[0].read()
                await followers[1].read_to_end()
            for each in followers:
                each.subjects.clear()
            sigs: list[str] = []
            for late in (replica, other) * 3:
                await late.execute("SELECT pg_wal_replay_pause()")
                for _ in range(5):
                    sigs.append((await register(client, new_draft(cid, Wallet(4))))["sig"])
                    for each in followers * 2:
                        await each.read()
                await late.execute("SELECT pg_wal_replay_resume()")
            async with asyncio.timeout(SECONDS_MAX):
                for each in followers:
                    await each.read_until(len(sigs))
    assert [each.subjects for each in followers] == [sigs, sigs]


async def test_a_start_without_cursor_is_not_ahead_of_the_listings_of_a_late_replica(
    tmp_path: Path, primary: Cluster, replica: Cluster
) -> None:
    with started(tmp_path, primary, replica) as service:
        async with a_client(service) as client:
            before = await deploy(client, Bundle("before the lag that is allowed"))
            await primary.execute("UPDATE events SET at_ms = at_ms - 1200000")
            cid = await deploy(client, Bundle("within it"))
            sigs: list[str] = []
            async for _ in standing_still(replica, client):
                sigs.append((await register(client, new_draft(cid, Wallet(2))))["sig"])
                if not await sees(client, sigs[-1]):
                    break
            poller = Poller(client, "/events")
            await poller.read()
            async with a_stream(client) as stream:
                async with asyncio.timeout(SECONDS_MAX):
                    shown: list[str] = []
                    while sigs[-1] not in shown:
                        shown.append((await stream.event()).data["subject"])
                    poller.target += "&wait=5"
                    while sigs[-1] not in poller.subjects:
                        await poller.read()
    assert poller.subjects == shown == [cid, *sigs]
    assert before not in shown


@pytest.mark.parametrize("way", ["poll", "stream"])
async def test_a_client_that_got_an_event_reads_the_change_at_once(
    service: Service, replica: Cluster, way: str
) -> None:
    async with a_client(service) as client:
        wallet = Wallet(3)
        trigger = await register(client, new_draft(await deploy(client), wallet))
        start = Poller(client, "/events")
        await start.read_to_end()
        await start.read_to_end()
        await until_served_by(replica, client)
        await replica.execute("SELECT pg_wal_replay_pause()")
        told = told_by_stream(client, start) if way == "stream" else told_by_poll(client, start)
        body = {"triggerSigs": [trigger["sig"]], "signature": wallet.sign_deactivation([trigger["sig"]])}
        assert (await client.post("/triggers/deactivate", json=body)).status_code == 204
        assert await told == trigger["sig"]
        assert "deactivateSig" in ok(await client.get(f"/triggers/{trigger['sig']}")).json()


async def told_by_stream(client: httpx2.AsyncClient, start: Poller) -> str:
    async with a_stream(client, after=start.cursor) as stream:
        return (await stream.event()).data["subject"]


async def told_by_poll(client: httpx2.AsyncClient, start: Poller) -> str:
    poller = Poller(client, f"{start.target}&wait=5")
    await poller.read_until(1)
    return poller.subjects[0]
