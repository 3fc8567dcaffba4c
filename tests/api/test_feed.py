"""The change feed, page by page."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal, next_of

from applications import client_of
from builders import Bundle, TriggerDraft, Wallet, deploy, register
from conftest import Clock
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.resources.feed.events import Position
from muniment.service.resources.feed.hub import Hub
from muniment.service.resources.feed.reading import remove_old
from muniment.service.resources.feed.waiting import Waiter
from muniment.service.storage import epoch
from operator_client import IntentDraft, OperatorClient, log, operator_key


async def deactivate(client: httpx2.AsyncClient, sig: str) -> None:
    body = {"triggerSigs": [sig], "signature": Wallet().sign_deactivation([sig])}
    assert (await client.post("/triggers/deactivate", json=body)).status_code == 204


async def link_to_now(client: httpx2.AsyncClient, **query: Any) -> str:
    answer = await client.get("/events", params=query)
    assert answer.json() == []
    assert answer.headers["x-caught-up"] == "true"
    link = next_of(answer)
    assert link
    return link


async def all_after(client: httpx2.AsyncClient, link: str) -> list[dict[str, Any]]:
    """Every event after a link."""
    found: list[dict[str, Any]] = []
    while True:
        answer = await client.get(link)
        assert answer.status_code == 200, answer.text
        found += answer.json()
        link = next_of(answer) or ""
        if answer.headers["x-caught-up"] == "true":
            return found


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [each["type"].removeprefix("muniment.") for each in events]


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(client, await operator_key(context))


async def test_a_follower_sees_each_change_once_and_in_order(
    client: httpx2.AsyncClient, operator: OperatorClient
) -> None:
    link = await link_to_now(client, limit=2)
    cid = await deploy(client, Bundle("F"), Wallet(5))
    await deploy(client, Bundle("F"), Wallet(6))
    trigger = await register(client, TriggerDraft(cid))
    intent = await operator.read(await operator.recorded(IntentDraft(1)))
    await operator.append(intent["hash"], "logs", log())
    await operator.move(intent["hash"], "enqueued")
    await deactivate(client, trigger["sig"])
    events = await all_after(client, link)
    assert kinds(events) == [
        "function.created", "function.created", "trigger.created", "intent.created", "intent.logged", "intent.changed",
        "trigger.deactivated",
    ]  # fmt: skip
    assert len({each["id"] for each in events}) == len(events)
    assert {each["source"] for each in events} == {events[0]["source"]}
    created, ended = events[2], events[-1]
    assert created["subject"] == ended["subject"] == trigger["sig"]
    assert created["data"] == {"signer": trigger["signer"], "functionCid": cid, "endDate": 0}
    record = (await client.get(f"/triggers/{trigger['sig']}")).json()
    assert ended["data"]["deactivateSig"] == record["deactivateSig"]
    assert [each["data"]["version"] for each in events[3:6]] == [1, 2, 3]
    changed = events[5]["data"]
    assert (changed["status"], changed["logs"], changed["proposals"]) == ("enqueued", 1, 0)
    assert {name: changed[name] for name in ("user", "settler", "configSig", "deadline")} == {
        name: intent[name] for name in ("user", "settler", "configSig", "deadline")
    }


async def test_a_write_without_a_change_adds_no_event(client: httpx2.AsyncClient, operator: OperatorClient) -> None:
    cid = await deploy(client)
    trigger = await register(client, TriggerDraft(cid))
    intent = await operator.recorded(IntentDraft(1))
    await deactivate(client, trigger["sig"])
    link = await link_to_now(client)
    await deploy(client)
    await deactivate(client, trigger["sig"])
    await operator.recorded(IntentDraft(1))
    await operator.move(intent, "created")
    assert await all_after(client, link) == []


async def test_each_filter_selects_its_events(client: httpx2.AsyncClient, operator: OperatorClient) -> None:
    link = await link_to_now(client)
    cids = [await deploy(client, Bundle(name), Wallet(5)) for name in "FG"]
    triggers = [
        await register(client, TriggerDraft(cid, wallet=Wallet(number)))
        for cid, number in zip(cids, (1, 2), strict=True)
    ]  # fmt: skip
    intents = [await operator.read(await operator.recorded(IntentDraft(number))) for number in (1, 2)]
    everything = await all_after(client, link)
    assert len(everything) == 6

    async def shown(**query: object) -> list[str]:
        more = "&".join(f"{name}={value}" for name, value in query.items())
        return [each["subject"] for each in await all_after(client, f"{link}&{more}")]

    assert await shown(types="function.created") == cids
    assert await shown(types="muniment.trigger.created,intent.created") == [
        *[each["sig"] for each in triggers], *[each["hash"] for each in intents],
    ]  # fmt: skip
    assert await shown(signer=triggers[0]["signer"]) == [triggers[0]["sig"]]
    assert await shown(functionCid=cids[1]) == [cids[1], triggers[1]["sig"]]
    assert await shown(owner=Wallet(5).address) == cids
    assert await shown(user=intents[0]["user"]) == [
        each["hash"] for each in intents if each["user"] == intents[0]["user"]
    ]
    assert await shown(settler=intents[0]["settler"], types="trigger.created") == []
    assert await shown(configSig=intents[1]["configSig"]) == [each["hash"] for each in intents]
    assert await shown(signer=triggers[0]["signer"], functionCid=cids[1]) == []
    assert await shown(signer=f"{triggers[0]['signer']},{triggers[1]['signer']}") == [each["sig"] for each in triggers]


async def test_a_poll_waits_until_there_is_an_event_that_it_wants(client: httpx2.AsyncClient) -> None:
    link = await link_to_now(client, types="trigger.created", wait=30)
    began = asyncio.get_running_loop().time()
    waiting = asyncio.create_task(client.get(link))
    cid = await deploy(client)
    await asyncio.sleep(0.3)
    assert not waiting.done()
    trigger = await register(client, TriggerDraft(cid))
    answer = await waiting
    assert [each["subject"] for each in answer.json()] == [trigger["sig"]]
    assert asyncio.get_running_loop().time() - began < 30  # it did not wait to its end


async def test_a_poll_waits_although_an_event_of_another_type_is_the_first_of_all(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, began = await link_to_now(client, types="trigger.created", wait=30), asyncio.Event()
    waking, waits, cids = Hub.awake, Waiter.wait, list[str]()

    async def awake(hub: Hub) -> None:
        cids.append(await deploy(client))  # after the poll has looked, and before the hub looks
        await waking(hub)

    async def wait(follower: Waiter) -> None:
        began.set()
        await waits(follower)

    monkeypatch.setattr(Hub, "awake", awake)
    monkeypatch.setattr(Waiter, "wait", wait)
    waiting = asyncio.create_task(client.get(link))
    beginning = asyncio.create_task(began.wait())
    await asyncio.wait((waiting, beginning), return_when=asyncio.FIRST_COMPLETED)
    assert not waiting.done()
    trigger = await register(client, TriggerDraft(cids[0]))
    assert [each["subject"] for each in (await waiting).json()] == [trigger["sig"]]


async def test_a_poll_without_an_event_returns_its_new_position(client: httpx2.AsyncClient) -> None:
    link = await link_to_now(client, types="trigger.created", wait=1)
    cid = await deploy(client)
    answer = await client.get(link)
    assert (answer.json(), answer.headers["x-caught-up"]) == ([], "true")
    following = next_of(answer)
    assert following
    assert following != link
    assert "wait=1" in following
    await register(client, TriggerDraft(cid))
    assert len((await client.get(following)).json()) == 1


@pytest.mark.one_engine
@pytest.mark.parametrize(
    "query",
    [
        "cursor=x", "cursor=cy0xMDA", "cursor=" + "Z" * 41, "types=trigger.ended", "owner=0x12", "limit=0", "limit=501",
        "types=", "wait=31", "wait=-1", "signer=" + ",".join(["0x" + "11" * 20] * 21),
    ],
)  # fmt: skip
async def test_a_malformed_parameter_is_refused(client: httpx2.AsyncClient, query: str) -> None:
    answer = await client.get(f"/events?{query}")
    assert answer.status_code == 400
    assert answer.json()["errors"]


async def test_a_position_of_another_epoch_is_too_old_and_the_refusal_has_the_next_step(
    client: httpx2.AsyncClient, context: Context
) -> None:
    await deploy(client)
    link = await link_to_now(client)
    number = await context.epochs.number(context.database)
    await context.database.write(lambda tx: epoch.renew(tx, number ^ 1))
    context.epochs._until = float("-inf")
    answer = await client.get(link)
    check_refusal(answer, 410, "cursor-too-old")
    assert "GET /events without a cursor" in answer.json()["detail"]
    assert await all_after(client, await link_to_now(client)) == []


async def test_a_new_follower_gets_a_position_of_an_epoch_that_another_process_just_began(
    client: httpx2.AsyncClient, context: Context
) -> None:
    await deploy(client)
    number = await context.epochs.number(context.database)
    await context.database.write(lambda tx: epoch.renew(tx, number ^ 1))
    link = await link_to_now(client)
    assert Position.parse(link.rpartition("cursor=")[2]).epoch == number ^ 1
    assert await all_after(client, link) == []


async def test_a_position_of_an_epoch_that_another_process_has_just_begun_is_accepted(
    client: httpx2.AsyncClient, context: Context
) -> None:
    number = await context.epochs.number(context.database)
    context.epochs._until = float("inf")  # this process still keeps the one that it has read
    await context.database.write(lambda tx: epoch.renew(tx, number ^ 1))
    answer = await client.get(f"/events?cursor={Position.at(number ^ 1, 0)}")
    assert (answer.status_code, answer.json()) == (200, [])


async def test_a_position_beyond_the_highest_number_is_too_old(client: httpx2.AsyncClient, context: Context) -> None:
    await deploy(client)
    number = await context.epochs.number(context.database)
    answer = await client.get(f"/events?cursor={Position.at(number, 2**62)}")
    check_refusal(answer, 410, "cursor-too-old")


@pytest.mark.spoils_events("events are removed")
async def test_old_events_are_removed_and_a_cursor_before_them_is_too_old(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    pruned = await link_to_now(client)
    cid = await deploy(client)
    await register(client, TriggerDraft(cid))
    midway = await link_to_now(client)
    clock.advance(hours=30 * 24 + 1)
    await register(client, TriggerDraft(cid, version="1.0.1"))
    current = await link_to_now(client)

    async def sweep() -> int:
        return await context.database.write(lambda tx: remove_old(tx, clock(), 30))

    assert await sweep() == 2
    assert await sweep() == 0
    check_refusal(await client.get(pruned), 410, "cursor-too-old")
    assert kinds(await all_after(client, midway)) == ["trigger.created"]
    clock.advance(hours=30 * 24 + 1)
    assert await sweep() == 0  # the newest stays, and with it the highest number
    assert await all_after(client, current) == []


@pytest.mark.spoils_events("events of no record")
async def test_a_filter_that_matches_little_moves_on_and_ends(client: httpx2.AsyncClient, context: Context) -> None:
    link = await link_to_now(client)
    rows = [(1, 5, bytes([1]) * 32, bytes(20), b"\x01", None, "{}")] * 500

    async def fill(tx: Any) -> None:
        values = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * len(rows))
        await tx.execute(
            f"INSERT INTO events (at_ms, kind, subject, owners, origin, settler, facts) VALUES {values}",
            [value for row in rows for value in row],
        )

    for _ in range(11):
        await context.database.write(fill)
    cid = await deploy(client)
    first = await client.get(f"{link}&types=function.created")
    assert (first.json(), first.headers["x-caught-up"]) == ([], "false")
    assert [each["subject"] for each in await all_after(client, f"{link}&types=function.created")] == [cid]


@pytest.mark.parametrize("path", ["/events", "/events/stream"])
async def test_without_the_feed_events_are_stored_and_not_shown(
    client: httpx2.AsyncClient, context: Context, path: str
) -> None:
    await deploy(client)
    settings = replace(context.settings, feed="off")
    async with client_of(Application(replace(context, settings=settings))) as other:
        check_refusal(await other.get(path), 404, "unknown-path")
    assert len(await context.database.fetch("SELECT seq FROM events")) == 1
