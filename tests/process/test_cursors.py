"""Two processes write to one database while readers follow cursors: nothing is shown twice, nothing is missed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from builders import TriggerDraft, Wallet, deploy
from service import Service

ROWS_EACH = 120
SECONDS_MAX = 60
WRITERS = (Wallet(41), Wallet(42))
NEXT = re.compile(r'<(/[^>]+)>; rel="next"')


async def write(url: str, bodies: list[dict[str, Any]]) -> None:
    """Post them a few at a time, each over a connection of its own, so that every process gets some."""
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=30) as client:
        for at in range(0, len(bodies), 4):
            answers = await asyncio.gather(*(client.post("/triggers", json=body) for body in bodies[at : at + 4]))
            assert {answer.status_code for answer in answers} == {200}


async def tail(url: str, query: str) -> AsyncIterator[str]:
    """The signatures as they come along the next links, for ever; each page over a connection of its own."""
    limits = httpx.Limits(max_keepalive_connections=0)
    target = f"/triggers?sort=1&{query}"
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=30) as client:
        while True:
            response = await client.get(target)
            for trigger in response.json():
                yield trigger["sig"]
            link = NEXT.fullmatch(response.headers["link"])
            assert link
            target = link[1]


async def read(url: str, query: str, count: int) -> list[str]:
    """As many signatures as there should be; more would come at once, so one more page is asked for."""
    seen: list[str] = []
    following = tail(url, query)
    async with asyncio.timeout(SECONDS_MAX):
        async for sig in following:
            seen.append(sig)
            if len(seen) == count:
                break
    await following.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    return seen


@pytest.fixture
def two_workers(tmp_path: Path) -> Any:
    with Service(tmp_path / "data", workers=2) as started:
        yield started


async def test_readers_that_follow_cursors_see_every_row_once(two_workers: Service) -> None:
    url = two_workers.url
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        cid = await deploy(client)
    drafts = [[TriggerDraft(cid, wallet, version=f"{n}.0.0").signed() for n in range(ROWS_EACH)] for wallet in WRITERS]
    sigs = [[body["sig"] for body in bodies] for bodies in drafts]
    everything = ROWS_EACH * len(WRITERS)
    readers = [
        read(url, "limit=7", everything),
        read(url, "limit=100&active=true", everything),
        read(url, f"limit=3&signer={WRITERS[0].address}", ROWS_EACH),
        read(url, f"limit=5&functionCid={cid}", everything),
    ]
    writing = asyncio.gather(*(write(url, bodies) for bodies in drafts))
    whole, active, mine, by_function = await asyncio.gather(*readers)
    await writing
    assert whole == active == by_function  # one order for everybody: that of the commits
    assert sorted(whole) == sorted(sigs[0] + sigs[1])
    assert mine == [sig for sig in whole if sig in set(sigs[0])]
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        newest_first = await newest(client)
    assert newest_first == whole[::-1]


async def newest(client: httpx.AsyncClient) -> list[str]:
    seen: list[str] = []
    target: str | None = "/triggers?limit=50"
    while target is not None:
        response = await client.get(target)
        seen += [trigger["sig"] for trigger in response.json()]
        link = NEXT.fullmatch(response.headers.get("link", ""))
        target = link[1] if link else None
    return seen
