"""The loop of a relayer against a registry in this process, with clocks that jump and functions that do as told."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from relayer_world import (
    DAY,
    HOUR,
    MINUTE,
    TICK,
    Heard,
    Silent,
    World,
    intent,
    intent_body_of,
    intents,
    nothing,
    replace_run,
    stopped,
    world,
)

from answers import ok
from builders import Wallet, cron, once
from conftest import NOW_MS
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.types import AnyNewIntent
from muniment.protocol.runs.types import NewRun
from muniment.relayer.journal.entries import State
from muniment.relayer.runner.results import Made, NotYet
from muniment.relayer.schedule.due import Due
from muniment.relayer.settings import Served
from operator_client import FAR_DEADLINE, operator_key

__all__ = ["world"]
pytestmark = pytest.mark.one_engine  # what a relayer sends and reads has tests of its own on both


async def test_a_tick_runs_once(world: World) -> None:
    sig = await world.sign()
    assert await world.step(NOW_MS)
    assert await world.runs(sig) == []
    for _ in range(3):
        assert await world.step(TICK + 1_000)
    assert world.told.ran == [TICK]
    assert await world.runs(sig) == [("nothing", TICK)]


async def test_ticks_whose_window_is_open_run_in_order_and_the_others_are_notes(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    await world.step(TICK + 2 * DAY)
    ran = [TICK + 2 * DAY - n * MINUTE for n in range(9, -1, -1)]
    assert world.told.ran == ran  # its delta is ten minutes
    assert await notes(world, sig) == [
        ("overtaken", 1, ran[0] - MINUTE, ran[0] - MINUTE), ("gap", 2 * 1_440 - 10, TICK, ran[0] - 2 * MINUTE)
    ]  # fmt: skip


async def test_a_silence_is_paid_for_once_also_when_the_relayer_is_started_again(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    world.told.does = lambda due: nothing(due) if due.timestamp_ms == TICK else intents(1)(due)
    for _ in range(2):
        await world.step(TICK + 6 * MINUTE + 1_000)
    assert world.told.ran == [TICK, TICK + MINUTE]
    assert await notes(world, sig) == [("overtaken", 5, TICK + 2 * MINUTE, TICK + 6 * MINUTE)]
    await world.step(TICK + 7 * MINUTE)
    assert world.told.ran[2:] == [TICK + 7 * MINUTE]


async def test_a_run_that_ends_after_the_deadline_of_an_intent_is_missed(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)

    def does(due: Due) -> Made:
        first, later = intents(1, deadline=due.timestamp_ms // 1_000 + 300)(due), intents(2)(due)
        outputs = [*first.run.outputs, *later.run.outputs]
        return Made(replace_run(first.run, outputs=outputs), [*first.intents, *later.intents])

    world.told.does = does
    await world.step(TICK + 8 * MINUTE + 1_000)
    assert world.told.ran == [TICK, TICK + 4 * MINUTE]  # after the first, only those that can still be in time
    assert await world.get("/intents", generation="all", triggerSig=sig) != []
    late = [("too-late", 1, TICK, TICK), ("too-late", 3, TICK + MINUTE, TICK + 3 * MINUTE)]
    assert await notes(world, sig) == [("overtaken", 4, TICK + 5 * MINUTE, TICK + 8 * MINUTE), *late[::-1]]
    found = await world.get("/executions", triggerSig=sig, result="missed")
    texts = {each["reason"]["text"] for each in found if each["reason"]["code"] == "too-late"}
    assert texts == {"the function gives its intents 5 minutes from when they are due"}


async def notes(world: World, sig: str) -> list[tuple[str, int, int, int]]:
    """The notes of missed runs, the newest first: why, how many, from and to."""
    found = await world.get("/executions", triggerSig=sig, result="missed")
    of_time = sorted(found, key=lambda each: -each["to"])
    return [(each["reason"]["code"], each["missedCount"], each["from"], each["to"]) for each in of_time]


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


async def test_a_block_that_is_not_known_yet_is_no_failure(world: World) -> None:
    sig = await world.sign(config=cron(schedule="* * * * *", delta="1s"))
    await world.step(NOW_MS)
    failures: list[int] = []
    for code in ("no-block", "no-answer"):
        world.told.does = lambda _, code=code: NotYet(code, "")
        for n in range(3):
            await world.step(TICK + (len(failures) * 5 + n) * MINUTE)
        async with world.relayer() as made:
            known = made.journal.known(Signature.parse(sig))
            assert known is not None
            failures.append(known.failures)
    assert failures == [0, 2]


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


@dataclass
class Slow:
    """Tells of funds when it is let go, and fails then."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[str] = field(default_factory=list[str])

    async def tell(self, run: NewRun, intents: Sequence[AnyNewIntent]) -> None:
        await self.go.wait()
        for _ in range(1_000):  # a step that does not wait for this ends meanwhile
            await asyncio.sleep(0)
        self.told += [f"{run.trigger_sig} {each.nonce}" for each in intents]
        raise RuntimeError("a defect")


