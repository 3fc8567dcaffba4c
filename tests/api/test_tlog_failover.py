"""The primary of PostgreSQL is lost: its replica signs nothing before a person has compared what was shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tlog_world import KEY, add_triggers, entries_of, epoch_of, shown, turn

from applications import wait_for_postgres
from conftest import Clock
from limitless import unlimited_settings
from muniment.protocol.log.entries import LogFact, parse_entry, previous_epoch
from muniment.service.app import build_context
from muniment.service.context import Context
from muniment.service.resources.log.operating import begin, resume
from muniment.service.running.settings import Settings
from postgres import Cluster

pytestmark = pytest.mark.long


@asynccontextmanager
async def opened(settings: Settings, clock: Clock) -> AsyncGenerator[Context]:
    made = build_context(settings, now_ms=clock)
    with pytest.MonkeyPatch.context() as patch:
        wait_for_postgres(patch)
        yield made
        await made.outgoing.close()
        await made.outgoing_webhooks.close()
        await made.database.close()


@dataclass(frozen=True)
class Site:
    """A primary and its asynchronous replica, and the settings of a process that uses the primary."""

    primary: Cluster
    replica: Cluster
    settings: Settings

    async def catch_up(self) -> None:
        """Wait until the replica has all that the primary has."""
        ((position,),) = await self.primary.execute("SELECT pg_current_wal_flush_lsn()::text")
        received = f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{position}'"
        while not await self.replica.execute(received):
            await asyncio.sleep(0.01)

    async def cut(self) -> None:
        """Cut the link: the primary goes on, and the replica gets nothing more."""
        await self.catch_up()
        await self.replica.execute("ALTER SYSTEM SET primary_conninfo = ''")
        await self.replica.execute("SELECT pg_reload_conf()")
        while await self.replica.execute("SELECT 1 FROM pg_stat_wal_receiver"):
            await asyncio.sleep(0.01)

    async def fail_over(self) -> Settings:
        """Lose the primary; the settings of the same process, which now uses its replica."""
        await asyncio.to_thread(self.primary.kill)
        await asyncio.to_thread(self.replica.promote)
        return replace(self.settings, database_url=self.replica.url("site"))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    async with AsyncExitStack() as stack:
        primary = stack.enter_context(Cluster())
        url = await primary.create_database("site")
        settings = unlimited_settings(
            data_dir=tmp_path / "data", database_url=url, log_level="error",
            tlog_name="registry.example", tlog_key=KEY,
        )  # fmt: skip
        yield Site(primary, stack.enter_context(primary.replica()), settings)


@pytest.mark.parametrize("sees_place", [True, False], ids=["it sees the timeline", "it does not"])
async def test_a_replica_that_lacks_signed_entries(site: Site, clock: Clock, *, sees_place: bool) -> None:
    async with opened(site.settings, clock) as context:
        await context.database.migrate()
        await add_triggers(context, 3)
        await turn(context, clock)
        if not sees_place:  # as with a role that may not call the functions that tell it
            await context.database.write(lambda tx: tx.execute("UPDATE tlog_epochs SET place = ''"))
        await site.cut()
        await add_triggers(context, 2, first=4)
        await turn(context, clock)
        lost = (await shown(context)).checkpoint
    assert lost.size == 7
    async with opened(await site.fail_over(), clock) as context:
        await add_triggers(context, 4, first=6)
        after = await turn(context, clock)
        why = "it is not where the log was last open" if sees_place else "signed 7 entries, and the database has 5"
        assert (after.state, after.size, after.note_size) == ("halted", 5, 5)
        assert why in (after.why or "")
        with pytest.raises(ValueError, match="a tree of 7 entries was signed"):
            await resume(context, [], is_nothing_published=True)
        await begin(context)
        after = await turn(context, clock)
        assert (after.epoch, after.state, after.note_size) == (2, "open", 1 + 4 + 1)
        first = parse_entry((await entries_of(context))[0])
        assert isinstance(first, LogFact)
        assert first.previous == previous_epoch(lost.origin, lost.size, lost.root)


async def test_a_replica_that_lacks_nothing(site: Site, clock: Clock) -> None:
    async with opened(site.settings, clock) as context:
        await context.database.migrate()
        await add_triggers(context, 3)
        before = await turn(context, clock)
        await site.catch_up()
    async with opened(await site.fail_over(), clock) as context:
        halted = await turn(context, clock)
        assert (halted.state, halted.note) == ("halted", before.note)
        await resume(context, [], is_nothing_published=False)  # the mark of this host says what was shown
        await add_triggers(context, 1, first=4)
        after = await turn(context, clock)
        assert (after.epoch, after.state, after.note_size) == (1, "open", 6)
        assert after.place == (await epoch_of(context)).place != before.place
