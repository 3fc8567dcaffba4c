"""Webhooks that are refused: wrong bodies, wallets, foreign callers, settings. A refusal stores nothing."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal
from webhooks_world import Maker

from applications import client_of
from builders import Wallet, log_in
from conftest import Clock
from muniment.service.app import Application, build_context
from muniment.service.auth.secrets import ring_of
from muniment.service.context import Context
from muniment.service.running.settings import Settings
from operator_client import operator_key

ELSEWHERE = "https://hooks.example.org/muniment"
OWNER, STRANGER = Wallet(7), Wallet(8)
OWN = {"owner": [OWNER.address]}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, webhooks="users")


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> Maker:
    return Maker(client, {"x-operator-key": await operator_key(context)})


async def maker_of(client: httpx2.AsyncClient, wallet: Wallet) -> Maker:
    return Maker(client, {"x-auth-token": await log_in(client, wallet)})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "/url"),
    ({"url": "http://hooks.example.org/"}, "/url"),
    ({"url": "https://hooks.example.org:25/"}, "/url"),
    ({"url": "https://hooks.example.org:0/"}, "/url"),
    ({"url": "https://hooks.example.org:x/"}, "/url"),
    ({"url": "https://user:word@hooks.example.org/"}, "/url"),
    ({"url": "https://hooks.example.org/#part"}, "/url"),
    ({"url": "https://hooks.example.org/a b"}, "/url"),
    ({"url": "https://hooks.example.org/\r\nx: y"}, "/url"),
    ({"url": "https://hooks.example.org/" + "a" * 2_000}, "/url"),
    ({"url": "https:///path"}, "/url"),
    ({"url": "ftp://hooks.example.org/"}, "/url"),
    ({"url": "https://127.0.0.1/"}, "/url"),
    ({"url": "https://[::1]/"}, "/url"),
    ({"url": "https://169.254.169.254/latest"}, "/url"),
    ({"url": "https://[::ffff:10.0.0.1]/"}, "/url"),
    ({"url": ELSEWHERE, "types": []}, "/types"),
    ({"url": ELSEWHERE, "types": ["trigger.renamed"]}, "/types/0"),
    ({"url": ELSEWHERE, "types": ["trigger.created"] * 21}, "/types"),
    ({"url": ELSEWHERE, "filters": {"owner": ["0x1"]}}, "/filters/owner/0"),
    ({"url": ELSEWHERE, "filters": {"owners": [OWNER.address]}}, "/filters"),
    ({"url": ELSEWHERE, "batch": 1}, "/batch"),
    ({"url": ELSEWHERE, "secret": "mine"}, ""),
]


@pytest.mark.one_engine
async def test_a_wrong_body_stores_nothing(
    operator: Maker, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for body, pointer in WRONG:
            with subtests.test(str(body)[:80]):
                response = await operator.call("POST", "/webhooks", body)
                assert response.status_code == 400, response.text
                assert pointer in [fault["pointer"] for fault in response.json()["errors"]], response.text


async def test_an_update_is_checked_like_a_new_webhook(operator: Maker, nothing_stored: Callable[[], Any]) -> None:
    path = await operator.added(ELSEWHERE)
    async with nothing_stored():
        for body in ({"url": "https://127.0.0.1/"}, {"url": "http://a.example/"}, {"types": []}, {"status": "active"}):
            check_refusal(await operator.call("PATCH", path, body), 400, "invalid-body")


async def test_a_wallet_has_webhooks_for_its_own_events_alone(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    wallet = await maker_of(client, OWNER)
    paths = [await wallet.added(ELSEWHERE, filters={name: [OWNER.address]}) for name in ("owner", "signer", "user")]
    foreign: list[Any] = [
        None, {}, {"owner": [STRANGER.address]}, {"owner": [OWNER.address, STRANGER.address]},
        {"settler": [OWNER.address]},
    ]  # fmt: skip
    async with nothing_stored():
        for filters in foreign:
            refused = await wallet.call("POST", "/webhooks", {"url": ELSEWHERE, "filters": filters})
            check_refusal(refused, 400, "invalid-body", pointer="/filters/owner")
            refused = await wallet.call("PATCH", paths[0], {"filters": filters})
            check_refusal(refused, 400, "invalid-body", pointer="/filters/owner")


async def test_a_wallet_has_at_most_5_webhooks_and_each_wallet_has_its_own(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    wallet, stranger = await maker_of(client, OWNER), await maker_of(client, STRANGER)
    paths = [await wallet.added(ELSEWHERE, filters=OWN) for _ in range(5)]
    async with nothing_stored():
        refused = await wallet.call("POST", "/webhooks", {"url": ELSEWHERE, "filters": OWN})
        check_refusal(refused, 409, "too-many-webhooks")
        for path in (paths[0], f"{paths[0]}/attempts"):
            check_refusal(await stranger.call("GET", path), 404, "webhook-not-found")
    await stranger.added(ELSEWHERE, filters={"owner": [STRANGER.address]})
    assert len(await wallet.done("GET", "/webhooks")) == 5
    assert len(await stranger.done("GET", "/webhooks")) == 1


async def test_an_operator_key_decides_where_a_token_comes_with_it(client: httpx2.AsyncClient, operator: Maker) -> None:
    both = Maker(client, {**operator.headers, "x-auth-token": await log_in(client, OWNER)})
    await both.added(ELSEWHERE)
    assert len(await operator.done("GET", "/webhooks")) == 1


async def test_a_receiver_may_not_resolve_to_a_private_address(operator: Maker) -> None:
    path = await operator.added("https://localhost:8443/")
    assert (await operator.done("POST", f"{path}/test"))["outcome"] == "forbidden-address"


async def test_a_wallet_can_send_at_most_ten_challenges_in_20_seconds(settings: Settings, clock: Clock) -> None:
    context = build_context(replace(settings, rate_limit_client="20000/20s"), now_ms=clock)
    await context.database.migrate()
    async with client_of(Application(context)) as client:
        wallet = await maker_of(client, OWNER)
        path = await wallet.added("https://hooks..example/", filters=OWN)  # no request leaves: the name has a gap
        responses = [await wallet.call("POST", f"{path}/test") for _ in range(12)]
        attempts = (await context.database.fetch("SELECT count(*) FROM webhook_attempts"))[0][0]
    await context.database.close()
    done = [response for response in responses if response.status_code == 200]
    assert 9 <= len(done) == attempts <= 10
    check_refusal(responses[-1], 429, "rate-limited")


@pytest.mark.parametrize("webhooks", ["operators", "off"])
async def test_the_setting_says_who_may_have_webhooks(
    settings: Settings, clock: Clock, webhooks: str, nothing_stored: Callable[[], Any]
) -> None:
    narrowed = build_context(replace(settings, webhooks=webhooks), now_ms=clock)
    async with client_of(Application(narrowed)) as client:
        wallet = await maker_of(client, OWNER)
        operator = Maker(client, {"x-operator-key": await operator_key(narrowed)})
        async with nothing_stored():
            refused = await wallet.call("POST", "/webhooks", {"url": ELSEWHERE, "filters": OWN})
            check_refusal(refused, *((404, "unknown-path") if webhooks == "off" else (403, "webhooks-for-operators")))
            if webhooks == "off":
                check_refusal(await operator.call("GET", "/webhooks"), 404, "unknown-path")
        if webhooks == "operators":
            await operator.added(ELSEWHERE)
    await narrowed.database.close()


async def test_a_webhook_whose_secret_was_retired_is_suspended_until_it_is_rotated(
    settings: Settings, clock: Clock
) -> None:
    old, new = secrets.token_bytes(32), secrets.token_bytes(32)
    ring = [old]
    context = replace(build_context(settings, now_ms=clock), secrets=lambda: tuple(ring))
    await context.database.migrate()
    async with client_of(Application(context)) as client:
        operator = Maker(client, {"x-operator-key": await operator_key(context)})
        path = await operator.added(ELSEWHERE)
        ring[:] = [new, old]
        assert (await operator.done("GET", path))["status"] == "pending"
        ring[:] = [new]
        suspended = await operator.done("GET", path)
        assert suspended["status"] == "suspended"
        assert "rotate" in suspended["reason"]
        for action in ("test", "resume"):
            check_refusal(await operator.call("POST", f"{path}/{action}"), 409, "webhook-not-confirmed")
        rotated = await operator.done("POST", f"{path}/rotate")
        assert rotated["webhook"]["status"] == "pending"
        ((secret_id,),) = await context.database.fetch("SELECT secret_id FROM webhooks")
        assert secret_id == ring_of((new,)).newest.id
    await context.database.close()
