"""The loop of a relayer against a registry in this process, with clocks that jump and functions that do as told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from answers import ok
from builders import TriggerDraft, Wallet, cron, deploy, once, register
from conftest import NOW_MS, Clock
from intent_bodies import operations_body
from muniment.client import AsyncRegistry, Retry, Unreachable
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.types import AnyNewIntent
from muniment.protocol.runs.texts import Engine
from muniment.protocol.runs.types import NewRun, NewRunOutput, RunReason
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import encode
from muniment.relayer.caps import Caps
from muniment.relayer.clock import RegistryClock
from muniment.relayer.due import Due
from muniment.relayer.event_runs import EventRuns
from muniment.relayer.figures import Figures
from muniment.relayer.following import Following
from muniment.relayer.journal import Entry, Journal, State
from muniment.relayer.loop import Made, NotYet, Publishing, Relayer
from muniment.relayer.pinning import Pins
from muniment.relayer.publication import Publication, Published
from muniment.relayer.settings import RelayerSettings, Served
from muniment.service.app import Application
from muniment.service.context import Context
from operator_client import FAR_DEADLINE, SETTLER, operator_key
from runs_world import relayer, run_body, stopped as stopped_body, with_intents

pytestmark = pytest.mark.one_engine  # what a relayer sends and reads has tests of its own on both

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
# The first whole minute after the time of the tests.
TICK = NOW_MS - NOW_MS % MINUTE + MINUTE
ENGINE = Engine("a test")


def nothing(due: Due) -> Made:
    return Made(_run(due, "nothing"), [])


def stopped(due: Due) -> Made:
    return Made(replace_run(_run(due, "stopped"), reason=RunReason(code="abort")), [])


def intent(due: Due, number: int = 1, deadline: int = FAR_DEADLINE) -> AnyNewIntent:
    """An intent of the second form, whose nonce follows from what was due."""
    members = {
        "feePayer": Wallet(71).address, "settler": SETTLER, "deadline": str(deadline), "maxFees": [],
        "triggerSig": str(due.sig),
        "operations": [{"opType": 1, "user": Wallet(71).address, "data": f"0x{number:02x}", "events": []}],
    }  # fmt: skip
    nonce = f"0x{due.timestamp_ms:056x}{number:08x}"
    return decode_record({**operations_body(number, **members), "nonce": nonce}, AnyNewIntent)


def intent_body_of(new: AnyNewIntent) -> dict[str, Any]:
    """An intent as JSON, without the members that are not set."""
    return {name: value for name, value in json.loads(encode(new)).items() if value is not None}


def intents(*numbers: int, deadline: int = FAR_DEADLINE) -> Callable[[Due], Made]:
    def made(due: Due) -> Made:
        found = [intent(due, number, deadline) for number in numbers]
        outputs = [NewRunOutput(hash=Bytes32.from_raw(intent_hash(each))) for each in found]
        return Made(replace_run(_run(due, "intents"), outputs=outputs), found)

    return made


def _run(due: Due, result: Any) -> NewRun:
    return NewRun(
        trigger_sig=due.sig, trigger_type=due.kind, trigger_data=HexString.from_raw(due.payload),
        timestamp=due.timestamp_ms, result=result, engine=ENGINE,
    )  # fmt: skip


def replace_run(run: NewRun, **members: Any) -> NewRun:
    return NewRun(**{**{name: getattr(run, name) for name in run.__struct_fields__}, **members})


@dataclass
class Told:
    """Functions that do as told; `ran` has what was run, `meanwhile` happens during a run."""

    does: Callable[[Due], Made | NotYet] = nothing
    meanwhile: Callable[[], Awaitable[object]] | None = None
    ran: list[int] = field(default_factory=list[int])

    async def run(self, trigger: Trigger, due: Due) -> Made | NotYet:
        assert trigger.sig == due.sig
        self.ran.append(due.timestamp_ms)
        if self.meanwhile is not None:
            await self.meanwhile()
        return self.does(due)


class Silent:
    """A registry that does not answer what is published."""

    async def publish(self, entry: Entry) -> Published:
        raise Unreachable(f"nobody takes {entry.sig}", sent=False)


@dataclass
class Heard:
    """Publishes, and tells when something was published."""

    publication: Publishing
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def publish(self, entry: Entry) -> Published:
        published = await self.publication.publish(entry)
        self.done.set()
        return published


@dataclass
class World:
    """A registry with an operator's key, and relayers of it."""

    client: httpx2.AsyncClient
    # That of the relayers: it can stream refusals, and compares nothing.
    plain: httpx2.AsyncClient
    context: Context
    clock: Clock
    key: str
    directory: Path
    cid: str
    told: Told = field(default_factory=Told)
    own_ms: int = 0
    registry_ms: int = 0

    def at(self, now_ms: int, own_ms: int | None = None) -> None:
        """Set the time of the registry, and of the relayer's machine if it is another."""
        self.clock.now_ms = self.registry_ms = now_ms
        self.own_ms = now_ms if own_ms is None else own_ms

    async def sign(self, number: int = 1, **members: Any) -> str:
        given: dict[str, Any] = {"config": cron(schedule="* * * * *"), "wallet": Wallet(number), **members}
        return (await register(self.client, TriggerDraft(self.cid, **given)))["sig"]

    @asynccontextmanager
    async def relayer(self, name: str = "relayer", key: str = "", **settings: Any) -> AsyncGenerator[Relayer]:
        served = settings.pop("served", Served(None, None, None))
        given = RelayerSettings(registry="http://test", served=served, **settings)
        looks = count()

        def tick() -> float:
            return self.registry_ms / 1_000 + next(looks) / 1_000_000

        clock = RegistryClock(lambda: self.own_ms, tick)

        async def ask_time() -> None:
            clock.hear(formatdate(self.registry_ms / 1_000, usegmt=True))

        retry = Retry(tries=1)
        with Journal.open(self.directory / f"{name}.db") as journal:
            registry = AsyncRegistry("http://test", operator_key=key or self.key, http=self.plain, retry=retry)
            following = Following(registry=registry, journal=journal, served=served, own_ms=lambda: self.own_ms)

            async def is_canonical(_: object) -> bool:
                return True

            publication = Publication(
                registry=registry, asked_again=following.asked_again, now_ms=lambda: self.own_ms,
                is_canonical=is_canonical,
            )  # fmt: skip
            events = EventRuns(
                chains={}, pins=Pins(nodes={}, now_ms=lambda: self.own_ms), registry=registry, following=following,
                journal=journal, own_ms=lambda: self.own_ms,
            )  # fmt: skip
            yield Relayer(
                events=events, settings=given, journal=journal, following=following, running=self.told,
                publishing=publication,
                clock=clock, caps=Caps(registry=registry, settings=given), figures=Figures(), engine=ENGINE,
                ask_time=ask_time, steady_s=tick, places=4,
            )  # fmt: skip

    async def step(self, now_ms: int, own_ms: int | None = None, **given: Any) -> bool:
        """One step of a relayer that was started anew."""
        self.at(now_ms, own_ms)
        async with self.relayer(**given) as made:
            return await made.once()

    async def get(self, path: str, **parameters: Any) -> Any:
        return ok(await self.client.get(path, params=parameters)).json()

    async def runs(self, sig: str) -> list[tuple[str, int]]:
        """Result and time of the trigger's runs in the registry, the oldest first."""
        found = await self.get("/executions", triggerSig=sig, sort=1, limit=100)
        return [(each["result"], each["timestamp"]) for each in found]


