"""The way to number rows can change while processes write and readers follow."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from writes_triggers import INSERT

from answers import cursor_at
from muniment.errors import DatabaseUnavailable
from muniment.storage.database import Transaction
from muniment.storage.postgres.admin.numbering import Numbering, Way
from muniment.storage.postgres.engine import PostgresDatabase
from muniment.triggers.listing import TriggerQuery, search
from postgres import Cluster

WRITER = Path(__file__).parent / "writes_triggers.py"
COUNT = 1_500
WAYS: list[Way] = ["sequencer", "transactions"]
HIGHEST = "SELECT coalesce(max(seq), 0) FROM triggers"


@pytest.fixture
def url(cluster: Cluster, tmp_path: Path) -> str:
    """A database of its own: the way belongs to the database."""

    async def migrated() -> str:
        made = await cluster.create_database(f"numbering-{tmp_path.name}")
        database = PostgresDatabase(made)
        await database.migrate()
        await database.close()
        return made

    return asyncio.run(migrated())


@pytest.fixture
async def database(url: str) -> AsyncIterator[PostgresDatabase]:
    made = PostgresDatabase(url)
    yield made
    await made.close()


@pytest.fixture
async def session(url: str) -> AsyncIterator[Any]:
    """A connection of somebody else, who knows nothing of the way: a process of the release before."""
    driver: Any = asyncpg
    made = await driver.connect(url)
    yield made
    await made.close()


def values(number: int) -> tuple[object, ...]:
    return (number.to_bytes(65), bytes(20), number.to_bytes(32), bytes(32), "Mimic", 0, 1, f"{number}")


async def add(database: PostgresDatabase, *numbers: int) -> None:
    """Each in a transaction of several statements."""

    async def work(tx: Transaction, number: int) -> None:
        await tx.execute(INSERT, values(number))
        await tx.fetch("SELECT 1 WHERE ?::bigint > 0", (number,))

    await asyncio.gather(*(database.write(partial(work, number=each)) for each in numbers))


async def records(database: PostgresDatabase, after: int = 0) -> tuple[list[int], int]:
    """The records that a follower finds after a cursor, and its next cursor."""
    page = await search(database, TriggerQuery(sort=1, limit=100, cursor=cursor_at("triggers", after)), 1)
    return [int(each) for each in page.records], page.last_seq or after


async def insert_raw(session: Any, number: int) -> int:
    """Add a row as another release would; its sequence number."""
    sql = INSERT.replace("ON CONFLICT DO NOTHING", "RETURNING seq")
    for place in range(1, 9):
        sql = sql.replace("?", f"${place}", 1)
    return await session.fetchval(sql, *values(number))


async def test_a_new_registry_numbers_by_transactions(url: str) -> None:
    assert await Numbering(url).way() == "transactions"
    assert not await Numbering(url).use("transactions")


async def test_each_change_numbers_new_rows_above_all_rows_so_far(
    database: PostgresDatabase, session: Any, url: str
) -> None:
    cursor, highest = 0, 0
    for number in range(1, 7):
        await add(database, 10 * number, 10 * number + 1)
        await insert_raw(session, 10 * number + 2)
        found, cursor = await records(database, cursor)
        assert set(found) == {10 * number, 10 * number + 1, 10 * number + 2}
        lowest = await session.fetchval("SELECT min(seq) FROM triggers WHERE seq > $1", highest)
        assert lowest > highest
        highest = await session.fetchval(HIGHEST)
        assert await Numbering(url).use(WAYS[number % 2 - 1])
        assert await Numbering(url).way() == WAYS[number % 2 - 1]


async def test_the_sequencer_begins_above_numbers_of_transactions_that_were_undone(url: str, session: Any) -> None:
    undone = session.transaction()
    await undone.start()
    given = await insert_raw(session, 1)
    await undone.rollback()
    await Numbering(url).use("sequencer")
    assert await insert_raw(session, 2) > given


async def test_a_transaction_that_began_before_the_change_is_numbered_above_all_rows_after_it(
    database: PostgresDatabase, session: Any, url: str
) -> None:
    """Its number is older than those of transactions that have ended."""
    await Numbering(url).use("sequencer")
    async with session.transaction():
        await session.execute("SELECT pg_current_xact_id()")
        await add(database, 1, 2)
        highest = await database.fetch(HIGHEST)
        await Numbering(url).use("transactions")
        assert await insert_raw(session, 3) > highest[0][0]


@pytest.mark.long
async def test_a_follower_sees_every_row_once_while_the_way_changes_under_load(
    database: PostgresDatabase, url: str
) -> None:
    numbering, changes = Numbering(url), 0
    commands = [[sys.executable, WRITER, url, str(first), str(COUNT)] for first in (0, COUNT)]
    writers = [subprocess.Popen(command) for command in commands]

    async def change_often() -> int:
        count = 0
        while any(writer.poll() is None for writer in writers):
            count += await numbering.use(WAYS[count % 2])
            await asyncio.sleep(0.1)
        return count

    changing = asyncio.create_task(change_often())
    seen, cursor = list[int](), 0
    while True:
        is_last = changing.done()
        found, cursor = await records(database, cursor)
        seen += found
        if is_last and not found:
            break
    changes = await changing
    assert [writer.returncode for writer in writers] == [0, 0]
    assert changes >= 4
    assert len(seen) == 2 * COUNT
    assert sorted(seen) == list(range(2 * COUNT))


@pytest.mark.parametrize("way", WAYS)
async def test_the_change_waits_for_a_running_writer(url: str, session: Any, way: Way) -> None:
    await Numbering(url).use(WAYS[way == "sequencer"])
    running = session.transaction()
    await running.start()
    seq = await insert_raw(session, 1)
    with pytest.raises(DatabaseUnavailable, match="in use all the time"):
        await Numbering(url).use(way, seconds_max=0)
    assert await Numbering(url).way() != way
    changing = asyncio.create_task(Numbering(url).use(way))
    await asyncio.sleep(0.2)
    assert not changing.done()
    await running.commit()
    assert await changing
    assert await insert_raw(session, 2) > seq


async def test_with_the_sequencer_a_writer_waits_and_readers_do_not(
    database: PostgresDatabase, session: Any, url: str
) -> None:
    await Numbering(url).use("sequencer")
    await add(database, 1)
    running = session.transaction()
    await running.start()
    await insert_raw(session, 2)
    adding = asyncio.create_task(add(database, 3))
    await asyncio.sleep(0.2)
    assert not adding.done()
    assert (await records(database))[0] == [1]
    await running.commit()
    await adding
    assert (await records(database))[0] == [1, 2, 3]


async def test_with_the_sequencer_an_unrelated_transaction_delays_no_row(
    database: PostgresDatabase, session: Any, url: str
) -> None:
    await Numbering(url).use("sequencer")
    async with session.transaction():
        await session.execute("SELECT pg_current_xact_id()")
        await add(database, 1)
        assert (await records(database))[0] == [1]


async def test_the_sequencer_numbers_more_than_65536_rows_in_one_transaction(url: str, session: Any) -> None:
    await Numbering(url).use("sequencer")
    await session.execute(
        """INSERT INTO audit_entries (at_ms, operator, action, subject)
           SELECT 1, 'a', 'b', sha256('') FROM generate_series(1, 66000)"""
    )
    assert await session.fetchval("SELECT count(DISTINCT seq) FROM audit_entries") == 66_000


@pytest.mark.long
async def test_writers_of_the_same_rows_do_not_wait_for_each_other_in_a_circle(
    url: str, session: Any, cluster: Cluster
) -> None:
    """One locks two rows in turn and numbers others in between; the other process locks the second row first."""
    await Numbering(url).use("sequencer")
    databases = [PostgresDatabase(url) for _ in range(2)]
    await add(databases[0], 1, 2)

    async def work(tx: Transaction, number: int, locked: int) -> None:
        locking = f"SELECT 1 FROM triggers WHERE sig = ?{tx.for_update}"
        await tx.fetch(locking, (locked.to_bytes(65),))
        await tx.fetch("SELECT pg_sleep(0.001), ?::bigint", (number,))
        await tx.execute(INSERT, values(number))

    writes = [
        databases[which].write(partial(work, number=100 * which + number, locked=locked), order=bytes([locked]))
        for number in range(10, 90)
        for which, locked in ((0, number % 2 + 1), (1, 2))
    ]
    await asyncio.gather(*writes)
    name = url.rpartition("/")[2]
    assert await session.fetchval("SELECT count(*) FROM triggers") == 2 + len(writes)
    await asyncio.sleep(1.1)  # the server counts with a delay of up to a second
    for each in databases:
        await each.close()
    deadlocks = await cluster.execute(f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{name}'")
    assert deadlocks == [(0,)]


async def test_a_registry_that_was_restored_numbers_above_its_rows_with_the_sequencer(
    database: PostgresDatabase, session: Any, url: str
) -> None:
    await Numbering(url).use("sequencer")
    await add(database, 1)
    await session.execute("UPDATE triggers SET seq = seq + 1000000")  # rows of a dump, without its counter
    assert await database.migrate() == []
    await add(database, 2)
    assert (await records(database))[0] == [1, 2]


async def test_an_unused_registry_stays_unused_when_the_way_changes(url: str, session: Any) -> None:
    """A copy into it goes on in the epoch of its source."""
    for way in WAYS:
        await Numbering(url).use(way)
        assert not await session.fetchval("SELECT is_called FROM row_numbers")


async def test_a_role_that_does_not_own_the_functions_is_refused(session: Any, url: str) -> None:
    await session.execute("CREATE ROLE reader LOGIN")
    await session.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO reader")
    await session.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO reader")
    try:
        with pytest.raises(DatabaseUnavailable, match="InsufficientPrivilegeError: permission denied"):
            await Numbering(url.replace("//muniment@", "//reader@")).use("sequencer")
        assert await Numbering(url).way() == "transactions"
    finally:
        await session.execute("DROP OWNED BY reader")
        await session.execute("DROP ROLE reader")
