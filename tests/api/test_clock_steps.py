"""A clock that steps: creates are refused, other requests go on, and no wrong mark stays."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

import httpx2
import pytest
from trigger_world import check_refusal, walk

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, api_key_of, cron, deploy, log_in, register
from conformance import check_answer
from conftest import Clock
from muniment.service.app import Application, Timekeeper, build_context
from muniment.service.auth.nonces import WINDOW_MS, WINDOWS_KEPT, forget_nonces
from muniment.service.context import Context
from muniment.service.resources.triggers.store import mark_ended
from muniment.service.running.settings import Settings
from runs_world import once_body, registered_once, relayer, stopped
from without_server import InProcess

STEADY_MS = 2_000
HOUR_MS = 3_600_000
OWNER = Wallet(31)


@dataclass
class Machine:
    """The clocks of one process. They stand still until they are moved, so that no process is late for another one."""

    ahead_ms: int = 0
    passed_ms: int = 0
    true_ms: ClassVar[int] = 0

    def wall_ms(self) -> int:
        return self.true_ms + self.ahead_ms + self.passed_ms

    def monotonic_ms(self) -> int:
        return HOUR_MS + self.passed_ms


@pytest.fixture(autouse=True)
def true_time() -> None:
    """The time at which all machines of a test stand still: that of its database, and of its wallets."""
    Machine.true_ms = time.time_ns() // 1_000_000


@dataclass
class Process:
    """A process of the service, with clocks of its own."""

    machine: Machine
    context: Context
    client: httpx2.AsyncClient
    timekeeper: Timekeeper

    async def step(self, ms: int) -> None:
        self.machine.ahead_ms += ms
        await self.timekeeper.look()

    async def be_steady(self) -> None:
        self.machine.passed_ms += self.context.clock.steady_ms
        await self.timekeeper.look()
        await self.timekeeper.look()

    async def is_ready(self) -> bool:
        return (await self.client.get("/readyz")).status_code == 200

    async def why_not_ready(self) -> str:
        return check_refusal(await self.client.get("/readyz"), 503, "not-ready")["detail"]


@asynccontextmanager
async def process(
    settings: Settings, machine: Machine | None = None, *, steady_ms: int = STEADY_MS
) -> AsyncGenerator[Process]:
    """One process over the database of `settings`."""
    machine = machine or Machine()
    context = build_context(settings, now_ms=machine.wall_ms, monotonic_ms=machine.monotonic_ms, steady_ms=steady_ms)
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [check_answer]}
    transport = InProcess(Application(context))
    try:
        await context.database.migrate()
        timekeeper = Timekeeper(context)
        await timekeeper.look()
        async with httpx2.AsyncClient(transport=transport, base_url="http://test", event_hooks=hooks) as client:
            yield Process(machine, context, client, timekeeper)
    finally:
        await context.outgoing.close()
        await context.database.close()


async def rows_of(context: Context) -> list[tuple[Any, ...]]:
    return await context.database.fetch("SELECT sig, live, deactivated, created_at_ms FROM triggers ORDER BY seq")


@pytest.mark.parametrize("step_ms", [3 * HOUR_MS, -3 * HOUR_MS, 50 * 365 * 24 * HOUR_MS])
async def test_after_a_step_creates_are_refused_and_everything_else_goes_on(settings: Settings, step_ms: int) -> None:
    async with process(settings, steady_ms=600_000) as one:  # also on a busy machine
        cid = await deploy(one.client)
        known = TriggerDraft(cid, OWNER, config=cron(endDate=one.machine.wall_ms() + 2 * HOUR_MS)).signed()
        kept = (await one.client.post("/triggers", json=known)).json()
        await one.step(step_ms)
        before = await rows_of(one.context)
        refused = await one.client.post("/triggers", json=TriggerDraft(cid, OWNER, version="2.0.0").signed())
        check_refusal(refused, 503, "clock-in-doubt")
        assert int(refused.headers["retry-after"]) >= 1
        assert await rows_of(one.context) == before
        assert (await one.why_not_ready()).startswith(f"the clock stepped by {'+' if step_ms > 0 else '-'}")
        assert (await one.client.post("/triggers", json=known)).json() == kept, "a consent that is known is answered"
        assert (await one.client.get("/triggers", params={"active": "true"})).json() == [kept]
        assert (await one.client.get("/triggers", params={"active": "false"})).json() == []
        token = await log_in(one.client, OWNER)
        assert (await one.client.get("/users/api-key", headers={"x-auth-token": token})).status_code == 200
        consent = {"triggerSigs": [kept["sig"]], "signature": OWNER.sign_deactivation([kept["sig"]])}
        assert (await one.client.post("/triggers/deactivate", json=consent)).status_code == 204
        await one.step(-step_ms)
        assert not await one.is_ready(), "it must be steady first"
        await one.be_steady()
        assert await one.is_ready()
        made = await register(one.client, TriggerDraft(cid, OWNER, version="3.0.0"))
        assert [row[3] for row in await rows_of(one.context)] == sorted(row[3] for row in await rows_of(one.context))
        assert abs(created_ms(made) - one.machine.wall_ms()) < 60_000


def created_ms(trigger: dict[str, Any]) -> int:
    return int(datetime.fromisoformat(trigger["createdAt"]).timestamp() * 1000)


async def test_a_function_is_not_registered_by_a_clock_in_doubt(settings: Settings) -> None:
    async with process(settings) as one:
        key = {"x-api-key": await api_key_of(one.client, Wallet())}
        await deploy(one.client, Bundle(name="Known"))
        await one.step(3 * HOUR_MS)
        refused = await one.client.post("/functions", files=Bundle(name="New").files, headers=key)
        check_refusal(refused, 503, "clock-in-doubt")
        assert len((await one.client.get("/functions")).json()) == 1
        assert (await one.client.post("/functions", files=Bundle(name="Known").files, headers=key)).status_code == 200


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_step_that_stays_is_followed_after_steady_minutes(settings: Settings) -> None:
    """On SQLite, where there is no other clock: as when an operator sets it right."""
    async with process(settings) as one:
        cid = await deploy(one.client)
        await one.step(3 * HOUR_MS)
        assert not await one.is_ready()
        await one.be_steady()
        assert await one.is_ready()
        made = await register(one.client, TriggerDraft(cid, OWNER))
        assert abs(created_ms(made) - one.machine.wall_ms()) < 60_000


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_service_that_stepped_keeps_no_other_from_writing(settings: Settings) -> None:
    async with process(settings) as wrong, process(settings) as right:
        cid = await deploy(right.client)
        await wrong.step(3 * HOUR_MS)
        for version in ("1.0.0", "2.0.0"):
            await right.timekeeper.look()
            assert await right.is_ready()
            made = await register(right.client, TriggerDraft(cid, OWNER, version=version))
            assert abs(created_ms(made) - right.machine.wall_ms()) < 60_000
            await wrong.be_steady()  # at the wrong time: now the comparison finds it
            assert "ahead of the database's clock" in await wrong.why_not_ready()
            refused = await wrong.client.post("/triggers", json=TriggerDraft(cid, OWNER, version="9.0.0").signed())
            check_refusal(refused, 503, "clock-in-doubt")
        await wrong.step(-3 * HOUR_MS)
        await wrong.be_steady()
        await wrong.be_steady()
        assert await wrong.is_ready()


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_service_that_starts_with_a_wrong_clock_is_found_by_the_databases(settings: Settings) -> None:
    async with process(settings) as right, process(settings, Machine(ahead_ms=3 * HOUR_MS)) as wrong:
        cid = await deploy(right.client)
        assert "the clock is 3 h ahead of the database's clock" in await wrong.why_not_ready()
        await right.timekeeper.look()
        assert await right.is_ready()
        await register(right.client, TriggerDraft(cid, OWNER))
        token = await log_in(wrong.client, OWNER)
        profile = await right.client.get(f"/users/{OWNER.address}/data", headers={"x-auth-token": token})
        assert profile.status_code == 200, "a token of the one is good at the other"


async def test_a_sweep_by_a_clock_that_was_ahead_ends_nothing(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    draft = TriggerDraft(await deploy(client), OWNER, config=cron(endDate=clock.now_ms + 2 * HOUR_MS))
    lasting = await register(client, draft)
    ended = await register(client, replace(draft, version="2.0.0", config=cron(endDate=clock.now_ms + 1)))
    clock.advance(minutes=1)
    swept = await context.database.write(lambda tx: mark_ended(tx, clock.now_ms + 3 * HOUR_MS))
    assert swept == 2
    sigs = f"&sigs={lasting['sig']},{ended['sig']}"
    for _ in range(2):
        for query, more in itertools.product(
            ["", "&sort=1", f"&signer={OWNER.address}", "&offset=0&limit=1"], ["", sigs]
        ):
            assert await walk(client, f"/triggers?active=true{more}{query}") == [lasting], query
            assert await walk(client, f"/triggers?active=false{more}{query}") == [ended], query
        await context.database.write(lambda tx: mark_ended(tx, clock.now_ms))
    live = await context.database.fetch("SELECT live FROM triggers ORDER BY seq")
    assert live == [(1,), (0,)], "a sweep by the right clock has undone it"


async def test_a_sweep_undoes_no_deactivation(client: httpx2.AsyncClient, context: Context, clock: Clock) -> None:
    draft = TriggerDraft(await deploy(client), OWNER, config=cron(endDate=clock.now_ms + 2 * HOUR_MS))
    sig = (await register(client, draft))["sig"]
    await context.database.write(lambda tx: mark_ended(tx, clock.now_ms + 3 * HOUR_MS))
    consent = {"triggerSigs": [sig], "signature": OWNER.sign_deactivation([sig])}
    assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204
    await context.database.write(lambda tx: mark_ended(tx, clock.now_ms))
    assert (await client.get("/triggers", params={"active": "true"})).json() == []
    assert len((await client.get("/triggers", params={"active": "false"})).json()) == 1


@pytest.mark.parametrize("ahead_ms", [3 * HOUR_MS, 40 * 24 * HOUR_MS])
async def test_rows_dated_ahead_move_no_other_dates_and_hide_no_row(
    client: httpx2.AsyncClient, clock: Clock, ahead_ms: int
) -> None:
    """In every listing by time, also at the times that pass later."""
    draft = TriggerDraft(await deploy(client), OWNER)
    made: list[dict[str, Any]] = []

    async def make(count: int) -> None:
        for _ in range(count):
            made.append(await register(client, replace(draft, version=f"{len(made)}.0.0")))
            assert created_ms(made[-1]) == clock.now_ms
            clock.advance(minutes=40)

    await make(3)
    clock.now_ms += ahead_ms
    await make(3)
    clock.now_ms -= ahead_ms
    await make(6)
    times = sorted({created_ms(each) for each in made})
    for bound in [times[0] - 1, *times]:
        after = [each for each in made if created_ms(each) > bound]
        before = [each for each in made if created_ms(each) <= bound]
        for extra in ("", "&signer=" + OWNER.address, "&active=true"):
            assert await walk(client, f"/triggers?sort=1&limit=3&createdAfter={bound}{extra}") == after
            assert await walk(client, f"/triggers?limit=3&createdBefore={bound}{extra}") == before[::-1]
    for offset in range(len(made)):
        page = ok(await client.get("/triggers", params={"sort": 1, "offset": offset, "limit": 3})).json()
        assert page == made[offset : offset + 3]


async def test_a_small_step_back_keeps_the_order(client: httpx2.AsyncClient, context: Context, clock: Clock) -> None:
    draft = TriggerDraft(await deploy(client), OWNER)
    first = await register(client, draft)
    clock.advance(minutes=-4)
    second = await register(client, replace(draft, version="2.0.0"))
    assert created_ms(second) == created_ms(first)
    assert await context.database.fetch("SELECT * FROM time_differences") == []


async def signed_login(client: httpx2.AsyncClient) -> dict[str, str]:
    nonce = (await client.post("/users/nonce", json={"address": OWNER.address})).json()["nonce"]
    return {"address": OWNER.address, "signature": OWNER.sign_text(nonce)}


@pytest.mark.parametrize("jump_ms", [3 * HOUR_MS, 48 * HOUR_MS, 400 * 24 * HOUR_MS])
async def test_a_nonce_works_once_though_the_clock_was_ahead_between(
    client: httpx2.AsyncClient, context: Context, clock: Clock, jump_ms: int
) -> None:
    used = await signed_login(client)
    assert (await client.post("/users/authenticate", json=used)).status_code == 200
    clock.now_ms += jump_ms
    assert (await client.post("/users/authenticate", json=await signed_login(client))).status_code == 200
    await context.database.write(forget_nonces)
    clock.now_ms -= jump_ms
    assert (await client.post("/users/authenticate", json=used)).status_code == 401
    assert (await client.post("/users/authenticate", json=await signed_login(client))).status_code == 200


async def test_a_forgotten_nonce_is_good_at_no_time_and_log_in_works_at_every(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    used = await signed_login(client)
    used_at_ms = clock.now_ms
    assert (await client.post("/users/authenticate", json=used)).status_code == 200
    for _ in range(WINDOWS_KEPT):
        clock.now_ms += WINDOW_MS
        assert (await client.post("/users/authenticate", json=await signed_login(client))).status_code == 200
    assert await context.database.write(forget_nonces) == 1
    assert await context.database.write(forget_nonces) == 0
    ((count,),) = await context.database.fetch("SELECT count(*) FROM used_nonces")
    assert count == WINDOWS_KEPT
    clock.now_ms = used_at_ms
    assert (await client.post("/users/authenticate", json=used)).status_code == 401
    for _ in range(2):
        assert (await client.post("/users/authenticate", json=await signed_login(client))).status_code == 200
        clock.advance(hours=-100)


async def test_a_grace_given_by_a_clock_that_was_ahead_does_not_count(client: httpx2.AsyncClient, clock: Clock) -> None:
    key = await api_key_of(client, OWNER)
    year_ms = 365 * 24 * HOUR_MS
    clock.now_ms += year_ms
    token = await log_in(client, OWNER)
    rotated = await client.post("/users/api-key/rotate", json={}, headers={"x-auth-token": token})
    assert rotated.status_code == 200
    clock.now_ms -= year_ms
    refused = await client.post("/functions", files=Bundle().files, headers={"x-api-key": key})
    assert refused.status_code in {401, 403}


@pytest.mark.parametrize("step_ms", [3 * HOUR_MS, -3 * HOUR_MS])
async def test_a_run_is_not_judged_by_a_clock_in_doubt(settings: Settings, step_ms: int) -> None:
    async with process(settings) as one:
        own = await relayer(one.context, one.client)
        trigger = await registered_once(one.client)
        run = once_body(trigger, created_ms(trigger))
        recorded = await own.record(run)
        await one.step(step_ms)
        check_refusal(await own.post({**run, **stopped()}), 503, "clock-in-doubt")
        assert await own.record(run) == recorded, "a run that is known is answered"
        await one.step(-step_ms)
        await one.be_steady()
        assert (await own.record({**run, **stopped()}))["conflicts"] == [recorded["hash"]]
