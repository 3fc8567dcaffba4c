"""SIGKILL before each step of a turn of the integrator, and then a turn of another process; and several at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from tlog_world import KEY, Kept, add_triggers, entries_of, kinds, naive, turn

from conftest import Clock
from mortal_turns import KILLED, NEVER, Turns
from muniment.protocol.log.checkpoints import Checkpoint, open_checkpoint
from muniment.protocol.log.notes import parse_note, parse_verifier_key
from muniment.service.context import Context
from muniment.service.resources.log import store
from muniment.service.resources.log.mark import read_mark
from muniment.service.resources.log.store import Epoch
from muniment.service.running.settings import Settings

# No turn here needs fewer steps than the least, by far; so the test has not stopped looking too early.
STEPS_MIN, STEPS_MAX = 18, 100

pytestmark = pytest.mark.long


@pytest.fixture
def settings(settings: Settings) -> Settings:
    # On SQLite the key is in a file, which the first turn makes.
    key = "" if settings.database_url.startswith("sqlite") else KEY
    return replace(settings, tlog_name="registry.example", tlog_key=key)


@pytest.fixture
def turns() -> Iterator[Turns]:
    started = Turns()
    yield started
    assert "Traceback" not in started.close()


async def signed(context: Context) -> list[Checkpoint]:
    """Every checkpoint that was signed, as the database shows it and as the host has it; each is of the stored tree.

    What is shown is in the mark of the host.
    """
    epoch, mark = await store.newest(context.database), read_mark(context.settings.data_dir)
    marked = mark.checkpoint if mark else None
    if epoch is None:
        assert marked is None
        return []
    shown = checkpoint_of(epoch)
    assert (shown.size if shown else 0) <= (marked.size if marked else 0) <= epoch.size
    found = [each for each in (shown, marked) if each]
    await check_prefixes(context, found)
    return found


def checkpoint_of(epoch: Epoch) -> Checkpoint | None:
    if epoch.note is None:
        return None
    return open_checkpoint(parse_note(epoch.note.encode()), parse_verifier_key(epoch.vkey))


async def check_prefixes(context: Context, checkpoints: list[Checkpoint]) -> None:
    """The stored entries begin with each of the trees."""
    entries = await entries_of(context)
    for each in checkpoints:
        assert each.root == naive(entries[: each.size])


async def check_whole(context: Context, epoch: Epoch, size: int, triggers: int) -> None:
    """The log is open, has each fact once, and shows all of it."""
    assert (epoch.state, epoch.epoch, epoch.size, epoch.note_size) == ("open", 1, size, size), epoch.why
    entries = await entries_of(context)
    assert epoch.root == naive(entries)
    assert len(set(entries)) == len(entries) == size
    assert kinds(entries).count("trigger") == triggers
    assert await context.database.fetch("SELECT sum(count) FROM tlog_runs") == [(triggers,)]


@pytest.mark.parametrize("has_begun", [False, True], ids=["it begins", "it grows"])
async def test_a_turn_that_is_killed_is_ended_by_another_process(
    context: Context, clock: Clock, turns: Turns, *, has_begun: bool
) -> None:
    """The turn fills a bundle and begins the next one; before it, the log has all or nothing of that bundle."""
    await add_triggers(context, 252)
    if has_begun:
        await turn(context, clock)
    await add_triggers(context, 5, first=253)
    clock.advance(seconds=1)
    kept = await Kept.of(context)
    for step in count():
        assert step < STEPS_MAX
        await kept.put_back()
        (status,) = turns.take(context, [step])
        seen = await signed(context)
        after = await turn(context, clock)
        await check_whole(context, after, 1 + 252 + 1 + 5, 257)
        await check_prefixes(context, seen)
        if status == 0:
            assert step > STEPS_MIN
            return
        assert status == KILLED


async def test_processes_that_take_turns_at_once_make_one_tree(context: Context, clock: Clock, turns: Turns) -> None:
    seen = list[Checkpoint]()
    for n in range(3):
        await add_triggers(context, 130, 1 + 130 * n)
        clock.advance(seconds=1)
        assert turns.take(context, [NEVER] * 3, count=3) == [0, 0, 0]
        seen += await signed(context)
    after = await turn(context, clock)
    await check_whole(context, after, 392, 390)
    await check_prefixes(context, seen)
