"""Two services write to one database while readers follow cursors: nothing is shown twice, nothing is missed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import answered, target_of
from builders import TriggerDraft, Wallet, deploy
from crashing import Site, on_database
from loading import DEADLINE
from operator_client import SETTLER, USER, IntentDraft

# How many rows each writer writes. More of them meet in more ways.
ROWS = pytest.mark.parametrize("rows_each", [40, pytest.param(120, marks=pytest.mark.long)])
SECONDS_MAX = 300
WRITERS = (Wallet(41), Wallet(42))


async def write(urls: list[str], requests: list[tuple[str, str, Any]], key: str = "") -> None:
    """Send them a few at a time, each over a connection of its own, so that every service gets some."""
    headers = {"x-operator-key": key}
    async with client_of("") as client:
        for at in range(0, len(requests), 4):
            some = zip(requests[at : at + 4], itertools.cycle(urls), strict=False)
            sent = (
                answered(client, method, url + path, json=body, headers=headers) for (method, path, body), url in some
            )
            await asyncio.gather(*sent)


def client_of(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, limits=httpx2.Limits(max_keepalive_connections=0))


async def tail(urls: list[str], target: str) -> AsyncIterator[str]:
    """The names as they come along the next links, for ever; each page from another service."""
    async with client_of("") as client:
        for url in itertools.cycle(urls):
            response = await answered(client, "GET", url + target)
            page = response.json()
            for row in page:
                yield row.get("sig") or row["hash"]
            if not page:
                await asyncio.sleep(0.01)  # else most requests would be those of readers that are at the end
            following = target_of(response)
            assert following
            target = following


async def read(urls: list[str], target: str, count: int) -> list[str]:
    """As many names as there should be; more would come at once, so one more page is asked for."""
    seen: list[str] = []
    following = tail(urls, target)
    async with asyncio.timeout(SECONDS_MAX):
        async for name in following:
            seen.append(name)
            if len(seen) == count:
                break
    await following.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    return seen


@pytest.fixture
def site(tmp_path: Path, postgres_url: str) -> Iterator[Site]:
    with on_database(tmp_path, postgres_url) as made:
        yield made


@ROWS
async def test_readers_that_follow_cursors_see_every_row_once(site: Site, rows_each: int) -> None:
    urls = site.urls
    async with client_of(urls[0]) as client:
        cid = await deploy(client)
    drafts = [[TriggerDraft(cid, wallet, version=f"{n}.0.0").signed() for n in range(rows_each)] for wallet in WRITERS]
    sigs = [[body["sig"] for body in bodies] for bodies in drafts]
    everything = rows_each * len(WRITERS)
    readers = [
        read(urls, "/triggers?sort=1&limit=7", everything),
        read(urls[::-1], "/triggers?sort=1&limit=30&active=true", everything),
        read(urls, f"/triggers?sort=1&limit=3&signer={WRITERS[0].address}", rows_each),
        read(urls[::-1], f"/triggers?sort=1&limit=5&functionCid={cid}", everything),
    ]
    writing = asyncio.gather(*(write(urls, [("POST", "/triggers", body) for body in bodies]) for bodies in drafts))
    whole, active, mine, by_function = await asyncio.gather(*readers)
    await writing
    assert whole == active == by_function  # one order for everybody: that of the commits
    assert sorted(whole) == sorted(sigs[0] + sigs[1])
    assert mine == [sig for sig in whole if sig in set(sigs[0])]
    async with client_of(urls[-1]) as client:
        newest_first = await newest(client, "/triggers?limit=25")
    assert newest_first == whole[::-1]


@ROWS
async def test_readers_that_follow_intents_see_every_one_once(site: Site, rows_each: int) -> None:
    urls = site.urls
    everything = rows_each * len(WRITERS)
    drafts = [IntentDraft(n, DEADLINE, {"op": 1 + n % 2}) for n in range(everything)]
    readers = [
        read(urls, "/intents?sort=1&limit=7", everything),
        read(urls[::-1], f"/intents?sort=1&limit=30&user={USER.address}", everything),
        read(urls, "/intents?sort=1&limit=3&op=2", rows_each),
        read(urls[::-1], f"/intents?sort=1&limit=5&settler={SETTLER}&status=created", everything),
    ]
    puts = [("PUT", f"/intents/{draft.hash}", draft.body) for draft in drafts]
    key = site.command("operators", "add", "relayer")
    writing = asyncio.gather(write(urls, puts[:rows_each], key), write(urls, puts[rows_each:], key))
    whole, of_user, of_op, created = await asyncio.gather(*readers)
    await writing
    assert whole == of_user == created
    assert sorted(whole) == sorted(draft.hash for draft in drafts)
    named = {draft.hash for draft in drafts if draft.body["op"] == 2}
    assert of_op == [name for name in whole if name in named]
    async with client_of(urls[-1]) as client:
        assert await newest(client, "/intents?limit=25") == whole[::-1]


async def newest(client: httpx2.AsyncClient, first: str) -> list[str]:
    seen: list[str] = []
    target: str | None = first
    while target is not None:
        response = await answered(client, "GET", target)
        seen += [row.get("sig") or row["hash"] for row in response.json()]
        target = target_of(response)
    return seen
