"""Reads of one turn of the event loop share a transaction; whoever heard of a commit reads in one begun since."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
import uvloop
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


class Hears(asyncio.Protocol):
    """Reads when it is told something, in the turn in which it is received, and in no task."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self.seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        del data  # that something was received is all
        reading = counted(self._database)
        with pytest.raises(StopIteration) as read:
            reading.send(None)
        self.seen.set_result(read.value.value)


async def hear_of_a_commit(path: Path) -> int:
    """What is read by who was told of another process's commit while a task of the same turn had a view open."""
    ours, theirs = socket.socketpair()
    async with opened(path) as database:
        ours.setblocking(False)
        transport, hears = await asyncio.get_running_loop().create_connection(lambda: Hears(database), sock=ours)
        await asyncio.sleep(0.05)  # it listens

        async def read_while_another_commits() -> None:
            assert await counted(database) == 0
            with closing(connect(path)) as other:
                other.execute("INSERT INTO words (word) VALUES ('theirs')")
            theirs.send(b"committed")

        await asyncio.create_task(read_while_another_commits())
        seen = await asyncio.wait_for(hears.seen, 10)
        assert await counted(database) == 1
        transport.close()
    theirs.close()
    return seen


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_who_hears_of_a_commit_reads_it_at_once(tmp_path: Path, run: Callable[..., int]) -> None:
    assert run(hear_of_a_commit(tmp_path / "test.db")) == 1


async def test_reads_of_what_was_received_share_a_transaction_too(database: SqliteDatabase) -> None:
    said: list[str] = []
    database._reader.set_trace_callback(said.append)

    def read() -> None:
        for _ in range(3):
            with pytest.raises(StopIteration):
                counted(database).send(None)

    asyncio.get_running_loop().call_soon(read)
    await asyncio.sleep(0.01)
    assert said == ["BEGIN", COUNT, COUNT, COUNT, "COMMIT"]