async def test_telling_of_funds_delays_and_stops_no_publication(world: World) -> None:
    sig, other = await world.sign(), await world.sign(2)
    await world.step(NOW_MS)
    world.told.does = lambda due: intents(1)(due) if due.sig == sig else nothing(due)
    world.at(TICK)
    async with world.relayer() as made:
        made.funds = slow = cast("Any", Slow())
        made.outbox.publishing = heard = Heard(made.outbox.publishing)
        step = asyncio.create_task(made.once())
        while not (await world.runs(other) and await world.get("/intents", generation=2)):
            await heard.done.wait()
            heard.done.clear()
        assert slow.told == []
        slow.go.set()
        assert await step
        assert len(slow.told) == 1
        assert 'failures_total{kind="internal"} 1' in made.figures.text()
    assert await world.runs(other) == [("nothing", TICK)]


async def test_a_result_that_was_not_published_is_published_later_with_the_same_bytes(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    world.told.does = intents(1)
    world.at(TICK)
    async with world.relayer() as made:
        made.outbox.publishing = Silent()
        assert not await made.once()
        (left,) = made.journal.unfinished(State.RAN)
    assert await world.runs(sig) == []
    world.told.does = stopped  # another result of the same tick would contradict the first
    await world.step(TICK + 1_000)
    (run,) = await world.get("/executions", triggerSig=sig)
    assert (run["hash"], run["result"]) == ("0x" + left.hash.hex(), "intents")
    assert world.told.ran == [TICK]


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


async def test_a_run_in_time_that_is_published_late_keeps_its_verdict_without_its_intents(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    world.told.does = intents(1, deadline=TICK // 1_000 + 60)
    world.at(TICK)
    async with world.relayer() as made:
        made.outbox.publishing = Silent()
        assert not await made.once()
    await world.step(TICK + 61_000)
    (run,) = await world.get("/executions", triggerSig=sig, result="intents")
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


async def test_a_function_that_aborts_has_answered_and_does_not_rest(world: World) -> None:
    await world.sign()
    await world.step(NOW_MS)
    world.told.does = stopped
    for n in range(6):
        await world.step(TICK + n * MINUTE)
    assert world.told.ran == [TICK + n * MINUTE for n in range(6)]


async def test_three_failures_let_a_trigger_rest(world: World) -> None:
    sig = await world.sign(config=cron(schedule="* * * * *", delta="10s"))
    await world.step(NOW_MS)
    world.told.does = lambda due: stopped(due, "trap")
    for n in range(3):
        await world.step(TICK + n * MINUTE)
    last = TICK + 2 * MINUTE
    await world.step(last + MINUTE - 1)
    await world.step(last + 59_000)
    assert world.told.ran == [TICK, TICK + MINUTE, last]
    await world.step(last + MINUTE + 1_000)
    world.told.does = nothing
    for n in (2, 3):
        await world.step(last + n * MINUTE + 2_000)
    assert world.told.ran[3:] == [last + MINUTE, last + 3 * MINUTE + 0]
    assert await notes(world, sig) == [("resting", 1, last + 2 * MINUTE, last + 2 * MINUTE)]
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
    assert len(world.told.ran) == 6


async def test_what_a_run_with_an_intent_asks_the_registry(world: World) -> None:
    world.told.does = intents(1)
    minute, hour = TICK // MINUTE % 60, TICK // HOUR % 24
    sig = await world.sign(config=cron(schedule=f"{minute} {hour} * * *"))
    asked: list[str] = []

    async def note(request: httpx2.Request) -> None:
        asked.append(f"{request.method} {request.url.path}")

    world.at(NOW_MS)
    async with world.relayer() as made:
        await made.once()
        world.at(TICK)
        world.plain.event_hooks["request"].append(note)
        await made.once()
    hash_ = (await world.get("/executions"))[0]["outputs"][0]["hash"]
    trigger = f"GET /triggers/{sig}"
    assert asked[-4:] == [trigger, "POST /executions", trigger, f"PUT /intents/{hash_}"]
    # Before that the step reads the triggers, whatever runs.
    assert not [each for each in asked[:-4] if "executions" in each or "intents" in each]


async def test_the_intents_of_a_day_are_counted_from_the_registry(world: World) -> None:
    await world.sign()
    await world.step(NOW_MS)
    world.told.does = intents(1, 2)
    await world.step(TICK, intents_per_day_max=2)
    await world.step(TICK + MINUTE, intents_per_day_max=2)
    assert world.told.ran == [TICK]


@pytest.mark.parametrize("is_new_process", [False, True])
async def test_no_signer_uses_up_the_intents_of_a_day_where_any_signer_is_served(
    world: World, *, is_new_process: bool
) -> None:
    greedy, other = await world.sign(1), await world.sign(2)
    numbers = iter(range(1, 100))
    world.told.does = lambda due: intents(*(next(numbers) for _ in range(2 if due.sig == greedy else 1)))(due)
    await world.step(NOW_MS)
    for count in (1, 1, 1, 1) if is_new_process else (4,):
        async with world.relayer(intents_per_day_max=22) as made:
            for _ in range(count):
                world.at(TICK if not world.told.ran else world.own_ms + MINUTE)
                await made.once()
    assert [result for result, _ in await world.runs(greedy)] == ["intents", "skipped"]
    assert [result for result, _ in await world.runs(other)] == ["intents", "intents", "skipped"]


async def test_signers_that_were_named_share_the_intents_of_a_day(world: World) -> None:
    sig = await world.sign(1)
    served = Served(frozenset({Address.parse(Wallet(1).address)}), None, None)
    await world.step(NOW_MS, served=served)
    world.told.does = intents(1, 2)
    for minute in range(3):
        await world.step(TICK + minute * MINUTE, intents_per_day_max=4, served=served)
    assert [result for result, _ in await world.runs(sig)] == ["intents", "intents", "skipped"]


async def test_a_run_that_could_not_be_planned_is_made_when_the_journal_can_be_written(world: World) -> None:
    sigs = [await world.sign(number) for number in (1, 2)]
    async with world.relayer() as made:
        await made._begin()
        for now_ms in (TICK + 1_000, TICK + MINUTE + 1_000):
            made.journal._connection.execute("PRAGMA query_only = ON")  # as a full disk
            world.at(now_ms)
            with suppress(sqlite3.OperationalError):
                made.planner.look(now_ms)
            made.journal._connection.execute("PRAGMA query_only = OFF")
            assert made.agenda.turns.count == 0
        world.at(TICK + MINUTE + 10_000)
        assert await made.once()
    for sig in sigs:
        assert {*await world.runs(sig)} == {("nothing", TICK), ("nothing", TICK + MINUTE)}


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


async def test_a_trigger_whose_plan_fails_keeps_no_other_from_its_run(world: World) -> None:
    bad, good = await world.sign(1), await world.sign(2)
    world.at(NOW_MS)
    async with world.relayer() as made:
        assert await made.once()
        tracked = made.following.tracked[Signature.parse(bad)]
        # A defect of ours, such as a schedule that a registry took and that is refused here.
        plan = replace(tracked.plan, schedule="61 * * * *")
        made.following.tracked[tracked.trigger.sig] = tracked._replace(plan=plan)
        world.at(TICK)
        assert not await made.once()
        assert 'failures_total{kind="internal"} 1' in made.figures.text()
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
