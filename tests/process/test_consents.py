"""The rules about a consent hold when two services of one database get requests at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx2
import pytest

from answers import asked, ok
from builders import TriggerDraft, Wallet, deploy, register
from crashing import Site, on_database
from in_turn import client_in_turn
from postgres import Cluster


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two services; each test has an owner of its own."""
    folder = tmp_path_factory.mktemp("consents")  # a process of the tests may come back to this module
    with on_database(folder, asyncio.run(cluster.create_migrated(folder.name))) as made:
        yield made


@pytest.fixture
def client(site: Site) -> httpx2.AsyncClient:
    return client_in_turn(site.urls)


async def test_fifty_simultaneous_creates_are_one_record(client: httpx2.AsyncClient) -> None:
    async with client:
        owner = Wallet(51)
        body = TriggerDraft(await deploy(client), owner).signed()
        answers = await asyncio.gather(*(asked(client, "POST", "/triggers", json=body) for _ in range(50)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        assert ok(await client.get(f"/triggers?signer={owner.address}")).json() == [answers[0].json()]


async def test_overlapping_simultaneous_deactivations_all_hold(client: httpx2.AsyncClient) -> None:
    async with client:
        owner = Wallet(52)
        cid = await deploy(client)
        sigs = [(await register(client, TriggerDraft(cid, owner, version=f"{n}.0.0")))["sig"] for n in range(12)]
        lists = [sigs[:8], sigs[:3:-1], sigs, sigs[::2]]
        signatures = [owner.sign_deactivation(listed) for listed in lists]
        bodies = [{"triggerSigs": each, "signature": sig} for each, sig in zip(lists, signatures, strict=True)] * 3
        answers = await asyncio.gather(*(asked(client, "POST", "/triggers/deactivate", json=body) for body in bodies))
        assert {answer.status_code for answer in answers} == {204}
        assert ok(await client.get(f"/triggers?active=true&signer={owner.address}")).json() == []
        ended = ok(await client.get(f"/triggers?limit=100&signer={owner.address}")).json()
        assert {trigger["deactivateSig"] for trigger in ended} <= set(signatures)


async def test_a_create_beside_a_deactivation_never_leaves_it_active(client: httpx2.AsyncClient) -> None:
    async with client:
        owner = Wallet(53)
        cid = await deploy(client)
        for number in range(20):
            body = TriggerDraft(cid, owner, version=f"{number}.0.0").signed()
            consent = {"triggerSigs": [body["sig"]], "signature": owner.sign_deactivation([body["sig"]])}
            first, ending, second = await asyncio.gather(
                asked(client, "POST", "/triggers", json=body),
                asked(client, "POST", "/triggers/deactivate", json=consent),
                asked(client, "POST", "/triggers", json=body),
            )
            assert {first.status_code, second.status_code} <= {200, 409}
            assert ending.status_code in {204, 404}
            shown = ok(await client.get(f"/triggers/{body['sig']}")).json()
            assert ("deactivateSig" in shown) is (ending.status_code == 204)
