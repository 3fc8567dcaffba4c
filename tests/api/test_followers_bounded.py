"""Limits on the streams and waiting polls of a client, and of an IPv6 site with many clients."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx2
import pytest
from trigger_world import next_of

from applications import client_of
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.resources.feed.waiting import Waiter

pytestmark = pytest.mark.one_engine


async def test_a_site_has_as_many_streams_as_four_of_its_clients(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, waits = asyncio.Semaphore(0), Waiter.wait

    async def wait(follower: Waiter) -> None:
        waiting.release()
        await waits(follower)

    monkeypatch.setattr(Waiter, "wait", wait)
    few = replace(context, settings=replace(context.settings, feed_streams_per_client_max=1))
    app = Application(few)
    async with AsyncExitStack() as stack:

        async def at(address: str) -> httpx2.AsyncClient:
            return await stack.enter_async_context(client_of(app, address))

        begun = next_of(await (await at("2001:db8:1::1")).get("/events?wait=30")) or ""
        polls: list[asyncio.Task[httpx2.Response]] = []
        for place in ("2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:1:3::1", "2001:db8:1:4::1", "2001:db8:2::1"):
            polls.append(asyncio.create_task((await at(place)).get(begun)))
            async with asyncio.timeout(60):
                await waiting.acquire()
        for place in ("2001:db8:1:4::2", "2001:db8:1:5::1", "2001:db8:2::2"):
            async with asyncio.timeout(60):  # one that is admitted has no end
                refused = await (await at(place)).get("/events/stream")
            assert "too many streams" in refused.text, place
        for each in polls:
            each.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        await app.hub.close()
