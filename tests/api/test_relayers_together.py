"""A relayer beside others, which may lie, and after it was killed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from relayer_world import ENGINE, MINUTE, TICK, Heard, Silent, World, intents, world

from builders import event
from conftest import NOW_MS
from muniment.protocol.evm.signature import Signature
from muniment.relayer.events.forks import event_of
from muniment.relayer.journal.entries import State
from muniment.relayer.lives.following import Following
from muniment.relayer.outbox.publication import Publication
from muniment.relayer.runner.content import Content
from muniment.relayer.runner.notes import skipped
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.schedule.due import Due, Occurrence
from runs_world import event_body, relayer, run_body, stopped as stopped_body, with_intents

__all__ = ["world"]
pytestmark = pytest.mark.one_engine  # what a relayer sends and reads has tests of its own on both


async def test_a_relayer_does_not_take_the_address_of_another_for_its_own(world: World) -> None:
    sig = await world.sign(fee_limit="5")
    own, other = [await relayer(world.context, world.plain, f"number-{n}", n) for n in (1, 2)]
    await world.step(NOW_MS, key=own.key)
    world.at(TICK)
    await other.record(run_body({"sig": sig, "config": {"type": 0}}, TICK))
    for tick, fee, address in ((TICK, 6, ""), (TICK + MINUTE, 0, own.address)):
        world.at(tick)
        async with world.relayer(key=own.key, fee=fee) as made:
            assert await made.once()
            assert made.caps.relayer == made.journal.fact("relayer") == address
    assert await world.runs(sig) == [("nothing", TICK), ("nothing", TICK + MINUTE)]


async def test_a_note_about_a_block_that_is_gone_takes_back_no_run_of_another_relayer(world: World) -> None:
    sig = await world.sign(config=event())
    other = await relayer(world.context, world.plain, "other")
    world.at(TICK)
    verdict = await other.record(event_body({"sig": sig, "config": event()}, timestamp=TICK))
    due = Due(Signature.parse(sig), 1, bytes.fromhex(verdict["triggerData"][2:]), TICK, TICK + MINUTE)
    async with world.relayer() as made:
        made.journal.plan([due], TICK)
        content = Content.of(skipped(due, "run-cap", ENGINE), [])
        made.journal.ran(due, "skipped", *content.bytes_and_hash(), TICK)
        assert isinstance(made.outbox.publishing, Publication)

        async def is_canonical(_: object, __: int) -> bool:
            return False

        made.outbox.publishing = replace(made.outbox.publishing, is_canonical=is_canonical)
        assert await made.once()
    (run,) = await world.get("/executions", triggerSig=sig)
    assert (run["hash"], run["status"]) == (verdict["hash"], "valid")


async def test_nodes_that_differ_about_the_block_of_a_note_that_says_so_hold_up_nothing(world: World) -> None:
    config = event()
    sig = await world.sign(config=config)
    world.at(TICK)

    async def is_canonical(*_: object) -> bool:
        raise Incomplete("nodes-differ", "nodes differ about the block")

    async with world.relayer() as made:
        body = event_body({"sig": sig, "config": config}, timestamp=TICK)
        due = Due(Signature.parse(sig), 1, bytes.fromhex(body["triggerData"][2:]), TICK, TICK + MINUTE)
        log = event_of(due.payload)
        due = due._replace(event=Occurrence(log, 7, TICK // 1_000, log.block_hash, 0))
        assert isinstance(made.outbox.publishing, Publication)
        made.outbox.publishing = replace(made.outbox.publishing, is_canonical=is_canonical)
        pins: Any = SimpleNamespace(nodes={log.chain_id: None}, is_canonical=is_canonical)
        forks = replace(made.events.forks, pins=pins)
        await made.following.begin()
        made.ledger.tell(due, "nodes-differ", "nodes did not agree", TICK)
        assert await made.outbox.publish_left()
        await forks.take_back(log.chain_id, 0, TICK)
        (entry,) = made.journal.published_events(log.chain_id, 0)
        made.journal.mark(entry, "intents")
        with pytest.raises(Incomplete):
            await forks.take_back(log.chain_id, 0, TICK)
    assert await world.runs(sig) == [("missed", TICK)]


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
        made.outbox.publishing = Silent()
        assert not await made.once()
    async with world.relayer() as made:
        old = made.following
        made.following = SlowToRead(
            registry=old.registry, journal=old.journal, served=old.served, ends=old.ends, own_ms=old.own_ms
        )  # fmt: skip
        assert isinstance(made.outbox.publishing, Publication)
        own = replace(made.outbox.publishing, asked_again=made.following.asked_again)
        made.outbox.publishing = published = Heard(own)
        serving = asyncio.create_task(made.serve())
        await published.done.wait()
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
    (run,) = await world.get("/executions", triggerSig=sig)
    assert [each["recorded"] for each in run["outputs"]] == [True]


async def test_runs_of_other_relayers_use_up_no_cap(world: World) -> None:
    sig = await world.sign()
    honest, other = [await relayer(world.context, world.plain, f"number-{n}", n) for n in (1, 2)]
    await world.step(NOW_MS, key=honest.key)
    trigger = {"sig": sig, "config": {"type": 0}}
    for result in ({}, with_intents("0x" + "01" * 32), stopped_body()):
        world.at(TICK)
        await other.record(run_body(trigger, TICK, **result))
    for n in range(1, 4):  # in the first its note on the first tick is answered with a verdict of the other
        await world.step(TICK + n * MINUTE, key=honest.key, runs_per_trigger_and_day_max=2)
    assert world.told.ran == [TICK + MINUTE, TICK + 2 * MINUTE]
    await world.step(TICK + 4 * MINUTE, key=honest.key, runs_per_trigger_and_day_max=2)
    assert world.told.ran == [TICK + MINUTE, TICK + 2 * MINUTE]


async def test_a_stop_cancels_runs_before_the_journal_is_closed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.sign()
    await world.step(NOW_MS)
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    world.told.meanwhile = wait
    world.at(TICK)
    async with world.relayer() as made:
        serving = asyncio.create_task(made.serve())
        await begun.wait()
        capsys.readouterr()
        serving.cancel()
        await asyncio.wait([serving])
    assert not any("Relayer" in repr(each) for each in asyncio.all_tasks())
    assert "error" not in capsys.readouterr().out
    async with world.relayer() as made:
        (entry,) = made.journal.unfinished(State.PLANNED)
        assert (entry.timestamp_ms, entry.tries) == (TICK, 0)
