"""Webhooks that are refused: wrong bodies, wallets, limits, settings. A refusal stores nothing."""

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
from muniment.service.resources.webhooks import store
from muniment.service.running.settings import Settings
from operator_client import operator_key

ELSEWHERE = "https://hooks.example.org/muniment"
OWNER = Wallet(7)


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> Maker:
    return Maker(client, {"x-operator-key": await operator_key(context)})


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


async def test_a_token_is_no_credential_for_webhooks(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    wallet = Maker(client, {"x-auth-token": await log_in(client, OWNER)})
    own = {"url": ELSEWHERE, "filters": {"owner": [OWNER.address]}}
    async with nothing_stored():
        check_refusal(await wallet.call("POST", "/webhooks", own), 401, "missing-credential")
        check_refusal(await wallet.call("GET", "/webhooks"), 401, "missing-credential")


async def test_a_registry_has_no_more_webhooks_than_it_can_deliver_to(
    operator: Maker, monkeypatch: pytest.MonkeyPatch, nothing_stored: Callable[[], Any]
) -> None:
    assert store.HOOKS_MAX == 1_000
    monkeypatch.setattr(store, "HOOKS_MAX", 2)
    paths = [await operator.added(ELSEWHERE) for _ in range(2)]
    async with nothing_stored():
        check_refusal(await operator.call("POST", "/webhooks", {"url": ELSEWHERE}), 409, "too-many-webhooks")
    assert (await operator.call("DELETE", paths[0])).status_code == 204
    await operator.added(ELSEWHERE)


async def test_a_receiver_may_not_resolve_to_a_private_address(operator: Maker) -> None:
    path = await operator.added("https://localhost:8443/")
    assert (await operator.done("POST", f"{path}/test"))["outcome"] == "forbidden-address"


@pytest.mark.parametrize("setting", ["webhooks", "feed"])
async def test_without_webhooks_or_the_feed_their_paths_are_unknown(
    settings: Settings, clock: Clock, setting: str, nothing_stored: Callable[[], Any]
) -> None:
    off = build_context(replace(settings, **{setting: "off"}), now_ms=clock)
    async with client_of(Application(off)) as client:
        operator = Maker(client, {"x-operator-key": await operator_key(off)})
        async with nothing_stored():
            check_refusal(await operator.call("POST", "/webhooks", {"url": ELSEWHERE}), 404, "unknown-path")
            check_refusal(await operator.call("GET", "/webhooks"), 404, "unknown-path")
            check_refusal(await Maker(client, {}).call("GET", "/webhooks"), 404, "unknown-path")
    await off.database.close()


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
