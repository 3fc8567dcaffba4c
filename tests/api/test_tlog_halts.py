"""What keeps the log from showing two trees: it stops, or another epoch begins, before anything is signed."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import LiteralString

import httpx2
import pytest
from tlog_world import KEY, add_triggers, entries_of, epoch_of, kinds, shown, turn, unsigned

from applications import another_process
from conftest import Clock
from muniment.protocol.log.checkpoints import Checkpoint
from muniment.protocol.log.notes import keys_of_log, sign_note
from muniment.service.app.application import Application
from muniment.service.app.operations import note_log
from muniment.service.context import Context
from muniment.service.resources.log.integrator import Integrator
from muniment.service.resources.log.mark import MARK_FILE, raise_mark, read_mark
from muniment.service.resources.log.opening import KEY_FILE
from muniment.service.running.settings import Settings
from without_server import InProcess


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, tlog_name="registry.example", tlog_key=KEY)


async def sign_elsewhere(context: Context, size: int, root: bytes) -> Checkpoint:
    """Have the mark of this host say that the log had this tree."""
    epoch = await epoch_of(context)
    checkpoint = Checkpoint(epoch.origin, size, root)
    note = sign_note(checkpoint.text, keys_of_log(epoch.origin, bytes.fromhex(KEY)), 1).data.decode()
    raise_mark(context.settings.data_dir, note)
    return checkpoint


async def check_halted(context: Context, clock: Clock, why: str) -> None:
    """The next turn halts the log, which still shows its last checkpoint."""
    before = await epoch_of(context)
    after = await turn(context, clock)
    assert (after.state, after.epoch, after.note) == ("halted", 1, before.note)
    assert why in (after.why or "")


async def test_a_database_that_has_fewer_entries_than_were_signed(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    await sign_elsewhere(context, 9, bytes(32))
    await check_halted(context, clock, "has signed 9 entries, and the database has 2")


async def test_a_database_that_is_elsewhere(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    if context.database.is_shared:
        await context.database.write(lambda tx: tx.execute("UPDATE tlog_epochs SET place = ?", ("another",)))
    else:  # as `restore` leaves a data directory
        (context.settings.data_dir / MARK_FILE).unlink()
    await check_halted(context, clock, "it is not where the log was last open")


async def test_a_tree_that_does_not_begin_with_the_signed_one(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    epoch = await epoch_of(context)
    (context.settings.data_dir / MARK_FILE).write_bytes(b'{"place":"%b"}' % epoch.place.encode())
    await sign_elsewhere(context, 1, bytes(32))
    after = await turn(context, clock)
    assert (after.state, after.note) == ("halted", epoch.note)
    assert after.why == "the stored tree does not begin with the 1 entries that were signed"


async def test_a_host_that_has_signed_for_a_log_that_the_database_does_not_know(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    await context.database.write(lambda tx: tx.execute("UPDATE tlog_epochs SET origin = ?", ("other/log/1",)))
    after = await turn(context, clock)
    assert (after.state, after.why) == (
        "halted", "this host has signed checkpoints of registry.example/log/1, which the database lacks",
    )  # fmt: skip


DAMAGES: dict[str, tuple[LiteralString, object, str]] = {
    "an entry": ("UPDATE tlog_tail SET entry = ? WHERE leaf_index = 257", b"other\n", "has another root"),
    "a lost entry": ("DELETE FROM tlog_tail WHERE leaf_index = 257 AND length(entry) > ?", 0, "lacks the entries 256"),
    "a hash": ("UPDATE tlog_tiles SET data = ? WHERE level = 0", bytes(32 * 256), "does not begin with the 2 entries"),
    "a hash above": ("UPDATE tlog_tiles SET data = ? WHERE level = 1", bytes(32), "has another root"),
    "a bundle": ("UPDATE tlog_tiles SET data = ? WHERE level = -1", gzip.compress(b"\0\0" * 256), "other hashes"),
    "a broken bundle": ("UPDATE tlog_tiles SET data = ? WHERE level = -1", b"\x1f\x8b", "bundle of entries is damaged"),
    "a lost tile": ("DELETE FROM tlog_tiles WHERE level = ?", 0, "the log lacks tile 0/0"),
    "the root": ("UPDATE tlog_epochs SET root = ?", bytes(32), "has another root"),
    "the note": (
        "UPDATE tlog_epochs SET note = ?",
        "a\n1\n" + "A" * 43 + "=\n\n\u2014 a AAAAAAA=\n",
        "has 1 entries, and not 2",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_what_is_damaged_is_not_signed(context: Context, clock: Clock, damage: str) -> None:
    sql, value, why = DAMAGES[damage]
    await turn(context, clock)
    before = await shown(context)
    await add_triggers(context, 260)
    await unsigned(context, clock)
    await context.database.write(lambda tx: tx.execute(sql, (value,)))
    after = await turn(context, clock)
    assert (after.state, after.note_size) == ("halted", before.checkpoint.size)
    assert why in (after.why or "")
    assert await turn(context, clock) == after


async def test_an_older_checkpoint_does_not_lower_the_mark(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    await add_triggers(context, 3)
    old = (await epoch_of(context)).note
    await turn(context, clock)
    assert old
    raise_mark(context.settings.data_dir, old)
    mark = read_mark(context.settings.data_dir)
    assert mark
    assert mark.checkpoint == (await shown(context)).checkpoint
    checkpoint = mark.checkpoint
    assert checkpoint
    with pytest.raises(ValueError, match="this host has signed another tree of 5 leaves"):
        await sign_elsewhere(context, 5, bytes(32))


async def test_a_log_that_begins_later_takes_in_what_is_there(context: Context, clock: Clock) -> None:
    await add_triggers(context, 3)
    after = await turn(context, clock)
    assert (after.epoch, after.origin, after.state, after.size) == (1, "registry.example/log/1", "open", 5)
    assert kinds(await entries_of(context)) == ["log", "trigger", "trigger", "trigger", "taken-over"]


@pytest.mark.parametrize("name", ["", "another.example"])
async def test_without_its_name_the_log_stands_still_and_goes_on_with_it(
    context: Context, clock: Clock, name: str
) -> None:
    before = await turn(context, clock)
    await add_triggers(context, 3)
    other = replace(context, settings=replace(context.settings, tlog_name=name))
    fault = f"has the transparency log registry.example, and the setting tlog_name is {name or 'empty'}"
    with pytest.raises(ValueError, match=fault):
        await turn(other, clock)
    assert fault in str(await note_log(other))
    assert await epoch_of(context) == before
    assert await note_log(context) is None
    assert (await turn(context, clock)).note_size == 5


@pytest.mark.parametrize("path", ["/log", "/log/1/checkpoint", "/log/1/tile/0/000", f"/triggers/0x{'01' * 64}1b/proof"])
async def test_without_a_name_there_is_no_log(context: Context, path: str) -> None:
    unnamed = replace(context, settings=replace(context.settings, tlog_name=""))
    transport = InProcess(Application(unnamed))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get(path)
    assert (response.status_code, "with the setting tlog_name" in response.json()["detail"]) == (404, True)


async def test_without_a_key_of_its_own_a_process_on_sqlite_makes_one_and_one_on_postgresql_never_signs(
    context: Context, clock: Clock
) -> None:
    keyless = replace(context, settings=replace(context.settings, tlog_key=""))
    clock.advance(seconds=1)
    await Integrator(keyless).turn()
    if not context.database.is_shared:
        path = context.settings.data_dir / KEY_FILE
        assert (path.stat().st_mode & 0o777, len(bytes.fromhex(path.read_text()))) == (0o600, 32)
        assert (await shown(keyless)).checkpoint.size == 2
        return
    assert await context.database.fetch("SELECT count(*) FROM tlog_epochs") == [(0,)]
    await turn(context, clock)
    await add_triggers(context, 3)
    after = await turn(keyless, clock)
    assert (after.state, after.size, after.note_size) == ("open", 5, 2)
    assert (await turn(context, clock)).note_size == 5


async def test_a_process_with_another_key_never_signs(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    await add_triggers(context, 3)
    other = replace(context, settings=replace(context.settings, tlog_key="22" * 32))
    after = await turn(other, clock)
    assert (after.state, after.size, after.note_size) == ("open", 5, 2)


async def test_another_process_goes_on_with_the_same_log(context: Context, clock: Clock) -> None:
    await turn(context, clock)
    await add_triggers(context, 3)
    async with another_process(context) as other:
        assert (await turn(other, clock)).note_size == 5
    assert (await turn(context, clock)).state == "open"


@pytest.mark.parametrize("content", [b"", b"{}", b'{"place":"a","note":"b"}', b"\xff"])
async def test_nothing_is_done_beside_a_damaged_mark(context: Context, clock: Clock, content: bytes) -> None:
    before = await turn(context, clock)
    await add_triggers(context, 1)
    (context.settings.data_dir / MARK_FILE).write_bytes(content)
    with pytest.raises(ValueError, match="tlog-mark in the data directory is damaged"):
        await turn(context, clock)
    assert await epoch_of(context) == before


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_nothing_is_signed_with_a_damaged_key_and_the_log_is_not_halted(context: Context, clock: Clock) -> None:
    made = replace(context, settings=replace(context.settings, tlog_key=""))
    await turn(made, clock)
    path = context.settings.data_dir / KEY_FILE
    key = path.read_bytes()
    path.write_bytes(key[:-1])
    await add_triggers(made, 1)
    after = await turn(made, clock)
    assert (after.state, after.size, after.note_size) == ("open", 3, 2)
    path.write_bytes(key)
    assert (await turn(made, clock)).note_size == 3
