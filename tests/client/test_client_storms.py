"""Many writes and reads while exchanges break at random: all is stored, and all is stored once."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from facades_world import bundle, draft, hash_of, new_intent, new_proposal, signer
from faults_world import FACADES, PASSING, Site, client, faulty_site

from middle import Asked, Forward
from muniment.client import AsyncRegistry, Registry, Retry


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with faulty_site(tmp_path_factory.mktemp("faults")) as made:
        yield made


class Storm:
    """A proxy that has any fault at any time, the same ones in every run as far as threads allow."""

    def __init__(self) -> None:
        self._chance = random.Random(16)
        self._lock = threading.Lock()
        self.faults = 0

    def __call__(self, asked: Asked, forward: Forward) -> Any:
        with self._lock:
            fault = self._chance.choice([*PASSING.values()]) if self._chance.random() < 0.25 else None
            self.faults += fault is not None
        return forward() if fault is None else fault(asked, forward)


STORMY = Retry(tries=16, chance=lambda: 0.005)


def check_stored_once(site: Site, hashes: list[str]) -> None:
    with Registry(site.middle.behind) as registry:
        for hash_ in hashes:
            found = registry.intents.get(hash_)
            assert (found.status, len(found.proposals), len(found.logs)) == ("submitted", 2, 2)


async def test_many_writes_through_a_storm_are_stored_once(site: Site) -> None:
    news = [new_intent(1 + n % 2) for n in range(20)]
    storm = Storm()
    with site.middle.behaving(storm):
        async with (
            AsyncRegistry(site.middle.url, operator_key=site.key, retry=STORMY) as registry,
            registry.writer(concurrency=8) as writer,
        ):
            for n, new in enumerate(news):
                hash_ = hash_of(new)
                await writer.put(new)
                for number in (1, 2):
                    await writer.propose(hash_, new_proposal(1 + n % 2, number))
                    await writer.log(hash_, "info", "the same text")
                await writer.move(hash_, "enqueued")
                await writer.move(hash_, "submitted", transaction_hash="0x" + "ab" * 32)
    assert storm.faults > 20
    await asyncio.to_thread(check_stored_once, site, [hash_of(new) for new in news])


def test_threads_share_a_blocking_client_through_a_storm(site: Site) -> None:
    news = [new_intent() for _ in range(12)]
    wallet = signer()
    with Registry(site.middle.url, signer=wallet, operator_key=site.key, retry=STORMY) as registry:
        cid = registry.functions.deploy(bundle()).cid

        def write(n: int) -> None:
            hash_ = registry.intents.put(news[n]).hash
            for number in (1, 2):
                registry.intents.propose(hash_, new_proposal(number=number))
                registry.intents.log(hash_, "info", "the same text")
            registry.intents.move(hash_, "enqueued")
            registry.intents.move(hash_, "submitted")
            registry.triggers.create(draft(cid, version=f"{n}.0.0"))

        with site.middle.behaving(Storm()), ThreadPoolExecutor(4) as threads:
            list(threads.map(write, range(len(news))))
            found = [trigger.version for trigger in registry.triggers.list(signer=wallet.address, limit=5)]
        assert sorted(found) == sorted(f"{n}.0.0" for n in range(len(news)))
    check_stored_once(site, [hash_of(new) for new in news])


@FACADES
def test_a_listing_is_followed_through_a_storm(site: Site, facade: str) -> None:
    user = signer().address
    with client(site, facade, retry=STORMY) as calls:
        made = [calls.do("intents.put", new_intent(user=user)).hash for _ in range(5)]
        found: list[str] = []
        cursor = None
        with site.middle.behaving(Storm()):
            while len(found) < len(made):
                (page,) = calls.pages("intents.follow", 1, user=user, after=cursor)
                found += [each.hash for each in page]
                cursor = page.cursor
        assert found == made
