"""No fact is left out of the log, or comes into it twice: neither by a damaged cursor, nor where an epoch ends."""

from __future__ import annotations

from dataclasses import replace
from typing import LiteralString

import httpx2
import pytest
from tlog_world import KEY, add_triggers, entries_of, kinds, turn, unsigned

from builders import Bundle, TriggerDraft, Wallet, deploy, register
from conftest import Clock
from muniment.protocol.log.checkpoints import check_proof, parse_proof
from muniment.protocol.log.notes import parse_verifier_key
from muniment.protocol.log.tree import leaf_hash
from muniment.service.context import Context
from muniment.service.resources.log import store
from muniment.service.resources.log.mark import MARK_FILE
from muniment.service.resources.log.operating import begin
from muniment.service.running.settings import Settings


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, tlog_name="registry.example", tlog_key=KEY)


async def lose_place(context: Context) -> None:
    """Bring the database elsewhere, as a restored backup is."""
    (context.settings.data_dir / MARK_FILE).unlink(missing_ok=True)
    await context.database.write(lambda tx: tx.execute("UPDATE tlog_epochs SET place = ?", ("another",)))


@pytest.mark.parametrize("kind", store.KINDS)
@pytest.mark.parametrize("other", [-1, 2**62])
async def test_a_moved_cursor_halts_the_log(context: Context, clock: Clock, kind: int, other: int) -> None:
    await turn(context, clock)
    await add_triggers(context, 260)
    before = await turn(context, clock)
    moved = await _move(context, kind, other)
    await add_triggers(context, 1, first=301)
    after = await turn(context, clock)
    assert (after.state, after.size, after.note) == ("halted", before.size, before.note), moved
    assert "does not continue with the" in (after.why or "")
    # The next epoch continues after what was signed, and not at the moved cursor.
    assert (await begin(context)).after == before.after
    assert kinds(await entries_of(context)) == ["log"]
    assert (await turn(context, clock)).size == 3
    assert kinds(await entries_of(context)) == ["log", "trigger", "taken-over"]


DAMAGED_RUNS: list[LiteralString] = [
    "kind = 3", "kind = 1", "count = count - 1", "count = count + 1", "first_seq = first_seq + 1", "first_index = 7",
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED_RUNS)
async def test_an_epoch_after_damaged_runs_leaves_nothing_out(
    context: Context, clock: Clock, damage: LiteralString
) -> None:
    await turn(context, clock)
    await add_triggers(context, 260)
    await turn(context, clock)
    await context.database.write(lambda tx: tx.execute(f"UPDATE tlog_runs SET {damage} WHERE first_index > 255"))
    await add_triggers(context, 3, first=301)
    await lose_place(context)
    assert (await turn(context, clock)).state == "halted"
    await begin(context)
    await turn(context, clock)
    sigs = {entry.decode().split("\n")[1] for entry in await entries_of(context)}
    assert sigs >= {"0x" + n.to_bytes(32).hex() * 2 + "1b" for n in (301, 302, 303)}
    assert await context.database.fetch("SELECT DISTINCT after FROM tlog_cursors WHERE kind <> 2") == [(0,)]


async def _move(context: Context, kind: int, by: int) -> int:
    ((value,),) = await context.database.fetch("SELECT after FROM tlog_cursors WHERE kind = ?", (kind,))
    sql = "UPDATE tlog_cursors SET after = ? WHERE kind = ?"
    await context.database.write(lambda tx: tx.execute(sql, (value + by, kind)))
    return value + by


@pytest.mark.parametrize("signed", [0, 2, 300])
async def test_facts_that_were_not_signed_come_into_the_next_epoch(
    context: Context, client: httpx2.AsyncClient, clock: Clock, signed: int
) -> None:
    owner = Wallet(5)
    cid = await deploy(client, Bundle(), wallet=owner)
    sigs = [(await register(client, TriggerDraft(cid, owner, version=f"{n}.0.0")))["sig"] for n in (1, 2)]
    await turn(context, clock)
    if signed > 2:
        await add_triggers(context, signed)
        await turn(context, clock)
    elif not signed:
        await context.database.write(lambda tx: tx.execute("UPDATE tlog_epochs SET note = NULL, note_size = 0"))
    sigs += [(await register(client, TriggerDraft(cid, owner, version=f"{n}.0.0")))["sig"] for n in (3, 4)]
    ending = str(owner.sign_deactivation(sigs[1:3]))
    consent = {"triggerSigs": sigs[1:3], "signature": ending}
    assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204
    stored = await unsigned(context, clock)
    assert stored.size > stored.note_size
    await lose_place(context)
    assert (await turn(context, clock)).state == "halted"
    await begin(context)
    after = await turn(context, clock)
    assert (after.epoch, after.state, after.note_size) == (2, "open", after.size)
    facts = kinds(await entries_of(context))
    assert sorted(facts) == sorted(
        [
            "log",
            "taken-over",
            "deactivation",
            "trigger",
            "trigger",
            *([] if signed else ["function", "trigger", "trigger"]),
        ]
    )
    for path in [f"/functions/{cid}", *[f"/triggers/{sig}" for sig in sigs], f"/deactivations/{ending}"]:
        await _check_proof(context, await client.get(f"{path}/proof"))


async def _check_proof(context: Context, answer: httpx2.Response) -> None:
    assert answer.status_code == 200, answer.text
    proof = parse_proof(answer.content)
    keys = {each.origin: each.vkey for each in await store.all_epochs(context.database)}
    origin = proof.checkpoint.text.partition("\n")[0]
    assert proof.extra is not None
    check_proof(proof, leaf_hash(proof.extra), parse_verifier_key(keys[origin]))
