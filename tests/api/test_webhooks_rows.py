"""The rows of webhooks as deliveries write them, beside what people change."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from webhooks_world import Maker

from applications import another_process
from builders import Wallet
from conftest import Clock
from muniment.protocol.evm.address import Address
from muniment.service.context import Context
from muniment.service.resources.feed.events import Position
from muniment.service.resources.webhooks import managing, store
from muniment.service.resources.webhooks.hook_state import is_due
from muniment.service.resources.webhooks.store import HOOKS_PER_OPERATOR_MAX, Attempt, DeadLetter, Hook
from muniment.service.resources.webhooks.types import ATTEMPTS_KEPT, NewWebhook, WebhookUrl
from muniment.service.running.settings import Settings
from operator_client import operator_key
from receiving import Received, Receiver, Reply, echo

ELSEWHERE = "https://hooks.example.org/"
OWNER = Address.parse(Wallet(7).address)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, allow_private_networks=True)


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> Maker:
    return Maker(client, {"x-operator-key": await operator_key(context)})


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().listening() as listening:
        yield listening


@pytest.fixture
async def hook(operator: Maker, context: Context, receiver: Receiver) -> Hook:
    return await active_hook(operator, context, receiver)


async def active_hook(operator: Maker, context: Context, receiver: Receiver) -> Hook:
    """Another active hook."""
    path = await operator.added(receiver.url)
    await operator.done("POST", f"{path}/test")
    found = await store.find(context.database, bytes.fromhex(path[-32:]))
    assert found is not None
    return found


def path_of(hook: Hook) -> str:
    return f"/webhooks/mnh_{hook.id.hex()}"


async def progress(context: Context, hook: Hook) -> bool:
    return await context.database.write(lambda tx: store.store_progress(tx, hook))


async def test_a_delivery_that_began_before_a_replay_does_not_undo_it(
    operator: Maker, context: Context, hook: Hook
) -> None:
    assert await progress(context, replace(hook, seq=hook.seq + 5))
    start = Position.at(hook.epoch, 0)
    await operator.done("POST", f"{path_of(hook)}/replay", {"cursor": start})
    assert not await progress(context, replace(hook, seq=hook.seq + 6))
    assert (await operator.done("GET", path_of(hook)))["cursor"] == start


async def cursor_stored(context: Context, hook: Hook) -> bool:
    return await context.database.write(lambda tx: store.store_cursor(tx, hook))


async def test_a_change_that_redirects_nothing_keeps_the_cursor_of_a_delivery_that_began_before(
    operator: Maker, context: Context, receiver: Receiver
) -> None:
    for changes in (["rotate"], ["rotate", "resume", "batch"], ["same url"]):
        hook = await active_hook(operator, context, receiver)
        for each in changes:
            await change(operator, hook, each)
        after = replace(hook, seq=hook.seq + 5, failures=3, status="disabled")
        assert not await progress(context, after), changes
        assert await cursor_stored(context, after), changes
        shown = await operator.done("GET", path_of(hook))
        assert (shown["cursor"], shown["failures"]) == (Position.at(hook.epoch, hook.seq + 5), 0), changes
        assert shown["status"] == "active"


async def test_a_change_that_redirects_a_hook_voids_a_delivery_that_began_before(
    operator: Maker, context: Context, receiver: Receiver
) -> None:
    redirecting = (["replay"], ["rotate", "replay", "rotate"], ["url"], ["types"], ["filters"], ["types", "no types"])
    for changes in redirecting:
        hook = await active_hook(operator, context, receiver)
        for each in changes:
            await change(operator, hook, each)
        after = replace(hook, seq=hook.seq + 5)
        assert not await progress(context, after), changes
        assert not await cursor_stored(context, after), changes
        assert (await operator.done("GET", path_of(hook)))["cursor"] == Position.at(hook.epoch, hook.seq), changes


async def change(operator: Maker, hook: Hook, name: str) -> None:
    """Change the hook as a person does. The replay is to the stored cursor."""
    bodies: dict[str, Any] = {
        "batch": {"batch": True}, "url": {"url": ELSEWHERE}, "same url": {"url": hook.url},
        "types": {"types": ["trigger.created"]}, "no types": {"types": None},
        "filters": {"filters": {"owner": [OWNER]}},
    }  # fmt: skip
    if name in bodies:
        await operator.done("PATCH", path_of(hook), bodies[name])
    else:
        body = {"cursor": Position.at(hook.epoch, hook.seq)} if name == "replay" else None
        await operator.done("POST", f"{path_of(hook)}/{name}", body)


async def test_failures_are_shown_and_a_resumed_hook_begins_without_them(
    operator: Maker, context: Context, hook: Hook, clock: Clock
) -> None:
    failing = replace(
        hook, failures=3, failing_since_ms=clock.now_ms, due_at_ms=clock.now_ms + 120_000, refused=2,
    )  # fmt: skip
    assert await progress(context, failing)
    shown = await operator.done("GET", path_of(hook))
    assert (shown["failures"], "failingSince" in shown, "dueAt" in shown) == (3, True, True)
    (waiting,) = await store.active(context.database)
    assert not is_due(waiting, clock.now_ms)
    assert is_due(waiting, clock.now_ms + 120_000)
    resumed = await operator.done("POST", f"{path_of(hook)}/resume")
    assert (resumed["failures"], "failingSince" in resumed) == (0, False)
    (due,) = await store.active(context.database)
    assert is_due(due, clock.now_ms)
    assert (due.failures, due.refused) == (0, 0)


async def test_a_hook_that_was_put_off_by_a_clock_that_was_ahead_is_due_now(
    context: Context, hook: Hook, clock: Clock
) -> None:
    assert await progress(context, replace(hook, due_at_ms=clock.now_ms + 10 * 86_400_000))
    (found,) = await store.active(context.database)
    assert is_due(found, clock.now_ms)


async def test_a_disabled_hook_goes_on_at_its_cursor_and_forgets_its_dead_letters(
    operator: Maker, context: Context, hook: Hook, clock: Clock
) -> None:
    async def disable() -> None:
        disabled = replace(hook, status="disabled", reason="the receiver answered 410", seq=hook.seq + 1)

        async def write(tx: Any) -> None:
            assert await store.store_progress(tx, disabled)
            for seq in (1, 2, 2):
                letter = DeadLetter(hook.epoch, seq, clock.now_ms, 422)
                assert await store.add_dead_letter(tx, hook.id, letter) == seq

        await context.database.write(write)

    await disable()
    shown = await operator.done("GET", path_of(hook))
    assert (shown["status"], shown["reason"]) == ("disabled", "the receiver answered 410")
    assert shown["deadLetters"] == [Position.at(hook.epoch, 1), Position.at(hook.epoch, 2)]
    assert await store.active(context.database) == []
    resumed = await operator.done("POST", f"{path_of(hook)}/resume")
    assert resumed["status"] == "active"
    assert "deadLetters" not in resumed
    assert resumed["cursor"] == Position.at(hook.epoch, hook.seq + 1)


@pytest.mark.parametrize(("action", "status"), [("resume", "active"), ("rotate", "pending")])
async def test_a_suspended_hook_whose_secret_is_back_is_resumed_or_gets_new_keys(
    operator: Maker, context: Context, hook: Hook, action: str, status: str
) -> None:
    assert await progress(context, replace(hook, status="suspended", reason=managing.RETIRED))
    assert (await operator.done("GET", path_of(hook)))["status"] == "suspended"
    answer = await operator.done("POST", f"{path_of(hook)}/{action}")
    assert answer.get("webhook", answer)["status"] == status


async def test_the_last_100_attempts_are_kept(operator: Maker, context: Context, hook: Hook) -> None:
    for begin in (0, 30, 60, 90):
        attempts = [Attempt(n, hook.epoch, n, 200, n, "delivered") for n in range(begin, begin + 30)]

        async def write(tx: Any, attempts: list[Attempt] = attempts) -> None:
            assert await store.lock(tx, hook.id)
            await store.add_attempts(tx, hook.id, attempts)

        await context.database.write(write)
    shown = await operator.done("GET", f"{path_of(hook)}/attempts")
    assert [each["tookMs"] for each in shown] == list(range(119, 19, -1))
    assert shown[0]["event"] == Position.at(hook.epoch, 119)
    ((rows,),) = await context.database.fetch("SELECT count(*) FROM webhook_attempts")
    assert rows == len(shown) == ATTEMPTS_KEPT


async def test_two_processes_together_give_an_operator_no_more_than_its_twenty(
    operator: Maker, context: Context
) -> None:
    body = NewWebhook(url=WebhookUrl.parse(ELSEWHERE))
    async with another_process(context) as other:
        outcomes = await asyncio.gather(
            *(managing.add(each, "relayer", body) for each in (context, other) * 20), return_exceptions=True
        )
    assert sum(isinstance(outcome, Hook) for outcome in outcomes) == HOOKS_PER_OPERATOR_MAX
    assert len(await operator.done("GET", "/webhooks")) == HOOKS_PER_OPERATOR_MAX


async def test_an_answer_to_a_challenge_of_another_url_activates_nothing(operator: Maker, receiver: Receiver) -> None:
    arrived, may_answer = threading.Event(), threading.Event()

    def late(received: Received) -> Reply:
        arrived.set()
        assert may_answer.wait(60)
        return echo(received)

    receiver.reply = late
    path = await operator.added(receiver.url)
    test = asyncio.create_task(operator.done("POST", f"{path}/test"))
    assert await asyncio.to_thread(arrived.wait, 60)
    await operator.done("PATCH", path, {"url": ELSEWHERE})
    may_answer.set()
    assert (await test)["status"] == "pending"
    assert (await operator.done("GET", path))["status"] == "pending"


async def test_a_hook_that_was_removed_during_its_test_stores_nothing(
    operator: Maker, receiver: Receiver, nothing_stored: Callable[[], Any]
) -> None:
    arrived, may_answer = threading.Event(), threading.Event()

    def late(received: Received) -> Reply:
        arrived.set()
        assert may_answer.wait(60)
        return echo(received)

    receiver.reply = late
    async with nothing_stored():
        path = await operator.added(receiver.url)
        test = asyncio.create_task(operator.call("POST", f"{path}/test"))
        assert await asyncio.to_thread(arrived.wait, 60)
        assert (await operator.call("DELETE", path)).status_code == 204
        may_answer.set()
        assert (await test).status_code == 404
