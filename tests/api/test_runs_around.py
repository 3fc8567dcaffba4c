"""What runs have to do with intents, with dropped blocks, with the feed, and with age."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from answers import ok, target_of
from conftest import Clock
from muniment.service.app.application import SWEEPS
from muniment.service.context import Context
from muniment.service.resources.runs.pruning import DAY_MS, remove_old
from operator_client import IntentDraft, OperationsDraft, OperatorClient
from runs_world import (
    BLOCK,
    SIX_HOURS_MS,
    TICK,
    Relayer,
    event_body,
    hash_of,
    listed,
    read,
    registered,
    registered_event,
    relayer,
    run_body,
    skipped,
    with_intents,
)

MINUTE = 60_000


@pytest.fixture
async def trigger(client: httpx2.AsyncClient, clock: Clock) -> dict[str, Any]:
    made = await registered(client)
    clock.now_ms = TICK
    return made


@pytest.fixture
async def own(context: Context, client: httpx2.AsyncClient) -> Relayer:
    return await relayer(context, client, number=7)


@pytest.fixture
async def other(context: Context, client: httpx2.AsyncClient) -> Relayer:
    return await relayer(context, client, "other", 8)


async def intents_of(client: httpx2.AsyncClient, run_hash: str, **query: Any) -> list[str]:
    return [
        each["hash"] for each in ok(await client.get("/intents", params={"executionHash": run_hash, **query})).json()
    ]


def made_by(trigger: dict[str, Any], number: int) -> IntentDraft:
    """An intent of generation 1, of this trigger."""
    return IntentDraft(number).saying(configSig=trigger["sig"])


def operations_by(trigger: dict[str, Any], number: int) -> OperationsDraft:
    """The same in generation 2."""
    return OperationsDraft(number).saying(triggerSig=trigger["sig"])


async def test_an_intent_belongs_to_a_run_by_its_outputs(
    client: httpx2.AsyncClient, trigger: dict[str, Any], own: Relayer
) -> None:
    first, second, third = made_by(trigger, 1), operations_by(trigger, 2), made_by(trigger, 3)
    body = run_body(trigger, **with_intents(second.hash, first.hash))
    await own.record(body)
    operator = OperatorClient(client, own.key)
    assert await intents_of(client, hash_of(body)) == []
    await operator.recorded(first)  # without a claim
    await operator.recorded(second.saying(executionHash=hash_of(body)))
    await operator.recorded(third)
    assert await intents_of(client, hash_of(body)) == [first.hash]
    assert await intents_of(client, hash_of(body), generation=2) == [second.hash]
    assert await intents_of(client, hash_of(body), generation="all") == [second.hash, first.hash]
    assert await intents_of(client, hash_of(body), generation="all", sort=1, limit=1, offset=1) == [second.hash]
    assert await intents_of(client, hash_of(body), generation="all", status="enqueued") == []
    assert await intents_of(client, hash_of(body), status="created", user=first.body["user"]) == [first.hash]
    assert await intents_of(client, "0x" + "00" * 32) == []
    shown = (await read(client, hash_of(body)))["outputs"]
    assert shown == [{"hash": second.hash, "recorded": True}, {"hash": first.hash, "recorded": True}]


async def test_an_intent_that_a_recorded_run_does_not_list_is_refused(
    client: httpx2.AsyncClient, trigger: dict[str, Any], own: Relayer, nothing_stored: Callable[[], Any]
) -> None:
    made, stranger, recorded = made_by(trigger, 1), made_by(trigger, 2), made_by(trigger, 4)
    body = run_body(trigger, **with_intents(made.hash))
    operator = OperatorClient(client, own.key)
    early = made_by(trigger, 3).saying(executionHash=hash_of(body))
    await operator.recorded(early)  # before the run, which may still come
    await operator.recorded(recorded)
    await own.record(body)
    async with nothing_stored():
        for draft in (stranger, operations_by(trigger, 2), recorded):
            refused = await operator.put(draft.saying(executionHash=hash_of(body)))
            assert (refused.status_code, refused.json()["code"]) == (409, "intent-differs")
            assert refused.json()["errors"][0]["pointer"] == "/executionHash"
    await operator.recorded(early)  # as recorded it stays
    await operator.recorded(made.saying(executionHash=hash_of(body)))
    assert await intents_of(client, hash_of(body)) == [made.hash]


async def test_a_run_that_lists_a_recorded_intent_of_another_trigger_is_refused(
    client: httpx2.AsyncClient, trigger: dict[str, Any], own: Relayer, nothing_stored: Callable[[], Any]
) -> None:
    made, strangers = made_by(trigger, 1), (IntentDraft(2), OperationsDraft(3))
    operator = OperatorClient(client, own.key)
    for draft in (made, *strangers):
        await operator.recorded(draft)
    async with nothing_stored():
        for draft in strangers:
            refused = await own.post(run_body(trigger, **with_intents(made.hash, draft.hash)))
            assert (refused.status_code, refused.json()["code"]) == (400, "invalid-execution")
            assert refused.json()["errors"][0]["pointer"] == "/outputs/1/hash"
    body = run_body(trigger, **with_intents(made.hash))
    assert (await own.record(body))["outputs"] == [{"hash": made.hash, "recorded": True}]
    await operator.recorded(made.saying(executionHash=hash_of(body)))


async def test_an_intent_of_another_trigger_joins_no_run_that_lists_it(
    client: httpx2.AsyncClient, trigger: dict[str, Any], own: Relayer, nothing_stored: Callable[[], Any]
) -> None:
    made, strangers = made_by(trigger, 1), (IntentDraft(2), OperationsDraft(3))
    body = run_body(trigger, **with_intents(*(each.hash for each in strangers), made.hash))
    await own.record(body)
    operator = OperatorClient(client, own.key)
    async with nothing_stored():
        for draft in strangers:
            refused = await operator.put(draft.saying(executionHash=hash_of(body)))
            assert (refused.status_code, refused.json()["code"]) == (409, "intent-differs")
            assert refused.json()["errors"][0]["pointer"] == "/executionHash"
    for draft in (*strangers, made):
        await operator.recorded(draft)  # without a claim
    async with nothing_stored():
        assert (await operator.put(strangers[0].saying(executionHash=hash_of(body)))).status_code == 409
    shown = (await read(client, hash_of(body)))["outputs"]
    assert [each["recorded"] for each in shown] == [False, False, True]
    assert await intents_of(client, hash_of(body), generation="all") == [made.hash]


async def test_a_run_of_a_dropped_block_is_taken_back_by_its_operators(
    client: httpx2.AsyncClient, own: Relayer, other: Relayer, clock: Clock
) -> None:
    trigger = await registered_event(client)
    block_hash = "0x" + "0a" * 32
    body = event_body(trigger, block_hash, timestamp=clock.now_ms + 1, blocks=[BLOCK])
    await own.record(body)
    await other.record(body)
    for block in ({"chainId": 8453, "hash": block_hash}, BLOCK):  # the event's block, and one at which it read
        answer = ok(await own.orphan(hash_of(body), block)).json()
        assert (answer["status"], answer["validations"]) == ("valid", 1)
        assert [each.get("orphaned") for each in answer["records"]] == [True, None]
    assert ok(await other.orphan(hash_of(body), BLOCK)).json()["status"] == "invalid"
    assert (await read(client, hash_of(body)))["validations"] == 0


async def test_a_run_whose_block_comes_back_is_recorded_again(
    client: httpx2.AsyncClient, trigger: dict[str, Any], own: Relayer, other: Relayer, nothing_stored: Callable[[], Any]
) -> None:
    body = run_body(trigger, blocks=[BLOCK])
    now = target_of(ok(await client.get("/events", params={"types": "execution.recorded"}))) or ""
    for each in (own, other):
        await each.record(body)
        ok(await each.orphan(hash_of(body), BLOCK))
    assert (await read(client, hash_of(body)))["status"] == "invalid"
    again = await own.record({**body, "logs": ["[Info] again"]})  # what was recorded first stays
    assert (again["status"], again["validations"], again["logs"]) == ("valid", 1, body["logs"])
    assert [each.get("orphaned") for each in again["records"]] == [None, True]
    async with nothing_stored():
        await own.record(body)
    ok(await own.orphan(hash_of(body), BLOCK))
    events = ok(await client.get(now)).json()
    statuses = [each["data"]["status"] for each in events]
    assert statuses == ["valid", "invalid", "valid", "invalid", "valid", "invalid"]


async def test_only_an_operator_of_the_run_takes_it_back_and_names_its_block(
    client: httpx2.AsyncClient, trigger: dict[str, Any], own: Relayer, other: Relayer, nothing_stored: Callable[[], Any]
) -> None:
    body = run_body(trigger, blocks=[BLOCK])
    await own.record(body)
    async with nothing_stored():
        refused = await other.orphan(hash_of(body), BLOCK)
        assert (refused.status_code, refused.json()["code"]) == (404, "execution-not-found")
        assert (await own.orphan("0x" + "00" * 32, BLOCK)).status_code == 404
        for block in ({**BLOCK, "chainId": 1}, {**BLOCK, "hash": "0x" + "0b" * 32}):
            refused = await own.orphan(hash_of(body), block)
            assert (refused.status_code, refused.json()["code"]) == (400, "invalid-execution")
        for hostile in ({}, {"chainId": 0, "blockHash": BLOCK["hash"]}, {"chainId": "1", "blockHash": "0x"}, []):
            path = f"/executions/{hash_of(body)}/orphan"
            assert (await client.post(path, json=hostile, headers=own.headers)).status_code == 400


async def test_the_feed_tells_of_runs(
    client: httpx2.AsyncClient, trigger: dict[str, Any], own: Relayer, other: Relayer
) -> None:
    intent = "0x" + "11" * 32
    body = run_body(trigger, **with_intents(intent), blocks=[BLOCK])
    now = target_of(ok(await client.get("/events", params={"types": "execution.recorded"}))) or ""
    await own.record(body)
    await own.record(body)  # nothing new
    await other.record(body)
    await own.orphan(hash_of(body), BLOCK)
    await other.orphan(hash_of(body), BLOCK)
    events = ok(await client.get(now)).json()
    data = {
        "triggerSig": trigger["sig"], "triggerType": 0, "result": "intents", "outputs": [intent],
        "relayer": own.address,
    }  # fmt: skip
    assert [each["data"] for each in events] == [
        {**data, "status": status} for status in ("valid", "valid", "valid", "invalid")
    ]
    assert {(each["type"], each["subject"]) for each in events} == {("muniment.execution.recorded", hash_of(body))}
    for found, filters in (
        (4, {"signer": trigger["signer"]}), (4, {"owner": trigger["signer"]}), (4, {"configSig": trigger["sig"]}),
        (0, {"user": trigger["signer"]}), (0, {"signer": own.address}),
    ):  # fmt: skip
        page = await client.get(f"{now}&{urlencode(filters)}")
        assert len(ok(page).json()) == found, filters


async def test_old_runs_without_intents_are_removed(
    client: httpx2.AsyncClient, context: Context, clock: Clock, own: Relayer
) -> None:
    trigger = await registered(client, config={"type": 0, "schedule": "* * * * *", "delta": "1m", "endDate": 0})
    start = (clock.now_ms // MINUTE + 1) * MINUTE
    changes = [{}, with_intents("0x" + "11" * 32), skipped(), {}, {}]
    bodies = [run_body(trigger, start + n * MINUTE, **each) for n, each in enumerate(changes)]
    for n, body in enumerate(bodies):
        clock.now_ms = start + n * MINUTE
        await own.record(body)

    async def removed(older_than_ms: int) -> int:
        return await context.database.write(lambda tx: remove_old(tx, older_than_ms))

    assert await removed(start) == 0
    assert await removed(start + 3 * MINUTE) == 2
    assert await listed(client) == [hash_of(bodies[n]) for n in (4, 3, 1)]
    cursor = target_of(ok(await client.get("/executions?sort=1"))) or ""
    assert await removed(clock.now_ms + DAY_MS) == 1  # the newest stays, since cursors are compared with its number
    assert await listed(client) == [hash_of(bodies[n]) for n in (4, 1)]
    assert ok(await client.get(cursor)).json() == []


@pytest.mark.spoils_events("another sweep removes old events")
async def test_a_sweep_removes_them_after_the_days_of_the_setting(
    client: httpx2.AsyncClient, context: Context, clock: Clock, trigger: dict[str, Any], own: Relayer
) -> None:
    kept = run_body(trigger, **with_intents("0x" + "11" * 32))
    old, newest = (run_body(trigger, TICK + n * SIX_HOURS_MS, **skipped()) for n in (1, 2))
    for n, body in enumerate((kept, old, newest)):
        clock.now_ms = TICK + n * SIX_HOURS_MS
        await own.record(body)
    for days, remain in ((89, [newest, old, kept]), (91, [newest, kept])):
        clock.now_ms = TICK + days * DAY_MS
        for sweep in SWEEPS:
            await context.database.write(lambda tx, sweep=sweep: sweep(tx, context))
        assert await listed(client) == [hash_of(body) for body in remain]