@pytest.fixture
async def world(client: httpx2.AsyncClient, app: Application, clock: Clock, tmp_path: Path) -> AsyncIterator[World]:
    cid = await deploy(client)
    transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 123))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as plain:
        made = World(client, plain, app.context, clock, await operator_key(app.context), tmp_path, cid)
        made.at(NOW_MS)
        yield made


async def test_a_tick_runs_once(world: World) -> None:
    sig = await world.sign()
    assert await world.step(NOW_MS)
    assert await world.runs(sig) == []
    for _ in range(3):
        assert await world.step(TICK + 1_000)
    assert world.told.ran == [TICK]
    assert await world.runs(sig) == [("nothing", TICK)]


async def test_only_the_newest_tick_runs_and_the_others_are_one_note(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    await world.step(TICK + 2 * DAY)
    assert world.told.ran == [TICK + 2 * DAY]
    assert sorted(await world.runs(sig)) == [("missed", TICK + 2 * DAY - MINUTE), ("nothing", TICK + 2 * DAY)]
    (note,) = await world.get("/executions", triggerSig=sig, result="missed")
    assert (note["missedCount"], note["from"], note["to"]) == (2 * 1_440, TICK, TICK + 2 * DAY - MINUTE)
    assert note["reason"]["code"] == "overtaken"  # within its delta of ten minutes


async def test_no_tick_runs_twice_when_the_clock_of_the_machine_jumps(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    for own_ms in (TICK, TICK + HOUR, TICK - HOUR, TICK + 4 * MINUTE, TICK - 4 * MINUTE, TICK):
        await world.step(TICK + 1_000, own_ms)
    assert world.told.ran == [TICK]
    assert await world.runs(sig) == [("nothing", TICK)]


async def test_nothing_runs_while_the_clocks_are_apart(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    for apart_ms in (HOUR, -HOUR, 5 * MINUTE + 2_000):
        assert not await world.step(TICK + 1_000, TICK + 1_000 + apart_ms)
    assert await world.runs(sig) == []
    assert await world.step(TICK + 1_000)
    assert world.told.ran == [TICK]


async def test_a_clock_ahead_runs_nothing_earlier_than_half_a_minute(world: World) -> None:
    await world.sign()
    await world.step(NOW_MS)
    await world.step(TICK - 31_000, TICK + 2 * MINUTE)
    assert world.told.ran == []
    await world.step(TICK - 20_000, TICK + 2 * MINUTE)
    assert world.told.ran == [TICK]


async def test_a_single_run_is_made_once_for_ever(world: World) -> None:
    sig = await world.sign(config=once(startDate=0))
    created = NOW_MS
    for now_ms in (created, created + MINUTE, created + HOUR, created + DAY):
        await world.step(now_ms)
    assert world.told.ran == [created]
    assert await world.runs(sig) == [("nothing", created)]


async def test_a_run_without_an_answer_is_tried_again_and_then_missed(world: World) -> None:
    sig = await world.sign(config=cron(schedule="0 * * * *", delta="5m"))
    hour = NOW_MS - NOW_MS % HOUR + HOUR
    world.told.does = lambda _: NotYet("no-answer", "no node")
    await world.step(NOW_MS)
    for minutes in (0, 2, 5):
        assert not await world.step(hour + minutes * MINUTE)
    assert world.told.ran == [hour] * 3
    await world.step(hour + 6 * MINUTE)
    assert await world.runs(sig) == [("missed", hour)]
    (note,) = await world.get("/executions", triggerSig=sig)
    assert note["reason"]["code"] == "unanswered"


async def test_a_planned_run_of_a_trigger_that_ended_is_given_up(world: World) -> None:
    sig = await world.sign(3)
    await world.step(NOW_MS)
    world.told.does = lambda _: NotYet("no-answer", "no node")
    assert not await world.step(TICK)
    body = {"triggerSigs": [sig], "signature": Wallet(3).sign_text(sig)}
    assert (await world.client.post("/triggers/deactivate", json=body)).status_code == 204
    assert await world.step(TICK + 1_000)
    assert await world.runs(sig) == []


async def test_intents_are_published_with_the_hash_of_their_run(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    world.told.does = intents(1, 2)
    await world.step(TICK)
    (run,) = await world.get("/executions", triggerSig=sig)
    assert [each["recorded"] for each in run["outputs"]] == [True, True]
    found = await world.get("/intents", generation=2)
    assert {each["executionHash"] for each in found} == {run["hash"]}
    assert {each["hash"] for each in found} == {each["hash"] for each in run["outputs"]}


async def test_two_relayers_make_one_record_and_one_intent(world: World) -> None:
    sig = await world.sign(min_validations=2)
    other = await operator_key(world.context, "other")
    await world.step(NOW_MS)
    await world.step(NOW_MS, name="other", key=other)
    world.told.does = intents(1)
    await world.step(TICK)
    await world.step(TICK + 1_000, name="other", key=other)
    (run,) = await world.get("/executions", triggerSig=sig)
    assert (run["validations"], run["status"], len(run["records"])) == (2, "valid", 2)
    assert run["conflicts"] == []
    assert len(await world.get("/intents", generation=2)) == 1


async def test_a_result_that_was_not_published_is_published_later_with_the_same_bytes(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    world.told.does = intents(1)
    world.at(TICK)
    async with world.relayer() as made:
        made.publishing = Silent()
        assert not await made.once()
        (left,) = made.journal.unfinished(State.RAN)
    assert await world.runs(sig) == []
    world.told.does = stopped  # another result of the same tick would contradict the first
    await world.step(TICK + 1_000)
    (run,) = await world.get("/executions", triggerSig=sig)
    assert (run["hash"], run["result"]) == ("0x" + left.hash.hex(), "intents")
    assert world.told.ran == [TICK]


async def test_a_relayer_does_not_take_the_address_of_another_for_its_own(world: World) -> None:
    sig = await world.sign(fee_limit="5")
    own, other = [await relayer(world.context, world.plain, f"number-{n}", n) for n in (1, 2)]
    await world.step(NOW_MS, key=own.key)
    world.at(TICK)
    await other.record(run_body({"sig": sig, "config": {"type": 0}}, TICK))
    for tick, fee, address in ((TICK, 6, None), (TICK + MINUTE, 0, own.address)):
        world.at(tick)
        async with world.relayer(key=own.key, fee=fee) as made:
            assert await made.once()
            assert made.caps.relayer == made.journal.fact("relayer") == address
    assert await world.runs(sig) == [("nothing", TICK), ("nothing", TICK + MINUTE)]


class SlowToRead(Following):
    """Reads the triggers after everything else had its turn."""

    async def begin(self) -> str:
        for _ in range(100):
            await asyncio.sleep(0)
        return await super().begin()


async def test_intents_left_by_a_killed_relayer_wait_until_the_triggers_are_read(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    world.told.does = intents(1)
    world.at(TICK)
    async with world.relayer() as made:
        made.publishing = Silent()
        assert not await made.once()
    async with world.relayer() as made:
        old = made.following
        made.following = SlowToRead(registry=old.registry, journal=old.journal, served=old.served, own_ms=old.own_ms)
        assert isinstance(made.publishing, Publication)
        made.publishing = published = Heard(replace(made.publishing, asked_again=made.following.asked_again))
        serving = asyncio.create_task(made.serve())
        await published.done.wait()
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
    (run,) = await world.get("/executions", triggerSig=sig)
    assert [each["recorded"] for each in run["outputs"]] == [True]


async def test_intents_of_a_trigger_that_ended_meanwhile_are_withheld(world: World) -> None:
    sig = await world.sign(3)
    await world.step(NOW_MS)

    async def end() -> None:
        body = {"triggerSigs": [sig], "signature": Wallet(3).sign_text(sig)}
        assert (await world.client.post("/triggers/deactivate", json=body)).status_code == 204

    world.told.does, world.told.meanwhile = intents(1), end
    assert await world.step(TICK)
    (run,) = await world.get("/executions", triggerSig=sig)
    assert [each["recorded"] for each in run["outputs"]] == [False]
    assert await world.get("/intents", generation=2) == []


async def test_intents_whose_deadline_has_passed_are_withheld(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    world.told.does = intents(1, deadline=TICK // 1_000)
    await world.step(TICK)
    (run,) = await world.get("/executions", triggerSig=sig)
    assert [each["recorded"] for each in run["outputs"]] == [False]


async def test_a_taken_nonce_refuses_that_output_alone(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    due = Due(Signature.parse(sig), 0, b"", TICK, TICK)

    async def squat() -> None:
        body = {**intent_body_of(intent(due, 1)), "deadline": str(FAR_DEADLINE - 1)}
        hash_ = "0x" + intent_hash(decode_record(body, AnyNewIntent)).hex()
        ok(await world.client.put(f"/intents/{hash_}", json=body, headers={"x-operator-key": world.key}))

    world.told.does, world.told.meanwhile = intents(1, 2), squat
    world.at(TICK)
    async with world.relayer() as made:
        assert await made.once()
        assert 'intents_total{outcome="refused"} 1' in made.figures.text()
    (run,) = await world.get("/executions", triggerSig=sig)
    assert [each["recorded"] for each in run["outputs"]] == [False, True]


async def test_three_failures_let_a_trigger_rest(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    world.told.does = stopped
    for n in range(3):
        await world.step(TICK + n * MINUTE)
    last = TICK + 2 * MINUTE
    await world.step(last + MINUTE - 1)
    await world.step(last + 59_000)
    assert world.told.ran == [TICK, TICK + MINUTE, last]
    world.told.does = nothing
    await world.step(last + MINUTE + 1_000)
    assert world.told.ran[-1] == last + MINUTE
    async with world.relayer() as made:
        known = made.journal.known(Signature.parse(sig))
        assert known is not None
        assert (known.failures, known.rests_until_ms) == (0, 0)


async def test_a_fee_above_the_limit_is_told_once_an_hour(world: World) -> None:
    sig = await world.sign(fee_limit="5")
    free = await world.sign(2)
    world.at(NOW_MS)
    async with world.relayer(fee=6) as made:
        for minutes in range(70):
            world.at(TICK + minutes * MINUTE)
            await made.once()
    assert [result for result, _ in await world.runs(sig)] == ["skipped", "skipped"]
    assert {result for result, _ in await world.runs(free)} == {"nothing"}
    assert len(world.told.ran) == 70


async def test_runs_of_other_relayers_use_up_no_cap(world: World) -> None:
    sig = await world.sign()
    honest, other = [await relayer(world.context, world.plain, f"number-{n}", n) for n in (1, 2)]
    await world.step(NOW_MS, key=honest.key)
    trigger = {"sig": sig, "config": {"type": 0}}
    for result in ({}, with_intents("0x" + "01" * 32), stopped_body()):
        world.at(TICK)
        await other.record(run_body(trigger, TICK, **result))
    for n in range(1, 4):  # the first learns the address of this relayer
        await world.step(TICK + n * MINUTE, key=honest.key, runs_per_trigger_and_day_max=2)
    assert world.told.ran == [TICK + 2 * MINUTE, TICK + 3 * MINUTE]
    await world.step(TICK + 4 * MINUTE, key=honest.key, runs_per_trigger_and_day_max=2)
    assert world.told.ran == [TICK + 2 * MINUTE, TICK + 3 * MINUTE]


async def test_the_runs_of_a_day_are_counted_from_the_registry(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    for n in range(3):  # each with a new process, and the last with a new journal
        await world.step(TICK + n * MINUTE, runs_per_trigger_and_day_max=3)
    await world.step(TICK + 3 * MINUTE, name="other machine", runs_per_trigger_and_day_max=3)
    assert len(world.told.ran) == 3
    assert [result for result, _ in await world.runs(sig)] == ["nothing"] * 3 + ["skipped"]
    tomorrow = TICK - TICK % DAY + DAY
    await world.step(tomorrow + MINUTE, runs_per_trigger_and_day_max=3)
    assert len(world.told.ran) == 4


async def test_the_intents_of_a_day_are_counted_from_the_registry(world: World) -> None:
    await world.sign()
    await world.step(NOW_MS)
    world.told.does = intents(1, 2)
    await world.step(TICK, intents_per_day_max=2)
    await world.step(TICK + MINUTE, intents_per_day_max=2)
    assert world.told.ran == [TICK]


async def test_another_trigger_runs_although_one_fails_unexpectedly(world: World) -> None:
    bad, good = await world.sign(1), await world.sign(2)
    await world.step(NOW_MS)

    def does(due: Due) -> Made:
        if due.sig == bad:
            raise RuntimeError("a defect")
        return nothing(due)

    world.told.does = does
    assert not await world.step(TICK)
    assert await world.runs(good) == [("nothing", TICK)]
    assert await world.runs(bad) == []


async def test_metrics_are_read_as_prometheus_reads_them(world: World) -> None:
    await world.sign()
    world.at(NOW_MS)
    async with world.relayer() as made:
        await made.once()
        world.at(TICK)
        await made.once()
        families = {each.name: each for each in text_string_to_metric_families(made.figures.text())}
    samples = {sample.name: sample.value for family in families.values() for sample in family.samples}
    assert samples["muniment_relayer_triggers"] == 1
    assert samples["muniment_relayer_runs_total"] == 1
