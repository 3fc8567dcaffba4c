"""Accidents of a relayer that must lose no run: restarts, full disks, clocks that step while a run goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress

import pytest
from relayer_world import DAY, HOUR, MINUTE, TICK, World, intents, world

from builders import event
from conftest import NOW_MS
from muniment.protocol.errors import TriggerNotFound
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import EventPayload, event_payload
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.journal.entries import State
from muniment.relayer.schedule.due import Due, Occurrence

__all__ = ["world"]
pytestmark = pytest.mark.one_engine  # what a relayer sends and reads has tests of its own on both


async def test_a_single_step_ends_though_the_time_of_a_run_is_over_before_its_turn(world: World) -> None:
    sigs = [await world.sign(number) for number in range(1, 6)]
    await world.step(NOW_MS)

    async def pass_time() -> None:
        world.at(world.registry_ms + 11 * MINUTE)  # their delta is ten minutes

    world.told.meanwhile = pass_time
    async with asyncio.timeout(10):
        await world.step(TICK + 1_000)
    assert {*world.told.ran} == {TICK}  # ticks that came meanwhile are those of the next step
    found = [await world.runs(sig) for sig in sigs]
    assert sorted(found)[:-1] == 4 * [[("missed", TICK + MINUTE)]]
    assert max(found)[0] == ("nothing", TICK)


async def test_a_trigger_whose_run_could_not_be_kept_runs_when_the_journal_can_be_written(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    world.at(TICK + 1_000)
    async with world.relayer() as relayer:
        journal = sqlite3.connect(world.directory / "relayer.db", isolation_level=None, timeout=0)
        relayer.journal._connection.execute("PRAGMA busy_timeout=0")

        async def fill() -> None:
            journal.execute("BEGIN IMMEDIATE")
            world.told.meanwhile = None

        world.told.meanwhile = fill
        task = asyncio.create_task(relayer.serve())
        try:
            async with asyncio.timeout(10):
                while not world.told.ran:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.2)
                journal.execute("ROLLBACK")
                for n in range(1, 60):
                    world.at(TICK + 1_000 * n)
                    await asyncio.sleep(0.05)
                    if await world.runs(sig):
                        break
        finally:
            journal.close()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    assert await world.runs(sig) == [("nothing", TICK)]


async def test_a_clock_that_steps_while_a_run_goes_on_stops_no_later_tick(world: World) -> None:
    sig = await world.sign()
    await world.step(NOW_MS)
    world.told.does = intents(1)

    async def step() -> None:
        world.at(world.registry_ms, own_ms=world.registry_ms + DAY)
        world.told.meanwhile = None

    world.told.meanwhile = step
    await world.step(TICK + 1_000)
    for n in (1, 2, 3):
        await world.step(TICK + n * MINUTE + 1_000)
    assert world.told.ran == [TICK + n * MINUTE for n in range(4)]
    assert len(await world.get("/intents", generation="all", triggerSig=sig)) == 4


async def test_a_restart_gives_up_no_planned_event(world: World) -> None:
    sig = await world.sign(config=event())
    world.at(TICK)
    await world.step(TICK)
    due = _of_event(sig, 1, TICK + HOUR)
    async with world.relayer() as relayer:
        relayer.journal.plan([due], TICK)
    async with world.relayer() as relayer:
        task = asyncio.create_task(relayer.serve())
        while "registry" in relayer.troubles:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task])
        assert relayer.journal.entry(due.sig, due.kind, due.payload) is not None


async def test_a_registry_that_does_not_find_a_trigger_for_a_moment_loses_no_event(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sig = await world.sign(config=event())
    world.at(TICK)
    await world.step(TICK)
    due = _of_event(sig, 1, TICK + HOUR)
    async with world.relayer() as relayer:
        relayer.journal.plan([due], TICK)

        async def lost(*_: object, **__: object) -> None:
            raise TriggerNotFound("nobody registered it")

        monkeypatch.setattr(type(relayer.following.registry.triggers), "get", lost)
        assert not await relayer.once()
        entry = relayer.journal.entry(due.sig, due.kind, due.payload)
        assert entry is not None
        assert (entry.state, entry.tries) == (State.PLANNED, 1)


async def test_events_of_a_trigger_that_ended_while_it_rested_hide_no_missed_ones(world: World) -> None:
    ended, sig = [await world.sign(n, config=event()) for n in (1, 2)]
    await world.step(TICK)
    async with world.relayer() as relayer:
        await relayer._begin()
        theirs = [_of_event(ended, n, TICK + MINUTE) for n in range(150)]
        own = _of_event(sig, 1_000, TICK + 2 * MINUTE)
        relayer.journal.plan([*theirs, own], TICK)
        relayer.journal.failed(Signature.parse(ended), 9, TICK + HOUR)
        relayer.following._forget(Signature.parse(ended))
        for n in range(3):
            relayer.planner.see_events()
            relayer.planner.look(TICK + 3 * MINUTE + n)
        entry = relayer.journal.entry(own.sig, own.kind, own.payload)
        assert entry is not None
        assert entry.result == "missed"
        assert relayer.journal.count(State.PLANNED) == 0


def _of_event(sig: str, number: int, until_ms: int) -> Due:
    log = EventPayload(8453, Bytes32.from_raw(bytes(32)), number, Address.parse("0x" + "11" * 20), (), HexString("0x"))
    return Due(
        Signature.parse(sig), EVENT, event_payload(log), TICK, until_ms,
        Occurrence(log, 1, TICK // 1_000, Bytes32.from_raw(bytes(32)), number),
    )  # fmt: skip
