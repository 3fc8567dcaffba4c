"""An operator stops the log, lets it go on, and begins its next epoch; nothing that was shown is contradicted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tlog_world import KEY, Kept, add_triggers, entries_of, epoch_of, turn

from conftest import Clock
from muniment.protocol.log.checkpoints import Checkpoint, open_checkpoint, parse_checkpoint
from muniment.protocol.log.entries import CloseFact, LogFact, parse_entry, previous_epoch
from muniment.protocol.log.notes import keys_of_log, parse_note, parse_verifier_key, sign_note
from muniment.protocol.wire import iso_time
from muniment.service.context import Context
from muniment.service.resources.log import opening, operating
from muniment.service.resources.log.mark import MARK_FILE, raise_mark
from muniment.service.resources.log.operating import begin, freeze, look, resume, rotate
from muniment.service.resources.log.store import Epoch
from muniment.service.running.settings import Settings

NAME, NEXT_KEY = "registry.example", "22" * 32


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, tlog_name=NAME, tlog_key=KEY, tlog_key_next=NEXT_KEY)


def note_of(epoch: Epoch, size: int, root: bytes) -> str:
    """A checkpoint by the key of the epoch."""
    keys = keys_of_log(epoch.origin, bytes.fromhex(KEY))
    return sign_note(Checkpoint(epoch.origin, size, root).text, keys, 1).data.decode()


async def moved(context: Context) -> None:
    """Bring the database elsewhere: another place, and another host without a mark."""
    (context.settings.data_dir / MARK_FILE).unlink(missing_ok=True)
    await context.database.write(lambda tx: tx.execute("UPDATE tlog_epochs SET place = ?", ("another",)))


async def refused(work: Callable[[], Awaitable[object]], why: str, context: Context) -> None:
    """The work is refused, and has changed nothing."""
    before = await epoch_of(context)
    with pytest.raises(ValueError, match=why):
        await work()
    assert await epoch_of(context) == before


async def test_a_frozen_log_stays_stopped_until_it_is_resumed(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    before = await freeze(context)
    assert (before.state, before.why) == ("frozen", "an operator has frozen it")
    await add_triggers(context, 3)
    clock.advance(seconds=100)
    assert await turn(context, clock) == before
    await refused(lambda: freeze(context), "the log is frozen; only an open log", context)
    await resume(context, [], is_nothing_published=False)  # the mark of this host is known
    after = await turn(context, clock)
    assert (after.state, after.why, after.size, after.note_size) == ("open", None, 5, 5)
    await refused(
        lambda: resume(context, [], is_nothing_published=True), "the log is open: there is nothing to resume", context
    )


async def test_a_log_that_moved_goes_on_when_its_followers_have_seen_nothing_else(
    context: Context, clock: Clock
) -> None:
    await add_triggers(context, 300)
    await turn(context, clock)
    before = await epoch_of(context)
    assert before.note
    await moved(context)
    halted = await turn(context, clock)
    assert halted.state == "halted"
    await refused(lambda: resume(context, [], is_nothing_published=False), "this host does not know", context)
    longer = note_of(before, before.size + 1, bytes(32)).encode()
    await refused(lambda: resume(context, [longer], is_nothing_published=True), "the others are lost here", context)
    other = note_of(before, 5, bytes(32)).encode()
    await refused(lambda: resume(context, [other], is_nothing_published=True), "does not begin with the 5", context)
    foreign = sign_note(parse_note(before.note.encode()).text, keys_of_log(before.origin, bytes(32)), 1).data
    await refused(lambda: resume(context, [foreign], is_nothing_published=True), "has no signature by", context)
    await resume(context, [before.note.encode()], is_nothing_published=False)
    await add_triggers(context, 1, first=301)
    after = await turn(context, clock)
    assert (after.state, after.epoch, after.note_size) == ("open", 1, before.size + 1)
    assert after.place != "another" or context.database.is_shared


async def test_a_mark_that_is_ahead_is_not_passed_over(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    epoch = await epoch_of(context)
    raise_mark(context.settings.data_dir, note_of(epoch, 9, bytes(32)))
    assert (await turn(context, clock)).state == "halted"
    await refused(lambda: resume(context, [], is_nothing_published=True), "a tree of 9 entries was signed", context)


async def test_a_stored_tree_that_is_damaged_is_not_resumed(context: Context, clock: Clock) -> None:
    await add_triggers(context, 600)
    await turn(context, clock)
    await freeze(context)
    sql = "UPDATE tlog_tiles SET data = ? WHERE level = -1 AND n = 0"
    await context.database.write(lambda tx: tx.execute(sql, (b"\x1f\x8b",)))
    await refused(lambda: resume(context, [], is_nothing_published=False), "bundle of entries is damaged", context)


async def test_a_new_epoch_says_what_was_signed_before(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    before = await epoch_of(context)
    raise_mark(context.settings.data_dir, note_of(before, 9, bytes(32)))
    await turn(context, clock)
    await begin(context)
    await add_triggers(context, 2)
    after = await turn(context, clock)
    assert (after.epoch, after.origin, after.state, after.note_size) == (2, f"{NAME}/log/2", "open", 4)
    first = parse_entry((await entries_of(context))[0])
    assert isinstance(first, LogFact)
    assert (first.previous, first.reason) == (previous_epoch(before.origin, 9, bytes(32)), "restored")
    assert await context.database.fetch("SELECT state FROM tlog_epochs WHERE epoch = 1") == [("closed",)]


async def test_an_epoch_that_the_database_has_lost_keeps_its_number(context: Context, clock: Clock) -> None:
    """An older backup comes back into the place of a log whose key was replaced meanwhile."""
    await turn(context, clock)
    kept = await Kept.of(context)
    await rotate(context)
    after = replace_key(context, NEXT_KEY, "")
    await add_triggers(after, 3)
    lost = await turn(after, clock)
    assert (lost.origin, lost.note_size) == (f"{NAME}/log/2", 5)
    mark = (context.settings.data_dir / MARK_FILE).read_bytes()
    await kept.put_back()
    (context.settings.data_dir / MARK_FILE).write_bytes(mark)
    halted = await turn(after, clock)
    assert (halted.epoch, halted.state) == (1, "halted")
    await refused(lambda: resume(after, [], is_nothing_published=True), "`muniment tlog begin` begins the next", after)
    assert (await begin(after)).origin == f"{NAME}/log/3"
    new = await turn(after, clock)
    assert (new.origin, new.state, new.note_size) == (f"{NAME}/log/3", "open", 5)
    first = parse_entry((await entries_of(after))[0])
    assert isinstance(first, LogFact)
    assert first.previous == previous_epoch(lost.origin, 5, lost.root)
    assert (await turn(after, clock)).state == "open"


async def test_no_epoch_is_begun_where_nothing_was_lost(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    await refused(lambda: begin(context), "needs no new epoch", context)
    await freeze(context)
    assert (await begin(context)).epoch == 2


async def test_a_rotation_is_announced_by_the_key_before(context: Context, clock: Clock) -> None:
    await add_triggers(context, 3)
    await turn(context, clock)
    await add_triggers(context, 1, first=4)
    clock.advance(seconds=1)
    new = await rotate(context)
    old = (await look(context)).epochs[1]
    last = (await context.database.fetch("SELECT note FROM tlog_epochs WHERE epoch = 1"))[0][0]
    checkpoint = open_checkpoint(parse_note(last.encode()), parse_verifier_key(old.vkeys[0]))
    assert (old.state, old.size, old.signed_size, checkpoint.size) == ("closed", 6, 6, 6)
    ((entry,),) = await context.database.fetch("SELECT entry FROM tlog_tail WHERE epoch = 1 AND leaf_index = 5")
    assert parse_entry(bytes(entry)) == CloseFact(new.vkey)
    assert new.vkey == keys_of_log(f"{NAME}/log/2", bytes.fromhex(NEXT_KEY))[0].verifier.text
    first = parse_entry((await entries_of(context))[0])
    assert isinstance(first, LogFact)
    assert (first.previous, first.reason) == (previous_epoch(old.origin, 6, checkpoint.root), "rotated")
    assert await rotate(context) == new  # nothing is left to do
    # The service has the secret as its own from now on; the fact that waited is in the new epoch.
    after = replace_key(context, NEXT_KEY, "")
    assert (await turn(after, clock)).note_size == 3
    note = (await epoch_of(after)).note
    assert note is not None
    assert parse_checkpoint(parse_note(note.encode()).text).origin == f"{NAME}/log/2"


def replace_key(context: Context, key: str, next_key: str) -> Context:
    return replace(context, settings=replace(context.settings, tlog_key=key, tlog_key_next=next_key))


@pytest.mark.parametrize("step", ["begin_closing", "turn", "begin_epoch", "take_next_secret"])
async def test_an_interrupted_rotation_goes_on(
    context: Context, clock: Clock, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed before a step has done the steps before it, and no other."""
    await turn(context, clock)
    clock.advance(seconds=1)
    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step], killed)
        with pytest.raises(Killed):
            await rotate(context)
    await add_triggers(context, 1)
    before = await epoch_of(context)
    if step in {"turn", "begin_epoch"}:  # the service runs meanwhile, and adds nothing after the last entry
        assert (await turn(context, clock)).size == before.size == 3
    if step == "turn":
        other = replace_key(context, KEY, "33" * 32)
        await refused(lambda: rotate(other), "another key was announced", context)
    clock.advance(seconds=1)
    new = await rotate(context)
    assert (new.epoch, new.state) == (2, "open")
    sizes = "SELECT epoch, size, note_size, state FROM tlog_epochs ORDER BY epoch"
    assert await context.database.fetch(sizes) == [(1, 3, 3, "closed"), (2, 1, 0, "open")]


