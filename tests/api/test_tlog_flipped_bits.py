"""One bit of the stored log is flipped while new entries wait for their signature: no other tree is signed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import LiteralString, TypeAlias

import pytest
from tlog_world import KEY, Kept, add_triggers, entries_of, epoch_of, turn, unsigned

from conftest import Clock
from muniment.protocol.log.checkpoints import Checkpoint
from muniment.service.context import Context
from muniment.service.resources.log.mark import read_mark
from muniment.service.resources.log.operating import begin
from muniment.service.running.settings import Settings

# 302 entries are shown, and 602 are stored: two full bundles, the second of which has entries that wait.
SHOWN, STORED = 302, 602
SECOND_BUNDLE, LAST_ENTRY = "WHERE level = -1 AND n = 1", "WHERE leaf_index = 601"
Place: TypeAlias = tuple[LiteralString, LiteralString, LiteralString]
HALTED: dict[Place, str] = {
    ("tlog_epochs", "epoch", ""): "lacks the entries 512 to 602",
    ("tlog_epochs", "origin", ""): "which the database lacks",
    ("tlog_epochs", "place", ""): "it is not where the log was last open",
    ("tlog_epochs", "size", ""): "lacks the entries 512 to 603",
    ("tlog_epochs", "root", ""): "has another root",
    ("tlog_epochs", "note", ""): "",
    ("tlog_epochs", "note_size", ""): "the stored checkpoint has 302 entries, and not 303",
    ("tlog_tail", "entry", "WHERE leaf_index = 512"): "has another root",
    ("tlog_tail", "entry", LAST_ENTRY): "has another root",
    ("tlog_tail", "epoch", LAST_ENTRY): "lacks the entries 512 to 602",
    ("tlog_tiles", "data", SECOND_BUNDLE): "",
    ("tlog_tiles", "epoch", SECOND_BUNDLE): "the log lacks tile -1/1",
    ("tlog_tiles", "data", "WHERE level = 0 AND n = 1"): "",
    ("tlog_tiles", "data", "WHERE level = 1"): "the stored tree",
    ("tlog_cursors", "epoch", "WHERE kind = 1"): "does not continue with the functions",
    ("tlog_cursors", "kind", "WHERE kind = 1"): "does not continue with the functions",
    ("tlog_cursors", "after", "WHERE kind = 1"): "does not continue with the functions",
    ("tlog_cursors", "after", "WHERE kind = 3"): "does not continue with the deactivations",
    ("tlog_runs", "kind", "WHERE first_index = 302"): "does not continue with the deactivations",
}
# They need no person: the log is not signed, and goes on when its row is repaired.
UNSIGNED: list[Place] = [("tlog_epochs", "vkeys", ""), ("tlog_epochs", "state", "")]
# Nothing is computed from them, or nothing more: what is signed later is right.
COUNTED: tuple[LiteralString, ...] = ("first_seq", "first_index", "count")
HARMLESS: list[Place] = [
    ("tlog_cursors", "backfill_until", "WHERE kind = 2"),
    ("tlog_epochs", "backfilled", ""), ("tlog_epochs", "opened_at_ms", ""),
    ("tlog_tiles", "data", "WHERE level = -1 AND n = 0"), ("tlog_tiles", "data", "WHERE level = 0 AND n = 0"),
    *[("tlog_runs", column, "WHERE first_index = 302") for column in COUNTED],
]  # fmt: skip


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, tlog_name="registry.example", tlog_key=KEY)


def flipped(value: int | str | bytes, at: int) -> int | str | bytes:
    """The value with its lowest bit flipped; that of the byte `at` in a text or in bytes."""
    if isinstance(value, int):
        return value ^ 1
    data = bytearray(value.encode("latin-1", "replace") if isinstance(value, str) else value)
    data[at % len(data)] ^= 1
    return data.decode("latin-1") if isinstance(value, str) else bytes(data)


async def flip(context: Context, table: LiteralString, column: LiteralString, where: LiteralString, at: int) -> None:
    ((value,),) = await context.database.fetch(f"SELECT {column} FROM {table} {where}")
    sql = f"UPDATE {table} SET {column} = ? {where}"
    await context.database.write(lambda tx: tx.execute(sql, (flipped(value, at),)))


async def each_flip(context: Context, places: Iterable[Place]) -> list[tuple[Place, int]]:
    """The places to flip, each with the bytes to choose: three of a text or of bytes, and none of a number."""
    found: list[tuple[Place, int]] = []
    for place in places:
        table, column, where = place
        ((value,),) = await context.database.fetch(f"SELECT {column} FROM {table} {where}")
        found += [(place, at) for at in ((0,) if isinstance(value, int) else (0, 31, -1))]
    return found


def marked(context: Context) -> Checkpoint | None:
    mark = read_mark(context.settings.data_dir)
    return mark.checkpoint if mark else None


@pytest.fixture
async def kept(context: Context, clock: Clock) -> Kept:
    """A log that has stored entries, and was killed before it signed them."""
    await add_triggers(context, 300)
    assert (await turn(context, clock)).note_size == SHOWN
    await add_triggers(context, 300, first=301)
    assert (await unsigned(context, clock)).size == STORED
    return await Kept.of(context)


@pytest.mark.parametrize("waiting", [0, 3])
async def test_what_would_be_signed_next(context: Context, clock: Clock, kept: Kept, waiting: int) -> None:
    """Facts that wait for their entries make no difference: no entry is added to what is damaged."""
    await add_triggers(context, waiting, first=601)
    before, signed = await epoch_of(context), marked(context)
    flips, harmless = [await each_flip(context, places) for places in (HALTED, UNSIGNED)]
    for place, at in flips if not waiting else [(place, 0) for place in HALTED]:
        await kept.put_back()
        await flip(context, *place, at)
        damaged = await epoch_of(context)
        after = await turn(context, clock)
        assert (after.state, after.note, after.note_size) == ("halted", damaged.note, damaged.note_size), place
        assert HALTED[place] in (after.why or "")
        assert await turn(context, clock) == after
        assert marked(context) == signed
    for place, at in harmless:
        await kept.put_back()
        await flip(context, *place, at)
        assert (await turn(context, clock)).note == before.note, place
        assert marked(context) == signed


async def test_what_is_signed_already_or_not_at_all(context: Context, clock: Clock, kept: Kept) -> None:
    await add_triggers(context, 3, first=601)
    right = (await turn(context, clock)).root
    for table, column, where in HARMLESS:
        await kept.put_back()
        await flip(context, table, column, where, 0)
        after = await turn(context, clock)
        assert (after.state, after.root, after.note_size) == ("open", right, STORED + 3), (table, column)


async def test_the_next_epoch_begins_after_every_damage(context: Context, clock: Clock, kept: Kept) -> None:
    """It has every trigger that no entry of the signed part before it tells."""
    wanted = {f"0x{n.to_bytes(32).hex() * 2}1b" for n in range(SHOWN - 1, 601)}
    for place in HALTED:
        await kept.put_back()
        await flip(context, *place, 0)
        assert (await turn(context, clock)).state == "halted"
        await begin(context)
        after = await turn(context, clock)
        assert (after.state, after.note_size) == ("open", after.size), place
        sigs = {entry.decode().split("\n")[1] for entry in await entries_of(context)}
        assert sigs >= wanted, (place, len(wanted - sigs))
