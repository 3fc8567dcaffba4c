"""Webhooks of operators: adding, testing, changing and removing them."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from standardwebhooks import WebhookVerificationError
from trigger_world import check_refusal
from webhooks_world import Maker

from builders import Wallet, deploy
from conftest import Clock
from muniment.service.context import Context
from muniment.service.resources.feed.events import Position
from muniment.service.resources.webhooks import store
from muniment.service.running.settings import Settings
from operator_client import operator_key
from receiving import Received, Receiver, Reply, echo

ELSEWHERE = "https://hooks.example.org/muniment"
UNKNOWN = "mnh_" + "0f" * 16
DAY_MS = 86_400_000


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, allow_private_networks=True)


@pytest.fixture
def clock() -> Clock:
    """The present: receivers refuse what was signed at another time."""
    return Clock(time.time_ns() // 1_000_000)


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> Maker:
    return Maker(client, {"x-operator-key": await operator_key(context)})


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().listening() as listening:
        yield listening


async def test_a_new_webhook_waits_for_its_receiver_and_begins_now(
    client: httpx2.AsyncClient, operator: Maker, context: Context
) -> None:
    await deploy(client)
    ((newest,),) = await context.database.fetch("SELECT max(seq) FROM events")
    added = await operator.add(ELSEWHERE, types=["trigger.created"], filters={"owner": [Wallet(3).address]}, batch=True)
    webhook = added["webhook"]
    assert added["secret"].startswith("whsec_")
    assert len(b64decode(added["secret"][6:])) == 32
    assert webhook["status"] == "pending"
    assert webhook["types"] == ["muniment.trigger.created"]
    assert webhook["filters"] == {"owner": [Wallet(3).address]}
    assert webhook["batch"] is True
    assert Position.parse(webhook["cursor"]).seq == newest
    assert await operator.done("GET", f"/webhooks/{webhook['id']}") == webhook
    assert await operator.done("GET", "/webhooks") == [webhook]


async def test_the_secret_is_neither_shown_again_nor_stored(operator: Maker, context: Context) -> None:
    added = await operator.add(ELSEWHERE)
    path = f"/webhooks/{added['webhook']['id']}"
    for answer in ((await operator.call("GET", path)).text, (await operator.call("GET", "/webhooks")).text):
        assert "whsec_" not in answer
    raw_key = b64decode(added["secret"][6:])
    for row in await context.database.fetch("SELECT * FROM webhooks"):
        assert raw_key not in row
        assert not any(added["secret"] in value for value in row if isinstance(value, str))


async def test_a_receiver_that_answers_the_challenge_activates_its_webhook(operator: Maker, receiver: Receiver) -> None:
    added = await operator.add(receiver.url)
    path = f"/webhooks/{added['webhook']['id']}"
    result = await operator.done("POST", f"{path}/test")
    assert (result["status"], result["outcome"]) == ("active", "delivered")
    (received,) = receiver.received
    received.verify(added["secret"])
    assert received.fields["content-type"] == "application/cloudevents+json"
    assert received.event["type"] == "muniment.webhook.challenge"
    assert received.event["id"] == received.fields["webhook-id"]
    assert received.event["subject"] == added["webhook"]["id"]
    webhook = await operator.done("GET", path)
    assert webhook["status"] == "active"
    assert "reason" not in webhook
    (attempt,) = await operator.done("GET", f"{path}/attempts")
    assert (attempt["outcome"], attempt["status"]) == ("delivered", 200)
    assert "event" not in attempt


def _other_text(_: Received) -> Reply:
    return 200, {}, b"ok"


def _failing(received: Received) -> Reply:
    return 500, {}, echo(received)[2]


def _elsewhere(received: Received) -> Reply:
    return 302, {"location": "https://example.org/"}, echo(received)[2]


@pytest.mark.parametrize(
    ("reply", "outcome"), [(_other_text, "no-challenge"), (_failing, "http-500"), (_elsewhere, "http-302")]
)
async def test_a_receiver_that_does_not_return_the_challenge_activates_nothing(
    operator: Maker, receiver: Receiver, reply: Callable[[Received], Reply], outcome: str
) -> None:
    receiver.reply = reply
    path = await operator.added(receiver.url)
    result = await operator.done("POST", f"{path}/test")
    assert (result["status"], result["outcome"]) == ("pending", outcome)
    assert (await operator.done("GET", path))["status"] == "pending"
    assert len(receiver.received) == 1


async def test_the_outcome_of_a_receiver_that_is_not_there_is_one_word(operator: Maker) -> None:
    path = await operator.added("http://127.0.0.1:1/")
    assert (await operator.done("POST", f"{path}/test"))["outcome"] == "unreachable"
    (attempt,) = await operator.done("GET", f"{path}/attempts")
    assert "status" not in attempt


async def test_another_url_waits_for_another_challenge(operator: Maker, receiver: Receiver) -> None:
    path = await operator.added(receiver.url)
    await operator.done("POST", f"{path}/test")
    assert (await operator.done("PATCH", path, {"batch": True}))["status"] == "active"
    moved = await operator.done("PATCH", path, {"url": f"{receiver.url}&moved"})
    assert (moved["status"], moved["url"], moved["batch"]) == ("pending", f"{receiver.url}&moved", True)
    check_refusal(await operator.call("POST", f"{path}/resume"), 409, "webhook-not-confirmed")


async def test_null_takes_filters_away_and_what_is_left_out_stays(operator: Maker) -> None:
    path = await operator.added(ELSEWHERE, types=["function.created"], filters={"owner": [Wallet(3).address]})
    assert "filters" in await operator.done("PATCH", path, {})
    changed = await operator.done("PATCH", path, {"filters": None})
    assert "filters" not in changed
    assert changed["types"] == ["muniment.function.created"]


async def test_of_a_removed_webhook_nothing_is_left(
    operator: Maker, receiver: Receiver, nothing_stored: Callable[[], Any]
) -> None:
    async with nothing_stored():
        path = await operator.added(receiver.url)
        await operator.done("POST", f"{path}/test")
        assert (await operator.call("DELETE", path)).status_code == 204
    check_refusal(await operator.call("DELETE", path), 404, "webhook-not-found")


async def test_both_secrets_sign_for_a_day_after_a_rotation(
    operator: Maker, receiver: Receiver, clock: Clock, context: Context
) -> None:
    added = await operator.add(receiver.url)
    path = f"/webhooks/{added['webhook']['id']}"
    await operator.done("POST", f"{path}/test")
    rotated = await operator.done("POST", f"{path}/rotate")
    assert rotated["secret"] != added["secret"]
    assert rotated["webhook"]["status"] == "active"
    await operator.done("POST", f"{path}/test")
    for secret in (added["secret"], rotated["secret"]):
        receiver.received[-1].verify(secret)
    assert len(receiver.received[-1].fields["webhook-signature"].split(" ")) == 2

    hook = await store.find(context.database, bytes.fromhex(path[-32:]))
    assert hook is not None
    assert hook.old_until_ms == clock.now_ms + DAY_MS
    await context.database.write(lambda tx: store.update(tx, replace(hook, old_until_ms=clock.now_ms)))
    await operator.done("POST", f"{path}/test")
    receiver.received[-1].verify(rotated["secret"])
    with pytest.raises(WebhookVerificationError):
        receiver.received[-1].verify(added["secret"])


async def test_a_replay_moves_the_cursor(client: httpx2.AsyncClient, operator: Maker) -> None:
    path = await operator.added(ELSEWHERE)
    start = (await operator.done("GET", path))["cursor"]
    await deploy(client)
    later = await operator.done("GET", await operator.added(ELSEWHERE))
    assert Position.parse(later["cursor"]).seq > Position.parse(start).seq
    replayed = await operator.done("POST", f"/webhooks/{later['id']}/replay", {"cursor": start})
    assert replayed["cursor"] == start


async def test_a_place_that_the_feed_does_not_have_is_no_place_to_replay_from(
    operator: Maker, nothing_stored: Callable[[], Any]
) -> None:
    path = await operator.added(ELSEWHERE)
    async with nothing_stored():
        for place in (Position.at(1, 0), Position.at(0, 10**15)):
            response = await operator.call("POST", f"{path}/replay", {"cursor": place})
            check_refusal(response, 410, "cursor-too-old")
        check_refusal(await operator.call("POST", f"{path}/replay", {"cursor": "x"}), 400, "invalid-parameter")


async def test_an_operator_neither_sees_nor_changes_the_webhooks_of_another(
    client: httpx2.AsyncClient, context: Context, operator: Maker, nothing_stored: Callable[[], Any]
) -> None:
    path = await operator.added(ELSEWHERE)
    other = Maker(client, {"x-operator-key": await operator_key(context, "other")})
    async with nothing_stored():
        assert await other.done("GET", "/webhooks") == []
        for each in (path, f"/webhooks/{UNKNOWN}"):
            for method, at, body in (
                ("GET", "", None), ("PATCH", "", {"batch": True}), ("DELETE", "", None), ("POST", "/resume", None),
                ("POST", "/rotate", None), ("POST", "/test", None), ("GET", "/attempts", None),
                ("POST", "/replay", {"cursor": Position.at(0, 0)}),
            ):  # fmt: skip
                check_refusal(await other.call(method, f"{each}{at}", body), 404, "webhook-not-found")


async def test_an_operator_has_at_most_20_webhooks(operator: Maker, nothing_stored: Callable[[], Any]) -> None:
    paths = [await operator.added(ELSEWHERE) for _ in range(20)]
    async with nothing_stored():
        check_refusal(await operator.call("POST", "/webhooks", {"url": ELSEWHERE}), 409, "too-many-webhooks")
    assert (await operator.call("DELETE", paths[7])).status_code == 204
    await operator.added(ELSEWHERE)