class Killed(Exception):
    """The process ended here."""


def killed(*_: object, **__: object) -> None:
    raise Killed


STEPS: dict[str, tuple[object, str]] = {
    "begin_closing": (operating.store, "begin_closing"), "turn": (operating.Integrator, "turn"),
    "begin_epoch": (opening, "begin_epoch"), "take_next_secret": (opening, "take_next_secret"),
}  # fmt: skip


async def test_a_rotation_needs_an_open_log_a_name_and_a_secret(context: Context, clock: Clock) -> None:
    await refused_before(context)
    await turn(context, clock)
    unnamed = replace(context, settings=replace(context.settings, tlog_name=""))
    await refused(lambda: rotate(unnamed), "the setting tlog_name is empty", context)
    await refused(lambda: rotate(replace_key(context, KEY, "")), "MUNIMENT_TLOG_KEY_NEXT", context)
    await freeze(context)
    await refused(lambda: rotate(context), "the log is frozen, and has to be open", context)


async def refused_before(context: Context) -> None:
    for work in (lambda: freeze(context), lambda: rotate(context), lambda: begin(context)):
        with pytest.raises(ValueError, match="the log has not begun"):
            await work()
    assert (await look(context)).epochs == []


async def test_the_state_tells_what_waits_and_what_is_known(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    await add_triggers(context, 2)
    state = await look(context)
    assert (state.waiting, state.key) == ({"functions": 0, "triggers": 2, "deactivations": 0}, "ours")
    assert (state.mark_origin, state.mark_size, state.halt_reason) == (f"{NAME}/log/1", 2, None)
    assert (await look(replace_key(context, NEXT_KEY, ""))).key == "other"
    assert (state.epochs[0].size, state.epochs[0].signed_at) == (2, iso(context))
    raise_mark(context.settings.data_dir, note_of(await epoch_of(context), 9, bytes(32)))
    assert "has signed 9 entries" in str(await look(context))


def iso(context: Context) -> str:
    return iso_time(context.clock.now_ms() // 1000 * 1000)
