"""Who follows a listing by its cursors misses nothing and sees nothing twice, whatever processes write meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from answers import cursor_at
from muniment.service.resources.triggers.listing import TriggerQuery, search
from muniment.service.storage.postgres.engine import PostgresDatabase

WRITER = Path(__file__).parent / "writes_triggers.py"
COUNT = 1_500


async def follow(database: PostgresDatabase, writers: list[subprocess.Popen[bytes]]) -> list[str]:
    """All records in the order in which a reader meets them, read while `writers` write."""
    seen: list[str] = []
    last = 0
    while True:
        are_done = all(writer.poll() is not None for writer in writers)
        page = await search(database, TriggerQuery(sort=1, limit=100, cursor=cursor_at("triggers", last)), lambda: 1)
        seen += page.records
        if page.last_seq is not None:
            assert page.last_seq > last
            last = page.last_seq
        elif are_done:
            return seen


@pytest.mark.long
async def test_a_reader_after_two_writing_processes_sees_every_row_once(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)
    commands = [[sys.executable, WRITER, postgres_url, str(first), str(COUNT)] for first in (0, COUNT)]
    writers = [subprocess.Popen(command) for command in commands]
    seen = await follow(database, writers)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert sorted(map(int, seen)) == list(range(2 * COUNT))
    await database.close()


@pytest.mark.parametrize("sort", [1, -1])
async def test_a_row_above_a_running_writer_is_listed_and_not_yet_followed(postgres_url: str, sort: int) -> None:
    database = PostgresDatabase(postgres_url)
    driver = asyncpg
    running = await driver.connect(postgres_url)
    transaction = running.transaction()
    await transaction.start()
    await running.execute("SELECT pg_current_xact_id()")
    writer = subprocess.Popen([sys.executable, WRITER, postgres_url, "1", "1"])
    assert writer.wait() == 0
    query = TriggerQuery(sort=1 if sort == 1 else -1)
    assert (await search(database, query, lambda: 1)).records == ([] if sort == 1 else ["1"])
    await transaction.commit()
    assert (await search(database, query, lambda: 1)).records == ["1"]
    await running.close()
    await database.close()


@pytest.mark.long
async def test_rows_of_a_restored_dump_are_followed_and_new_ones_come_after_them(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)
    assert subprocess.run([sys.executable, WRITER, postgres_url, "1", "2"], check=False).returncode == 0
    # In the cluster of the dump a million transactions more had been counted.
    await database.write(lambda tx: tx.execute("UPDATE triggers SET seq = seq + (1000000::bigint << 16)"))
    assert await database.migrate() == []
    assert subprocess.run([sys.executable, WRITER, postgres_url, "3", "1"], check=False).returncode == 0
    page = await search(database, TriggerQuery(sort=1), lambda: 1)
    assert sorted(page.records[:2]) == ["1", "2"]
    assert page.records[2:] == ["3"]
    await database.close()
