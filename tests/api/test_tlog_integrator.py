"""The integrator brings functions, triggers and deactivations into the log, and signs what it has checked."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx2
import pytest
from tlog_world import KEY, add_triggers, entries_of, epoch_of, kinds, naive, shown, turn

from builders import Bundle, TriggerDraft, Wallet, deploy, register
from conftest import Clock
from muniment.protocol.evm.typed_data import compile_types, digest
from muniment.protocol.log.entries import (
    NO_EPOCH,
    BackfilledFact,
    DeactivationFact,
    FunctionFact,
    LogFact,
    TriggerFact,
    description_hash,
    parse_entry,
)
from muniment.protocol.triggers.typed_data import registry_domain
from muniment.protocol.wire import iso_time
from muniment.service.context import Context
from muniment.service.resources.log import store
from muniment.service.resources.log.integrator import Integrator
from muniment.service.resources.log.store import Overtaken
from muniment.service.running.settings import Settings

NAME = "registry.example"
ALICE, BOB = Wallet(1), Wallet(2)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, tlog_name=NAME, tlog_key=KEY)


async def test_each_fact_becomes_the_entry_that_its_record_says(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    await turn(context, clock)
    began_at = iso_time(context.clock.now_ms() // 1000 * 1000)
    cid = await deploy(client, wallet=ALICE)
    clock.advance(seconds=5)
    await deploy(client, wallet=BOB)  # the same bytes: another creator of the same function
    draft = TriggerDraft(cid, BOB, description="Every six hours ☂")
    trigger = await register(client, draft)
    sigs = [trigger["sig"], (await register(client, TriggerDraft(cid, BOB, version="2.0.0")))["sig"]]
    signature = BOB.sign_deactivation(sigs)
    body = {"triggerSigs": sigs, "signature": signature}
    assert (await client.post("/triggers/deactivate", json=body)).status_code == 204
    epoch = await turn(context, clock)
    function = (await client.get(f"/functions/{cid}")).json()
    ended = (await client.get(f"/deactivations/{signature}")).json()
    signed = draft.signed()["typedData"]
    hashed = digest(registry_domain("Mimic"), compile_types(signed["types"], "Trigger").struct_hash(signed["values"]))
    domain = "Mimic Protocol - Registry"
    found = [parse_entry(each) for each in await entries_of(context)]
    assert found[:5] == [
        LogFact(f"{NAME}/log/1", epoch.vkey, NO_EPOCH, "new", began_at, epoch.vkeys.split("\n")[1]),
        BackfilledFact(began_at),
        FunctionFact(cid, ALICE.address, function["creator"], function["createdAt"]),
        FunctionFact(cid, BOB.address, function["creator"], function["createdAt"]),
        TriggerFact(
            trigger["sig"], BOB.address, "0x" + hashed.hex(), trigger["functionCid"], trigger["createdAt"],
            description_hash("Every six hours ☂"), domain,
        ),
    ]  # fmt: skip
    assert found[6] == DeactivationFact(signature, BOB.address, ended["createdAt"], domain, tuple(sigs))
    assert (epoch.size, len(found)) == (7, 7)
    checkpoint, at_s = await shown(context)
    assert (checkpoint.size, checkpoint.root) == (7, naive(await entries_of(context)))
    assert at_s == context.clock.now_ms() // 1000


async def test_facts_from_before_the_log_stand_before_the_entry_that_says_so(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    cid = await deploy(client)
    await add_triggers(context, 300)
    clock.advance(seconds=1)
    await Integrator(context).turn()
    await register(client, TriggerDraft(cid))
    epoch = await turn(context, clock)
    found = kinds(await entries_of(context))
    assert found == ["log", "function", *["trigger"] * 300, "taken-over", "trigger"]
    assert (epoch.backfilled, epoch.size) == (302, 304)
    assert (await shown(context)).checkpoint.root == naive(await entries_of(context))


async def test_a_fact_has_the_index_that_its_run_says(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    for first, count in ((1, 3), (4, 1), (5, 260), (265, 2)):
        await add_triggers(context, count, first)
        epoch = await turn(context, clock)
    rows = await context.database.fetch("SELECT seq, sig FROM triggers ORDER BY seq")
    entries = await entries_of(context)
    for seq, sig in rows:
        run = await store.find_run(context.database, epoch.epoch, store.TRIGGER, seq)
        assert run
        earlier = sum(run.first_seq <= other < seq for other, _ in rows)
        assert earlier < run.count <= 256
        assert entries[run.first_index + earlier].split(b"\n")[1].decode() == "0x" + sig.hex()
    assert await context.database.fetch("SELECT count(*) FROM tlog_runs") == [(2,)]


async def test_two_integrators_at_once_make_one_tree(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    for n in range(4):
        await add_triggers(context, 130, 1 + 130 * n)
        clock.advance(seconds=1)
        done = await asyncio.gather(*(Integrator(context).turn() for _ in range(3)), return_exceptions=True)
        assert all(each is None or isinstance(each, Overtaken) for each in done), done
    epoch = await turn(context, clock)
    entries = await entries_of(context)
    assert (epoch.state, epoch.size, kinds(entries).count("trigger")) == ("open", 522, 520)
    assert len(set(entries)) == 522
    assert (await shown(context)).checkpoint.root == epoch.root == naive(entries)


async def test_a_fact_dated_later_waits_for_its_time(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    clock.advance(minutes=10)
    await add_triggers(context, 1)
    clock.advance(minutes=-5)
    assert (await turn(context, clock)).size == 2
    clock.advance(minutes=5)
    assert (await turn(context, clock)).size == 3
    assert (await shown(context)).at_s >= context.clock.now_ms() // 1000 - 1


async def test_a_checkpoint_that_has_not_grown_is_signed_again_for_its_time_which_never_goes_back(
    context: Context, clock: Clock
) -> None:
    await turn(context, clock)
    first = await shown(context)
    clock.advance(seconds=30)
    await turn(context, clock)
    assert await shown(context) == first
    clock.advance(seconds=60)
    await turn(context, clock)
    second = await shown(context)
    assert (second.checkpoint, second.at_s) == (first.checkpoint, context.clock.now_ms() // 1000)
    clock.advance(hours=-1)
    await add_triggers(context, 1)
    await turn(context, clock)
    third = await shown(context)
    assert (third.checkpoint.size, third.at_s) == (second.checkpoint.size + 1, second.at_s)


@pytest.mark.parametrize("step", ["append", "publish"])
async def test_a_process_that_dies_in_a_turn_leaves_what_the_next_one_goes_on_with(
    context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await turn(context, clock)
    await add_triggers(context, 5)

    async def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, step, die)
        with pytest.raises(KeyboardInterrupt):
            await turn(context, clock)
    assert (await shown(context)).checkpoint.size == 2
    epoch = await turn(context, clock)
    assert (epoch.state, epoch.size, epoch.note_size) == ("open", 7, 7)
    assert (await shown(context)).checkpoint.root == naive(await entries_of(context))


async def test_a_fact_that_no_entry_can_tell_halts_the_log_and_not_the_registry(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    await turn(context, clock)
    await add_triggers(context, 1)
    await context.database.write(lambda tx: tx.execute("UPDATE triggers SET protocol = ?", ("a\nb",)))
    epoch = await turn(context, clock)
    assert (epoch.state, epoch.why) == ("halted", "a line of an entry is empty or has a control character")
    assert (await shown(context)).checkpoint.size == 2
    await deploy(client, Bundle(version="9.0.0"))
    assert await turn(context, clock) == epoch
    assert await epoch_of(context) == epoch
