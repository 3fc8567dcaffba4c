"""Limits for strangers with many wallets: webhooks and their tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal
from webhooks_world import Maker

from applications import another_process, client_of
from builders import Wallet, log_in
from conftest import Clock
from muniment.service.app import Application
from muniment.service.app.application import SWEEPS
from muniment.service.context import Context
from muniment.service.resources.webhooks import managing, store
from muniment.service.running.settings import Settings
from operator_client import operator_key
from receiving import Received, Receiver, Reply, echo

ELSEWHERE = "https://hooks.example.org/"
DAY_MS = 86_400_000


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, allow_private_networks=True, webhooks="users")


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> Maker:
    return Maker(client, {"x-operator-key": await operator_key(context)})


async def wallet_of(client: httpx2.AsyncClient, number: int) -> tuple[Maker, dict[str, Any]]:
    """A wallet, and the filters that it must have."""
    wallet = Wallet(number)
    return Maker(client, {"x-auth-token": await log_in(client, wallet)}), {"filters": {"owner": [wallet.address]}}


async def sweep(context: Context) -> None:
    for each in SWEEPS:
        await context.database.write(lambda tx, each=each: each(tx, context))


async def test_an_address_has_at_most_ten_webhooks_that_wait_for_their_receivers(
    client: httpx2.AsyncClient, operator: Maker, nothing_stored: Callable[[], Any]
) -> None:
    paths: list[str] = []
    with Receiver().listening() as receiver:
        for number in (1, 2):
            wallet, own = await wallet_of(client, number)
            paths += [await wallet.added(receiver.url, **own) for _ in range(5)]
        other, own = await wallet_of(client, 3)
        async with nothing_stored():
            refused = [await other.call("POST", "/webhooks", {"url": ELSEWHERE, **own}) for _ in range(2)]
        for each in refused:
            check_refusal(each, 409, "too-many-webhooks")
        await operator.added(ELSEWHERE)
        assert (await wallet.done("POST", f"{paths[-1]}/test"))["status"] == "active"
    await other.added(ELSEWHERE, **own)
    together = [other.call("POST", "/webhooks", {"url": ELSEWHERE, **own}) for _ in range(3)]
    assert [each.status_code for each in await asyncio.gather(*together)] == [409] * 3
    assert (await wallet.call("DELETE", paths[-2])).status_code == 204
    together = [other.call("POST", "/webhooks", {"url": ELSEWHERE, **own}) for _ in range(3)]
    assert sum(each.status_code == 200 for each in await asyncio.gather(*together)) <= 1


async def test_webhooks_that_are_added_together_are_all_counted(client: httpx2.AsyncClient) -> None:
    wallets = [await wallet_of(client, number) for number in range(1, 6)]
    statuses: list[int] = []
    for _ in range(4):
        together = [wallet.call("POST", "/webhooks", {"url": ELSEWHERE, **own}) for wallet, own in wallets]
        statuses += [each.status_code for each in await asyncio.gather(*together)]
    assert sorted(statuses) == [200] * 10 + [409] * 10


async def test_an_address_has_at_most_forty_webhooks_of_wallets_that_are_confirmed(
    client: httpx2.AsyncClient, operator: Maker, nothing_stored: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert managing.ADDED_MAX == 40
    monkeypatch.setattr(managing, "ADDED_MAX", 15)  # more than may wait at the same time
    paths: list[str] = []
    with Receiver().listening() as receiver:
        wallets = [await wallet_of(client, number) for number in range(1, 4)]
        for wallet, own in wallets:
            for _ in range(5):
                paths.append(await wallet.added(receiver.url, **own))
                assert (await wallet.done("POST", f"{paths[-1]}/test"))["status"] == "active"
        other, own = await wallet_of(client, 9)
        async with nothing_stored():
            refused = await other.call("POST", "/webhooks", {"url": ELSEWHERE, **own})
        assert "from this address" in check_refusal(refused, 409, "too-many-webhooks")["detail"]
        await operator.added(ELSEWHERE)
        assert (await wallets[-1][0].call("DELETE", paths[-1])).status_code == 204
        await other.added(ELSEWHERE, **own)


@pytest.mark.one_engine
async def test_a_site_has_the_webhooks_of_four_clients_and_an_exempt_network_has_no_limit(
    context: Context, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managing, "PENDING_MAX", 1)
    exempt = replace(context, settings=replace(context.settings, rate_limit_exempt="192.0.2.0/24"))
    wallets = [await wallet_of(client, number) for number in range(1, 8)]
    async with another_process(exempt) as other, AsyncExitStack() as stack:
        app = Application(other)

        async def add(wallet: Maker, own: dict[str, Any], address: str) -> int:
            at = await stack.enter_async_context(client_of(app, address))
            return (await Maker(at, wallet.headers).call("POST", "/webhooks", {"url": ELSEWHERE, **own})).status_code

        added = [await add(*wallets[n], f"2001:db8:1:{n}::1") for n in range(5)]
        assert added == [200] * 4 + [409]
        assert await add(*wallets[5], "2001:db8:2::1") == 200
        assert [await add(*wallets[6], "192.0.2.1") for _ in range(3)] == [200] * 3


async def test_wallets_leave_places_to_operators(
    client: httpx2.AsyncClient, operator: Maker, monkeypatch: pytest.MonkeyPatch, nothing_stored: Callable[[], Any]
) -> None:
    monkeypatch.setattr(store, "WALLETS_HOOKS_MAX", 2)
    for number in (1, 2):
        wallet, own = await wallet_of(client, number)
        await wallet.added(ELSEWHERE, **own)
    async with nothing_stored():
        check_refusal(await wallet.call("POST", "/webhooks", {"url": ELSEWHERE, **own}), 409, "too-many-webhooks")
    await operator.added(ELSEWHERE)


async def test_a_webhook_of_a_wallet_that_is_not_confirmed_within_a_day_is_removed(
    client: httpx2.AsyncClient, context: Context, operator: Maker, clock: Clock
) -> None:
    wallet, own = await wallet_of(client, 1)
    with Receiver().listening() as receiver:
        refusing = await wallet.added(receiver.url, **own)
        moved = await wallet.added(receiver.url, **own)
        await wallet.done("POST", f"{moved}/test")
        receiver.reply = lambda _: (500, {}, b"")
        await wallet.done("POST", f"{refusing}/test")
    await wallet.done("PATCH", moved, {"url": ELSEWHERE})
    of_operator = await operator.added(ELSEWHERE)
    clock.now_ms += DAY_MS
    await sweep(context)
    wallet, own = await wallet_of(client, 1)  # the token of yesterday has ended
    late = await wallet.added(ELSEWHERE, **own)
    clock.now_ms += 1
    await sweep(context)
    assert (await wallet.call("GET", refusing)).status_code == 404
    assert await context.database.fetch("SELECT count(*) FROM webhook_attempts WHERE outcome <> 'delivered'") == [(0,)]
    for path in (moved, late):  # one receiver had agreed, and the other one has a day
        assert (await wallet.done("GET", path))["status"] == "pending"
    assert (await operator.done("GET", of_operator))["status"] == "pending"


@dataclass
class Held:
    """A receiver that answers no challenge before `gate` is open, and the tests that wait for it."""

    url: str
    arrived: threading.Semaphore
    gate: threading.Event
    tests: list[asyncio.Task[Any]] = field(default_factory=list[asyncio.Task[Any]])

    async def begin(self, maker: Maker, path: str) -> None:
        """Begin a test, and return when the challenge has arrived."""
        self.tests.append(asyncio.create_task(maker.done("POST", f"{path}/test")))
        assert await asyncio.to_thread(self.arrived.acquire, timeout=60)


@pytest.fixture
def held() -> Iterator[Held]:
    arrived, gate = threading.Semaphore(0), threading.Event()

    def late(received: Received) -> Reply:
        arrived.release()
        assert gate.wait(60)
        return echo(received)

    with Receiver().listening() as receiver:
        receiver.reply = late
        yield Held(receiver.url, arrived, gate)
        gate.set()


@pytest.mark.one_engine
async def test_strangers_leave_tests_to_others_and_to_operators(
    app: Application, client: httpx2.AsyncClient, operator: Maker, held: Held
) -> None:
    path_of_operator = await operator.added(held.url)
    wallets = [await wallet_of(client, number) for number in range(1, 16)]
    paths: list[str] = []
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(app, f"192.0.2.{n // 2}")) for n in range(15)]
        makers = [Maker(at, wallet.headers) for at, (wallet, _) in zip(clients, wallets, strict=True)]
        for maker, (_, own) in zip(makers, wallets, strict=True):
            paths.append(await maker.added(held.url, **own))
        for maker, path in zip(makers[:2], paths, strict=False):
            await held.begin(maker, path)
        third = Maker(clients[0], makers[14].headers)
        check_refusal(await third.call("POST", f"{paths[14]}/test"), 503, "overloaded")
        for maker, path in zip(makers[2:12], paths[2:12], strict=True):
            await held.begin(maker, path)
        check_refusal(await makers[12].call("POST", f"{paths[12]}/test"), 503, "overloaded")
        await held.begin(operator, path_of_operator)
        held.gate.set()
        assert [(await each)["status"] for each in held.tests] == ["active"] * 13
        assert (await makers[12].done("POST", f"{paths[12]}/test"))["status"] == "active"


async def test_one_maker_tests_two_webhooks_at_a_time(client: httpx2.AsyncClient, operator: Maker, held: Held) -> None:
    wallet, own = await wallet_of(client, 1)
    paths = [await wallet.added(held.url, **own) for _ in range(3)]
    path_of_operator = await operator.added(held.url)
    for path in paths[:2]:
        await held.begin(wallet, path)
    check_refusal(await wallet.call("POST", f"{paths[2]}/test"), 503, "overloaded")
    await held.begin(operator, path_of_operator)
    held.gate.set()
    assert [(await each)["status"] for each in held.tests] == ["active"] * 3
    assert (await wallet.done("POST", f"{paths[2]}/test"))["status"] == "active"
