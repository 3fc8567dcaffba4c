"""What witnesses know of a log halts it when its database has gone back; no witness can do that by a lie alone."""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString

import pytest
from tlog_witness_world import grow, one_thinks, restarted, signers
from tlog_world import epoch_of

from conftest import NOW_MS, Clock
from muniment.protocol.log.checkpoints import Checkpoint
from muniment.protocol.log.notes import Note, SigningKey, keys_of_log, sign_note
from muniment.service.context import Context
from muniment.service.resources.log import store
from muniment.service.resources.log.integrator import Integrator
from muniment.service.resources.log.mark import MARK_FILE
from muniment.service.resources.log.witnesses import known_checkpoints, read_policy
from muniment.service.running.settings import Settings
from witness_site import Lie, WitnessSite, larger, status
from witnessed import KEYS, LOG


@pytest.fixture
def settings(watched: Settings) -> Settings:
    return watched


two_of_three = pytest.mark.parametrize(("count", "quorum"), [(3, "2")])


def show_nothing(witnesses: list[WitnessSite]) -> None:
    """Let no witness show the checkpoint that it has."""
    for site in witnesses:
        site.shows_checkpoints = False


def another_tree(size: int, keys: tuple[SigningKey, ...] = KEYS) -> Note:
    """A checkpoint of the log, of a tree that its database does not have."""
    return sign_note(Checkpoint(LOG.name, size, bytes(32)).text, keys, NOW_MS // 1000)


TREES = {
    9: "a tree of 9 entries was signed, and the database has 5: the others are lost here",
    5: "the stored tree does not begin with the 5 entries that were signed",
    3: "the stored tree does not begin with the 3 entries that were signed",
}


@pytest.mark.parametrize("quorum", ["none"])
@pytest.mark.parametrize("size", TREES)
async def test_a_log_is_halted_by_one_witness_that_shows_another_tree_under_its_key(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite], size: int
) -> None:
    before = await grow(context, clock, integrator, 3)
    witnesses[1].notes[LOG.name] = another_tree(size)
    clock.advance(seconds=60)
    after = await grow(context, clock, integrator)
    assert (after.state, after.note) == ("halted", before.note)
    assert after.why == f"the witness w2 has a checkpoint under the key of this log: {TREES[size]}"
    assert await grow(context, clock, integrator, 1, 10) == after


@pytest.mark.parametrize("size", TREES)
async def test_a_process_that_starts_compares_before_it_signs(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite], size: int
) -> None:
    before = await grow(context, clock, integrator, 3)
    witnesses[0].notes[LOG.name] = another_tree(size)
    mark = (context.settings.data_dir / MARK_FILE).read_bytes()
    asked = len(witnesses[0].bodies)
    clock.advance(seconds=60)
    async with restarted(context) as second:
        after = await grow(context, clock, second, 4, 10)
    assert (after.state, after.size, after.note) == ("halted", 5, before.note)
    assert TREES[size] in (after.why or "")
    assert (context.settings.data_dir / MARK_FILE).read_bytes() == mark
    assert len(witnesses[0].bodies) == asked


async def test_a_database_that_went_back_is_halted_by_what_the_witnesses_have(
    context: Context, clock: Clock, integrator: Integrator
) -> None:
    await grow(context, clock, integrator)
    old = await context.database.fetch("SELECT size, root, note, note_size FROM tlog_epochs")
    await grow(context, clock, integrator, 3)

    async def go_back(sql: LiteralString, values: tuple[object, ...]) -> None:
        await context.database.write(lambda tx: tx.execute(sql, values))

    await go_back("UPDATE tlog_epochs SET size = ?, root = ?, note = ?, note_size = ?", old[0])
    await go_back("UPDATE tlog_cursors SET after = ? WHERE kind = ?", (0, store.TRIGGER))
    await go_back("DELETE FROM tlog_runs WHERE first_index >= ?", (2,))
    await go_back("DELETE FROM tlog_tail WHERE leaf_index >= ?", (2,))
    mark = context.settings.data_dir / MARK_FILE
    mark.write_bytes(b'{"place":"%b"}' % (await epoch_of(context)).place.encode())
    async with restarted(context) as second:
        after = await grow(context, clock, second)
    assert (after.state, after.size, after.note) == ("halted", 2, old[0][2])
    assert "a tree of 5 entries was signed, and the database has 2" in (after.why or "")


@pytest.mark.parametrize("quorum", ["any"])
@pytest.mark.parametrize("keys", ["of others", "none"])
async def test_a_checkpoint_that_the_key_of_the_log_has_not_signed_proves_nothing(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite], keys: str
) -> None:
    await grow(context, clock, integrator, 3)
    forged = another_tree(9, keys_of_log(LOG.name, bytes(32)))
    if keys == "none":  # the name and the id of the key of the log
        forged = another_tree(9, tuple(SigningKey(each.verifier, bytes(32)) for each in KEYS))
    witnesses[0].notes[LOG.name] = forged
    clock.advance(seconds=60)
    epoch = await grow(context, clock, integrator)
    assert (epoch.state, set(signers(epoch, witnesses))) == ("open", {1})
    async with restarted(context) as second:
        epoch = await grow(context, clock, second, 1, 10)
    assert (epoch.state, epoch.note_size, set(signers(epoch, witnesses))) == ("open", 6, {1})


