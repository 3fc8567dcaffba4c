"""Reads share a transaction until the process commits; a read after an acknowledged commit sees that commit."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from itertools import groupby
from pathlib import Path

import pytest
import uvloop
from words import TABLE, add, connection_of, opened

from muniment.protocol.errors import DatabaseUnavailable, NotReady
from muniment.service.storage.sqlite import engine, view
from muniment.service.storage.sqlite.connection import connect
from muniment.service.storage.sqlite.engine import SqliteDatabase
from muniment.service.storage.sqlite.view import VIEW_SECONDS_MAX

COUNT = "SELECT count(*) FROM words"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    async with opened(tmp_path / "test.db") as made:
        yield made


@asynccontextmanager
async def another(path: Path) -> AsyncGenerator[SqliteDatabase]:
    """The same file once more, as another process opens it."""
    database = SqliteDatabase(path)
    yield database
    await database.close()


def insert(path: Path, word: str) -> None:
    """Commit as another program does."""
    with closing(connect(path)) as connection:
        connection.execute("INSERT INTO words (word) VALUES (?)", (word,))


async def counted(database: SqliteDatabase) -> int:
    row = await database.fetch_one(COUNT)
    assert row is not None
    return row[0]


async def test_reads_share_a_transaction_over_many_turns_until_a_commit(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "VIEW_SECONDS_MAX", 60)
    said: list[str] = []
    database._view._connection.set_trace_callback(said.append)
    for _ in range(2):
        await asyncio.gather(database.fetch(COUNT), database.fetch_one(COUNT))
        await asyncio.sleep(0)
    assert said == ["BEGIN", COUNT, COUNT, COUNT, COUNT]
    await database.write(add("new"))
    await database.fetch(COUNT)
    assert said[5:] == ["COMMIT", "BEGIN", COUNT]


async def test_without_reads_the_transaction_ends_by_itself(database: SqliteDatabase) -> None:
    await database.fetch(COUNT)
    async with asyncio.timeout(60):
        while database._view._connection.in_transaction:
            await asyncio.sleep(0.01)


def test_a_view_that_a_loop_left_open_ends_on_the_next_one(tmp_path: Path) -> None:
    async def read() -> None:
        await counted(database)

    async def read_and_wait() -> bool:
        await read()
        await asyncio.sleep(3 * VIEW_SECONDS_MAX)
        return database._view._connection.in_transaction

    async def make() -> SqliteDatabase:
        made = SqliteDatabase(tmp_path / "test.db")
        await made.write(lambda tx: tx.execute(TABLE))
        return made

    database = asyncio.run(make())
    asyncio.run(read())
    time.sleep(VIEW_SECONDS_MAX)
    assert not asyncio.run(read_and_wait())
    asyncio.run(database.close())


async def test_a_writer_reads_its_write_while_others_read(database: SqliteDatabase) -> None:
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


async def test_a_commit_of_a_command_is_missed_for_no_longer_than_a_view_lasts(
    database: SqliteDatabase, tmp_path: Path
) -> None:
    """Not even a loop that is not given the time to end the view makes it last."""
    begun = time.monotonic() + 1_000

    def counted_at(seconds: float) -> int:
        return database._view.connection(begun + seconds).execute(COUNT).fetchone()[0]

    assert counted_at(0) == 0
    insert(tmp_path / "test.db", "theirs")
    assert counted_at(VIEW_SECONDS_MAX * 0.99) == 0
    assert counted_at(VIEW_SECONDS_MAX) == 1


async def test_a_command_that_waits_until_it_is_seen_is_seen_by_the_next_read(
    database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (view, engine):
        monkeypatch.setattr(module, "VIEW_SECONDS_MAX", 0.005)
    async with another(tmp_path / "test.db") as command:
        await command.until_seen()  # it has committed nothing
        for number in range(1, 101):
            assert await counted(database) == number - 1  # now there is a view
            await command.write(add(f"{number}"))
            await command.until_seen()
            assert await counted(database) == number


async def test_a_read_sees_what_a_long_read_has_seen(
    database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "VIEW_SECONDS_MAX", 60)
    assert await counted(database) == 0
    insert(tmp_path / "test.db", "theirs")
    assert await counted(database) == 0
    assert await database.fetch_slow(COUNT) == [(1,)]
    assert await counted(database) == 1


async def test_our_own_migrations_are_visible_immediately(tmp_path: Path) -> None:
    made = SqliteDatabase(tmp_path / "new.db")
    with pytest.raises(NotReady):
        await made.check()
    await made.migrate()
    await made.check()
    await made.close()


@pytest.mark.parametrize("commands", [0, 1])
async def test_the_log_begins_anew_though_a_service_and_a_command_never_stop_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: int
) -> None:
    monkeypatch.setattr("muniment.service.storage.sqlite.commits._VIEWS_MS", 10_000)
    log_bytes_max = 400_000
    is_over = False

    async def keep_reading(database: SqliteDatabase) -> None:
        while not is_over:
            await counted(database)
            await asyncio.sleep(0)

    path = tmp_path / "test.db"
    async with opened(path, log_bytes=log_bytes_max) as database, AsyncExitStack() as stack:
        others = [await stack.enter_async_context(another(path)) for _ in range(commands)]
        readers = [asyncio.create_task(keep_reading(each)) for each in (database, *others)]
        for number in range(60):  # some forty kilobytes each, with the index
            await database.write(add(f"{number}" + "x" * 20_000))
        log_bytes = (tmp_path / "test.db-wal").stat().st_size
        is_over = True
        await asyncio.gather(*readers)
    assert log_bytes < 2 * log_bytes_max  # of two million that were written


@pytest.mark.long
async def test_a_long_reader_is_waited_for_once_as_long_as_the_log_grows_by_its_length(tmp_path: Path) -> None:
    async with opened(tmp_path / "test.db", log_bytes=400_000) as database:
        said: list[str] = []
        connection_of(database).set_trace_callback(said.append)
        with closing(connect(tmp_path / "test.db", read_only=True)) as backup:
            backup.execute("BEGIN")
            backup.execute(COUNT).fetchall()
            for number in range(60):  # some forty kilobytes each, with the index
                await database.write(add(f"{number}" + "x" * 15_000))
            tries = sum(what.startswith("PRAGMA wal_checkpoint") for what, _ in groupby(said))
        assert 1 <= tries <= 10
        for number in range(60, 120):
            await database.write(add(f"{number}" + "x" * 15_000))
        assert (tmp_path / "test.db-wal").stat().st_size < 800_000


async def test_a_failed_read_leaves_the_view_to_others(database: SqliteDatabase) -> None:
    with pytest.raises(DatabaseUnavailable, match="does not answer"):
        await database.fetch("SELECT 1 FROM nothing")
    assert await counted(database) == 0


async def test_a_database_may_be_closed_while_it_has_a_view(tmp_path: Path) -> None:
    async with opened(tmp_path / "closed.db") as made:
        await made.fetch(COUNT)
    await asyncio.sleep(2 * VIEW_SECONDS_MAX)


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
    """What is read by who was told of a commit while a task of the same turn had a view open."""
    ours, theirs = socket.socketpair()
    async with opened(path) as database:
        ours.setblocking(False)
        transport, hears = await asyncio.get_running_loop().create_connection(lambda: Hears(database), sock=ours)
        await asyncio.sleep(0.05)  # it listens

        async def read_and_commit() -> None:
            assert await counted(database) == 0
            await database.write(add("new"))
            theirs.send(b"committed")

        await asyncio.create_task(read_and_commit())
        seen = await asyncio.wait_for(hears.seen, 60)
        assert await counted(database) == 1
        transport.close()
    theirs.close()
    return seen


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_reader_that_hears_of_a_commit_reads_it_immediately(tmp_path: Path, run: Callable[..., int]) -> None:
    assert run(hear_of_a_commit(tmp_path / "test.db")) == 1
