"""PostgreSQL that hangs up, restarts or hangs: 503 within a bound, and recovery without help."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from answers import answered, ok
from builders import TriggerDraft, register
from crashing import Site
from faults import ANSWER_SECONDS_MAX, Draft, assert_unavailable, configure, end_our_sessions, until, until_none_of_ours
from loading import reading, until_it_is_ready

pytestmark = pytest.mark.long

# Of four ends and more. A connection that a busy machine does not open in time is an answer of 503, once.
REFUSED_MAX = 2


@dataclass
class Counting:
    """A client that repeats what is refused for a moment, and counts the refusals."""

    client: httpx2.AsyncClient
    refused: int = 0

    async def ask(self, method: str, target: str, **given: Any) -> dict[str, Any]:
        answer = await self.client.request(method, target, **given)
        if answer.status_code == 503:
            self.refused += 1
            answer = await answered(self.client, method, target, **given)
        return ok(answer).json()

    async def register(self, draft: TriggerDraft) -> dict[str, Any]:
        return await self.ask("POST", "/triggers", json=draft.signed())


async def test_sessions_that_were_ended_while_idle_are_not_noticed(
    caller: httpx2.AsyncClient, admin: Any, draft: Draft
) -> None:
    client = Counting(caller)
    for _ in range(3):
        record = await client.register(draft())
        await end_our_sessions(admin)
        assert await client.ask("GET", f"/triggers/{record['sig']}") == record
        await end_our_sessions(admin)
    assert client.refused <= REFUSED_MAX


async def test_sessions_that_were_idle_for_too_long_are_not_noticed(
    caller: httpx2.AsyncClient, admin: Any, draft: Draft
) -> None:
    await admin.execute("SET idle_session_timeout = 0")
    client = Counting(caller)
    # Shorter than the second between two looks at the server's clock; long enough for a session's first statement.
    await configure(admin, "ALTER SYSTEM SET idle_session_timeout = '500ms'")
    try:
        await end_our_sessions(admin)  # an idle one would look at the configuration only at its next statement
        record = await client.register(draft())
        for _ in range(2):
            await until_none_of_ours(admin)
            assert await client.ask("GET", f"/triggers/{record['sig']}") == record
            await until_none_of_ours(admin)
            await client.register(draft())
    finally:
        await configure(admin, "ALTER SYSTEM RESET idle_session_timeout")
    assert client.refused <= REFUSED_MAX


async def test_under_load_the_end_of_all_sessions_costs_at_most_a_second_try(site: Site, admin: Any) -> None:
    async with await site.load() as load, reading(site.urls[0], "/readyz"):
        for _ in range(5):
            await asyncio.sleep(0.2)
            await end_our_sessions(admin)
            await load.recovery(time.monotonic())
    await load.check()
    assert load.longest < ANSWER_SECONDS_MAX


def says(readiness: list[tuple[float, int, float]], status: int, since: float) -> Callable[[], Awaitable[bool]]:
    """Whether the last one who asked, and began to after `since`, was told `status`."""

    async def last_says() -> bool:
        return bool(readiness) and readiness[-1][1] == status and readiness[-1][0] > since

    return last_says


async def test_a_server_restarted_under_load_is_503_until_it_is_back(site: Site) -> None:
    assert site.cluster is not None
    service = site.services[0].pid
    async with await site.load() as load, reading(site.urls[0], "/readyz") as readiness:
        for _ in range(3):
            await load.recovery(time.monotonic())
            stopped = time.monotonic()
            await asyncio.to_thread(site.cluster.stop)
            refused = load.refused
            await until(says(readiness, 503, stopped))
            await load.until(lambda refused=refused: load.refused > refused)
            await asyncio.to_thread(site.cluster.start)
            started = time.monotonic()
            print(f"a write {await load.recovery(started):.2f} s after the server answered")
            await until(says(readiness, 200, started))
    await load.check()
    assert {status for _, status, _ in readiness} == {200, 503}
    assert max(load.longest, *(took for *_, took in readiness)) < ANSWER_SECONDS_MAX
    assert site.services[0].pid == service


async def test_a_server_that_hangs_is_503_within_a_bound_until_it_goes_on(
    site: Site, caller: httpx2.AsyncClient, draft: Draft
) -> None:
    body = draft().signed()
    record = await register(caller, draft())
    began = time.monotonic()
    assert site.cluster is not None
    try:
        site.cluster.pause()
        writes = [caller.post("/triggers", json=body) for _ in range(10)]
        reads = [caller.get(f"/triggers/{record['sig']}"), caller.get("/functions"), caller.get("/readyz")]
        await assert_unavailable(*writes, *reads)
        print(f"all refused after {time.monotonic() - began:.1f} s")
        began = time.monotonic()
        await assert_unavailable(*(caller.get("/readyz") for _ in range(5)))
        assert (await caller.get("/healthz")).status_code == 200
    finally:
        site.cluster.resume()
    print(f"ready {await until_it_is_ready(caller):.2f} s after it went on")
    assert ok(await caller.get(f"/triggers/{record['sig']}")).json() == record
    assert (await caller.post("/triggers", json=body)).status_code == 200