OPPOSED = "has a larger or another tree of this log"


@pytest.mark.parametrize("lie", [larger, status(422)], ids=["larger", "another"])
async def test_a_quorum_that_has_another_tree_halts_the_log_without_a_checkpoint_that_proves_it(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite], lie: Lie
) -> None:
    before = await grow(context, clock, integrator)
    for site in witnesses:
        site.lie, site.shows_checkpoints = lie, False
    after = await grow(context, clock, integrator, 3)
    assert (after.state, after.size, after.note) == ("halted", 5, before.note)
    assert after.why == f"a quorum of witnesses (w1, w2) {OPPOSED}"


async def test_witnesses_that_refuse_the_tree_again_at_the_same_size_are_a_quorum_too(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    await grow(context, clock, integrator)
    for site in witnesses:
        site.lie, site.shows_checkpoints = status(409), False
    clock.advance(seconds=60)
    after = await grow(context, clock, integrator)
    assert after.why == f"a quorum of witnesses (w1, w2) {OPPOSED}"


@pytest.mark.parametrize("count", [3])
@pytest.mark.parametrize("quorum", ["1", "2", "none"])
@pytest.mark.parametrize("others", [None, status(500)], ids=["honest", "silent"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_one_of_several_witnesses_halts_nothing(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite], others: Lie | None
) -> None:
    await grow(context, clock, integrator)
    witnesses[0].lie, witnesses[0].shows_checkpoints = larger, False
    for site in witnesses[1:]:
        site.lie = others
    epoch = await grow(context, clock, integrator, 3)
    assert (epoch.state, epoch.note_size) == ("open", 5)
    assert set(signers(epoch, witnesses)) == (set() if others else {1, 2})


@pytest.mark.parametrize("count", [3])
@pytest.mark.parametrize("quorum", ["1", "none"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_two_liars_halt_nothing_while_the_quorum_agrees(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    for site in witnesses[:2]:
        site.lie, site.shows_checkpoints = status(422), False
    epoch = await grow(context, clock, integrator, 3)
    assert (epoch.state, set(signers(epoch, witnesses))) == ("open", {2})


@two_of_three
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_witnesses_that_are_asked_at_different_times_are_one_quorum(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    await grow(context, clock, integrator)
    show_nothing(witnesses)
    witnesses[0].lie, witnesses[1].lie = status(422), status(500)
    witnesses[2].lie = status(500)
    assert (await grow(context, clock, integrator, 1)).state == "open"
    clock.advance(seconds=1)
    assert (await grow(context, clock, integrator, 1, 10)).state == "open"
    witnesses[0].lie, witnesses[1].lie = status(422), status(422)
    clock.advance(seconds=3)
    after = await grow(context, clock, integrator, 1, 20)
    assert after.why == f"a quorum of witnesses (w1, w2) {OPPOSED}"


@two_of_three
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_witness_that_was_ahead_contradicts_no_larger_tree(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    await grow(context, clock, integrator)
    show_nothing(witnesses)
    witnesses[0].lie = larger  # 9 leaves
    assert (await grow(context, clock, integrator)).state == "open"
    clock.advance(seconds=60)
    assert (await grow(context, clock, integrator)).state == "open"
    witnesses[1].lie = status(422)
    epoch = await grow(context, clock, integrator, 12)
    assert (epoch.state, epoch.note_size, set(signers(epoch, witnesses))) == ("open", 14, {2})


@pytest.mark.parametrize("quorum", ["any"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_proof_that_came_while_the_log_grew_is_asked_for_again_before_the_next_signature(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    await grow(context, clock, integrator)
    async with one_thinks(clock, integrator, witnesses[0]), restarted(context) as second:
        before = await grow(context, clock, second, 3)
        witnesses[0].notes[LOG.name] = another_tree(9)
    assert await epoch_of(context) == before
    after = await grow(context, clock, integrator, 1, 10)
    assert (after.state, after.note) == ("halted", before.note)
    assert after.why == f"the witness w1 has a checkpoint under the key of this log: {TREES[9]}"


@pytest.mark.parametrize("count", [1])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_only_witness_of_a_policy_is_its_quorum(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    witnesses[0].lie = larger
    after = await grow(context, clock, integrator)
    assert after.why == f"a quorum of witnesses (w1) {OPPOSED}"
    assert (after.state, after.note) == ("halted", None)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_witnesses_have_of_a_log(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    await grow(context, clock, integrator, 3)
    witnesses[1].shows_checkpoints = False
    policy = read_policy(context.settings)
    assert policy
    first, second = await known_checkpoints(policy, LOG.name, LOG)
    assert first.checkpoint == witnesses[0].checkpoint(LOG.name)
    assert first.note == witnesses[0].notes[LOG.name]
    assert (second.witness, second.checkpoint, second.note, second.detail) == ("w2", None, None, "http-404")
    lines = [f"witness w{n} {site.key.verifier.text}" for n, site in enumerate(witnesses, 1)]
    Path(context.settings.tlog_policy).write_text("\n".join([*lines, "quorum none"]))
    without_urls = read_policy(context.settings)
    assert without_urls
    assert await known_checkpoints(without_urls, LOG.name, LOG) == []
