"""Reads of one turn of the event loop share a transaction; whoever heard of a commit reads in one begun since."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from words import add, opened

from muniment.errors import DatabaseUnavailable
from muniment.storage.sqlite import SqliteDatabase, connect

COUNT = "SELECT count(*) FROM words"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    async with opened(tmp_path / "test.db") as made:
        yield made


async def counted(database: SqliteDatabase) -> int:
    row = await database.fetch_one(COUNT)
    assert row is not None
    return row[0]


async def test_reads_of_one_turn_share_a_transaction(database: SqliteDatabase) -> None:
    said: list[str] = []
    database._reader.set_trace_callback(said.append)
    await asyncio.gather(database.fetch(COUNT), database.fetch_one(COUNT), database.fetch(COUNT))
    await asyncio.sleep(0)
    assert said == ["BEGIN", COUNT, COUNT, COUNT, "COMMIT"]


async def test_a_turn_later_no_transaction_is_open(database: SqliteDatabase) -> None:
    await database.fetch(COUNT)
    await asyncio.sleep(0)
    assert not database._reader.in_transaction


async def test_who_wrote_reads_it_whatever_others_read_meanwhile(database: SqliteDatabase) -> None:
    seen: list[int] = []
    is_over = False

    async def keep_reading() -> None:
        while not is_over:
            await counted(database)
            await asyncio.sleep(0)

    readers = [asyncio.create_task(keep_reading()) for _ in range(3)]
    for number in range(100):
        await database.write(add(str(number)))
        seen.append(await counted(database))
    is_over = True
    await asyncio.gather(*readers)
    assert seen == list(range(1, 101))


async def test_a_commit_of_another_process_is_seen_a_turn_later(database: SqliteDatabase, tmp_path: Path) -> None:
    assert await counted(database) == 0
    other = connect(tmp_path / "test.db")
    other.execute("INSERT INTO words (word) VALUES ('theirs')")
    other.close()
    await asyncio.sleep(0)
    assert await counted(database) == 1


async def test_a_failed_read_leaves_nothing_open(database: SqliteDatabase) -> None:
    with pytest.raises(DatabaseUnavailable, match="does not answer"):
        await database.fetch("SELECT 1 FROM nothing")
    await asyncio.sleep(0)
    assert not database._reader.in_transaction


async def test_a_database_may_be_closed_in_the_turn_of_a_read(tmp_path: Path) -> None:
    async with opened(tmp_path / "closed.db") as made:
        await made.fetch(COUNT)
    await asyncio.sleep(0)
