"""Services that share one PostgreSQL database never give one nonce to two devices of a wallet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import httpx2
import pytest
from structlog.testing import capture_logs

from applications import another_process, client_of
from builders import Wallet
from muniment.protocol.errors import LoginFailed
from muniment.service.app import Application
from muniment.service.auth.nonces import SLOTS
from muniment.service.context import Context
from muniment.service.running.limits.costs import DEBTS
from muniment.service.storage.service_number import SERVICES

OWNER = Wallet(61)
FIVE = range(5)
SECRET = "ab" * 32

pytestmark = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)


@dataclass
class Site:
    """One service."""

    context: Context
    client: httpx2.AsyncClient

    async def ask(self) -> str:
        response = await self.client.post("/users/nonce", json={"address": OWNER.address})
        assert response.status_code == 200, response.text
        return response.json()["nonce"]

    async def log_in(self, nonce: str) -> int:
        login = {"address": OWNER.address, "signature": OWNER.sign_text(nonce)}
        return (await self.client.post("/users/authenticate", json=login)).status_code


class Sites(AsyncExitStack):
    """Services of one database."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    async def start(self, **settings: str) -> Site:
        """One more; `settings` of its own go before those of the others."""
        as_set = replace(self.context.settings, **{"secret": SECRET, "rate_limit_client": "100000/1s", **settings})
        context = await self.enter_async_context(another_process(replace(self.context, settings=as_set)))
        assert await context.number.look()
        return Site(context, await self.enter_async_context(client_of(Application(context))))


@pytest.fixture
async def sites(context: Context) -> AsyncIterator[Sites]:
    async with Sites(context) as sites:
        yield sites


async def test_five_devices_that_ask_two_services_in_turn_all_log_in(sites: Sites) -> None:
    first, second = await sites.start(), await sites.start()
    nonces = [(site, await site.ask()) for _ in FIVE for site in (first, second)]
    assert len({nonce for _, nonce in nonces}) == len(nonces)
    other = {id(first): second, id(second): first}
    statuses = [await (site if n % 3 else other[id(site)]).log_in(nonce) for n, (site, nonce) in enumerate(nonces)]
    assert statuses == [200] * len(nonces)


async def test_a_nonce_of_a_service_that_has_just_started_is_good_at_the_others(sites: Sites) -> None:
    first = await sites.start()
    second = await sites.start()  # of which the first one has not read
    assert await first.log_in(await second.ask()) == 200


async def test_eight_services_have_numbers_and_a_ninth_shares_the_last(sites: Sites) -> None:
    all_of_them = [await sites.start() for _ in range(SERVICES)]
    assert sorted(each.context.number.own for each in all_of_them) == list(range(SERVICES))
    with capture_logs() as lines:
        ninth = await sites.start()
    assert ninth.context.number.own == SERVICES - 1
    assert ["8 other services" in each["event"] for each in lines] == [True]
    assert await all_of_them[0].log_in(await ninth.ask()) == 200
    await all_of_them[3].context.number.end()
    assert await ninth.context.number.look()
    assert ninth.context.number.own == 3


async def test_a_number_is_kept_while_its_lease_lasts_and_taken_after_it_by_another(sites: Sites) -> None:
    first, second = await sites.start(), await sites.start()
    own = first.context.number.own
    assert await first.context.number.look()
    assert first.context.number.own == own
    await sites.context.database.write(lambda tx: tx.execute("UPDATE leases SET until_ms = until_ms - 61000"))
    later = [await sites.start() for _ in range(SERVICES)]
    assert own in {each.context.number.own for each in later}
    nonce = await second.ask()
    assert await second.context.number.look()
    assert await later[0].log_in(nonce) == 200, "its number was leased in the last fifteen minutes"


async def test_a_service_that_starts_again_takes_a_number_that_was_free_for_longer(sites: Sites) -> None:
    first = await sites.start()
    await first.context.number.end()
    assert (await sites.start()).context.number.own != first.context.number.own


async def test_a_nonce_of_a_service_that_ended_long_ago_is_not_tried(sites: Sites) -> None:
    first, second = await sites.start(), await sites.start()
    await sites.context.database.write(
        lambda tx: tx.execute("UPDATE leases SET until_ms = until_ms - 961000 WHERE name LIKE '%0'")
    )
    assert await second.context.number.look()
    assert first.context.number.own not in second.context.number.recent


async def test_a_failed_login_is_charged_for_the_nonces_of_every_service(sites: Sites) -> None:
    site = await sites.start()
    units: list[int] = []
    limiter = site.context.limiter
    for _ in range(2):
        before = limiter.units_charged("client")
        assert await site.log_in("0x" + "ab" * 32) == 401
        units.append(limiter.units_charged("client") - before)
        await sites.start()
    assert units[1] - units[0] == DEBTS[LoginFailed]


async def test_services_with_different_secrets_say_so(sites: Sites) -> None:
    await sites.start()
    with capture_logs() as lines:
        await sites.start(secret="cd" * 32)
    assert ["MUNIMENT_SECRET" in each["event"] for each in lines] == [True]


async def test_each_service_gives_its_own_eight_logins(sites: Sites) -> None:
    for site in (await sites.start(), await sites.start()):
        assert [await site.log_in(await site.ask()) for _ in range(SLOTS)] == [200] * SLOTS
        refused = await site.client.post("/users/nonce", json={"address": OWNER.address})
        assert refused.status_code == 429
