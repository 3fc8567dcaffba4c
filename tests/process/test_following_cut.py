"""Followers that are cut off at random, while a process is killed: each sees exactly its slice of the feed.

`FEED_EVENTS` and `FEED_FOLLOWERS` set how many there are, for a longer run by hand.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import httpx2
import pytest

from answers import answered, ok
from crashing import Site, on_postgres, on_sqlite
from event_stream import EventStream
from muniment.protocol.errors import DatabaseUnavailable
from muniment.protocol.evm.address import Address
from muniment.protocol.intents.rules import check_log
from muniment.protocol.intents.texts import LogText
from muniment.protocol.intents.types import NewLog
from muniment.service.resources.feed.events import Event, EventFilter, Kind, Position
from muniment.service.resources.intents import recording
from muniment.service.storage.database import Database, Transaction
from operator_client import IntentDraft

EVENTS = int(os.environ.get("FEED_EVENTS", "3000"))
FOLLOWERS = int(os.environ.get("FEED_FOLLOWERS", "24"))
# All followers are in this process: with more of them each needs longer to get on before it is cut off.
CUT_SECONDS_MAX = max(1.0, FOLLOWERS / 24)
# This ends a hang: nobody gets an event for so long.
SECONDS_MAX = 120
# An intent has at most 10,000 lines.
INTENTS = max(6, EVENTS // 9_000)
LINES_PER_WRITE = 50
WAYS = ("poll", "wait", "stream")


class Follower:
    """A client that keeps its events and its position."""

    def __init__(self, number: int, urls: list[str], start: str, dice: random.Random) -> None:
        self.way = WAYS[number % len(WAYS)]
        self.of = None if number % 2 else number % INTENTS
        self.position = start
        self.seen: list[str] = []
        self.cuts = 0
        # Each client has rate limits of its own.
        self._address = f"127.0.1.{number + 1}"
        self._urls = urls
        self._dice = dice

    @property
    def query(self) -> str:
        return "" if self.of is None else f"user={user(self.of)}"

    async def follow(self) -> None:
        """Follow forever; each connection ends after a random time, which is longer after one that brought nothing."""
        patience = 1.0
        while True:
            before = len(self.seen)
            with suppress(TimeoutError, httpx2.HTTPError, OSError, EOFError):
                async with asyncio.timeout(patience * self._dice.uniform(0.05, CUT_SECONDS_MAX)):
                    await (self._stream() if self.way == "stream" else self._poll())
            patience = 1.0 if len(self.seen) > before else min(2 * patience, 60.0)
            self.cuts += 1
            await asyncio.sleep(0.01)

    async def _poll(self) -> None:
        wait = 5 if self.way == "wait" else 0
        # No certificates are read, which would take most of the time.
        transport = httpx2.AsyncHTTPTransport(local_address=self._address, verify=False)
        async with httpx2.AsyncClient(
            base_url=self._dice.choice(self._urls), transport=transport, timeout=30
        ) as client:
            while True:
                answer = await client.get(f"/events?limit=100&cursor={self.position}&wait={wait}&{self.query}")
                if answer.status_code != 200:  # over its rate limit, or the process was killed
                    await asyncio.sleep(0.2)
                    return
                self.seen += [each["id"] for each in answer.json()]
                self.position = answer.headers["link"].split("cursor=")[1].split(">")[0]
                if not wait:
                    await asyncio.sleep(0.1)

    async def _stream(self) -> None:
        url = self._dice.choice(self._urls)
        stream = await EventStream.open(url, self.query, after=self.position, address=self._address)
        try:
            while True:
                block = await stream.block()
                if block.data is not None:
                    self.seen.append(block.id)
                if block.id:
                    self.position = block.id
        finally:
            stream.writer.transport.abort()


def user(number: int) -> str:
    return Address.from_raw(bytes([number + 1]) * 20)


async def write_events(database: Database, count: int) -> None:
    """Log lines of some intents, each an event, as the service writes them."""
    drafts = [IntentDraft(number, members={"user": user(number)}) for number in range(INTENTS)]
    hashes = [bytes.fromhex(draft.hash[2:]) for draft in drafts]

    async def append(tx: Transaction, start: int) -> None:
        for number in range(start, min(start + LINES_PER_WRITE, count)):
            line = check_log(NewLog(level="info", data=LogText.parse(str(number))), number)
            await recording.append_log(tx, hashes[number % INTENTS], line, "relayer", 1)

    for start in range(0, count, LINES_PER_WRITE):
        while True:
            with suppress(DatabaseUnavailable):  # on a busy machine; a line that was written is not written again
                await database.write(lambda tx, start=start: append(tx, start))
                break
        await asyncio.sleep(0.01)


@pytest.fixture(params=[on_sqlite, on_postgres])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    make: Callable[[Path], AbstractContextManager[Site]] = request.param
    context = make(tmp_path)
    made = await asyncio.to_thread(context.__enter__)
    yield made
    await asyncio.to_thread(context.__exit__, None, None, None)


@pytest.mark.long
# A connection that is cut while it is opened has no owner who could close it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_followers_that_are_cut_off_see_each_event_of_their_slice_once(site: Site) -> None:
    dice = random.Random(11)
    key = await asyncio.to_thread(site.command, "operators", "add", "relayer")
    async with httpx2.AsyncClient(base_url=site.urls[0], timeout=60) as client:
        for number in range(INTENTS):
            draft = IntentDraft(number, members={"user": user(number)})
            headers = {"x-operator-key": key}
            await answered(client, "PUT", f"/intents/{draft.hash}", json=draft.body, headers=headers)
        start = ok(await client.get("/events")).headers["link"].split("cursor=")[1].split(">")[0]
    followers = [Follower(number, site.urls, start, random.Random(number)) for number in range(FOLLOWERS)]
    tasks = [asyncio.create_task(each.follow()) for each in followers]
    database = site.database()
    writing = asyncio.create_task(write_events(database, EVENTS))
    for _ in range(3):
        await asyncio.sleep(dice.uniform(0.1, 0.5))
        service = dice.choice(site.services)
        await asyncio.to_thread(service.kill)
        service.launch()
        await asyncio.to_thread(service.wait_until_ready)
    await writing
    slices = await expected(database, start)
    before, now_s = -1, asyncio.get_running_loop().time
    deadline = now_s()
    while missing := [each for each in followers if len(each.seen) < len(slices[each.of])]:
        if (seen := sum(len(each.seen) for each in followers)) > before:
            before, deadline = seen, now_s() + SECONDS_MAX
        assert now_s() < deadline, [(each.way, len(each.seen)) for each in missing]
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await database.close()
    gc.collect()  # the connections without an owner; later they would fail another test
    for each in followers:
        assert each.seen == slices[each.of], each.way
    assert min(each.cuts for each in followers) > 0


async def expected(database: Database, start: str) -> dict[int | None, list[str]]:
    """The ids of all events after `start`, and of those of each user."""
    place = Position.parse(start)
    rows = await database.fetch(
        "SELECT seq, at_ms, kind, subject, owners, origin, settler, facts FROM events WHERE seq > ? ORDER BY seq",
        (place.seq,),
    )
    events = [Event(*row) for row in rows]
    assert len(events) == EVENTS
    assert {each.kind for each in events} == {Kind.INTENT_LOGGED}
    found: dict[int | None, list[str]] = {None: [Position.at(place.epoch, each.seq) for each in events]}
    for number in range(INTENTS):
        wanted = EventFilter(owners=frozenset({bytes([number + 1]) * 20}))
        found[number] = [Position.at(place.epoch, each.seq) for each in events if wanted.matches(each)]
    return found
