"""The SQLite engine without its writer: settings of connections, slow reads, and a database that does not answer."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import LiteralString

import pytest
from words import add, connection_of, opened, words, write_lock_held

from each_row import each_row
from muniment.protocol.errors import AnotherRevision, DatabaseUnavailable, DeadlineExceeded
from muniment.service.storage import open_database
from muniment.service.storage.database import DatabaseLimits
from muniment.service.storage.sqlite.connection import use_wal
from muniment.service.storage.sqlite.engine import SLOW_READERS, SqliteDatabase
from muniment.service.storage.sqlite.revision import refuse_another_revision

# A machine that is busy with other things may be late, but not always. Where it is wrong, each attempt is late.
ATTEMPTS = 4
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
FULL = 2  # https://sqlite.org/pragma.html#pragma_synchronous


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    async with opened(tmp_path / "test.db") as made:
        yield made


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


async def test_the_writing_connection_flushes_every_commit(database: SqliteDatabase) -> None:
    connection = connection_of(database)
    assert pragma(connection, "synchronous") == FULL
    assert pragma(connection, "journal_mode") == "wal"
    assert pragma(connection, "foreign_keys") == 1
    assert pragma(connection, "busy_timeout") == 0  # the event loop never waits for the lock; the thread does


@pytest.mark.parametrize(("name", "value"), [("synchronous", FULL), ("journal_mode", "wal"), ("foreign_keys", 1)])
async def test_every_connection_is_made_in_one_way(
    database: SqliteDatabase, name: LiteralString, value: object
) -> None:
    sql = f"PRAGMA {name}"
    assert await database.fetch(sql) == [(value,)]
    assert await database.fetch_slow(sql) == [(value,)]
    assert await database.write(lambda tx: tx.fetch(sql)) == [(value,)]


class LockedAtFirst:
    """A connection whose file another process turns to write-ahead logging just now: SQLite does not wait for it."""

    def __init__(self, code: int) -> None:
        self._code = code
        self.tries = 0

    def execute(self, _: str) -> LockedAtFirst:
        self.tries += 1
        if self.tries < 3:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = self._code
            raise error
        return self

    def fetchone(self) -> tuple[str]:
        return ("wal",)


@each_row("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY])
def test_two_processes_may_open_a_new_file_together(code: int) -> None:
    connection = LockedAtFirst(code)
    use_wal(connection)  # pyright: ignore[reportArgumentType] - it acts as one
    assert connection.tries == 3


def test_a_new_file_that_stays_locked_or_fails_is_not_tried_for_ever() -> None:
    with pytest.raises(sqlite3.OperationalError):
        use_wal(LockedAtFirst(sqlite3.SQLITE_IOERR))  # pyright: ignore[reportArgumentType] - it acts as one
    with pytest.raises(sqlite3.OperationalError):
        use_wal(LockedAtFirst(sqlite3.SQLITE_BUSY), busy_timeout_ms=-1)  # pyright: ignore[reportArgumentType] - it acts as one


@pytest.mark.parametrize("method", ["fetch", "fetch_one", "fetch_slow"])
async def test_reads_cannot_write(database: SqliteDatabase, method: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="READONLY"):
        await getattr(database, method)("INSERT INTO words (word) VALUES ('x')")


async def test_a_relative_path_is_inside_the_data_directory(tmp_path: Path) -> None:
    await open_database("sqlite:///deep/er.db", data_dir=tmp_path / "data").close()
    await open_database(f"sqlite:///{tmp_path}/absolute.db", data_dir=tmp_path / "data").close()
    assert (tmp_path / "data" / "deep" / "er.db").exists()
    assert (tmp_path / "absolute.db").exists()


@pytest.mark.timed
async def test_a_slow_read_ends_at_its_deadline_and_blocks_no_other_read(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "test.db", DatabaseLimits(slow_read_seconds_max=1.0))

    async def longest_turn() -> float:
        started = time.monotonic()
        slow = asyncio.create_task(database.fetch_slow(ENDLESS))
        longest = 0.0
        while not slow.done():
            turn = time.monotonic()
            await database.fetch("SELECT 1")
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - turn)
        with pytest.raises(DeadlineExceeded):
            await slow
        assert 1.0 <= time.monotonic() - started < 60
        return longest

    assert min([await longest_turn() for _ in range(ATTEMPTS)]) < 0.8
    await database.close()


@pytest.mark.timed
async def test_waiting_for_a_reader_counts_towards_the_deadline(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "test.db", DatabaseLimits(slow_read_seconds_max=0.5))

    async def seconds() -> float:
        started = time.monotonic()
        reads = [database.fetch_slow(ENDLESS) for _ in range(10 * SLOW_READERS)]
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
        assert {type(each) for each in outcomes} == {DeadlineExceeded}
        return time.monotonic() - started

    assert min([await seconds() for _ in range(ATTEMPTS)]) < 4
    await database.close()


async def test_a_slow_read_answers_like_a_quick_one(database: SqliteDatabase) -> None:
    await database.write(add("a"))
    sql = "SELECT seq, word FROM words WHERE word = ?"
    assert await database.fetch_slow(sql, ("a",)) == await database.fetch(sql, ("a",)) == [(1, "a")]


async def test_a_lock_held_by_another_process_is_waited_for(database: SqliteDatabase, tmp_path: Path) -> None:
    with write_lock_held(tmp_path / "test.db"):
        waiting = asyncio.create_task(database.write(add("patient")))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert await words(database) == []
    await waiting
    assert await words(database) == ["patient"]


async def test_a_lock_held_too_long_is_a_refusal_and_then_all_is_well(tmp_path: Path, database: SqliteDatabase) -> None:
    impatient = SqliteDatabase(tmp_path / "test.db", busy_timeout_ms=50)
    with write_lock_held(tmp_path / "test.db"):
        with pytest.raises(DatabaseUnavailable, match="SQLITE_BUSY"):
            await impatient.write(add("a"))
        assert await words(database) == []
    await impatient.write(add("b"))
    await impatient.until_seen()
    await impatient.close()
    assert await words(database) == ["b"]


async def test_examining_an_open_file_keeps_its_locks(tmp_path: Path, database: SqliteDatabase) -> None:
    await database.write(add("a"))
    refuse_another_revision(tmp_path / "test.db")
    with write_lock_held(tmp_path / "test.db"):  # at its end, SQLite deletes the log unless another process has a lock
        pass
    await database.write(add("b"))
    assert await words(database) == ["a", "b"]


async def test_a_closed_file_is_examined_again(tmp_path: Path, database: SqliteDatabase) -> None:
    for _ in range(2):
        await SqliteDatabase(tmp_path / "test.db").close()
    for _ in range(2):
        await database.close()
    with closing(sqlite3.connect(tmp_path / "test.db")) as connection:
        connection.execute("CREATE TABLE schema_migrations (name TEXT, sha256 TEXT)")
        connection.execute("INSERT INTO schema_migrations VALUES ('0001_initial.sql', 'of another revision')")
        connection.commit()
    with pytest.raises(AnotherRevision):
        SqliteDatabase(tmp_path / "test.db")


@pytest.mark.parametrize(
    ("spoil", "mend", "name"),
    [
        ("query_only=ON", "query_only=OFF", "SQLITE_READONLY"),
        ("max_page_count=1", "max_page_count=1000000", "SQLITE_FULL"),
    ],
    ids=["read-only", "full disk"],
)
async def test_a_database_that_cannot_write_refuses_and_recovers(
    database: SqliteDatabase, spoil: str, mend: str, name: str
) -> None:
    connection_of(database).execute(f"PRAGMA {spoil}")
    long_word = "x" * 100_000
    with pytest.raises(DatabaseUnavailable, match=name):
        await database.write(add(long_word))
    assert await words(database) == []
    connection_of(database).execute(f"PRAGMA {mend}")
    await database.write(add(long_word))
    assert await words(database) == [long_word]


def _is_a_directory(path: Path) -> None:
    path.mkdir()


def _is_below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_bytes(b"")


def _is_something_else(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to have a header of one" * 100)


def _is_locked(path: Path) -> None:
    """In the way databases were before write-ahead logging."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE t (a)")
    connection.execute("BEGIN EXCLUSIVE")
    _held.append(connection)


_held: list[sqlite3.Connection] = []


@pytest.mark.parametrize("spoil", [_is_a_directory, _is_below_a_file, _is_something_else, _is_locked])
async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    path = tmp_path / "folder" / "test.db"
    path.parent.mkdir()
    spoil(path)
    try:
        with pytest.raises(DatabaseUnavailable, match="cannot open the database"):
            SqliteDatabase(path, busy_timeout_ms=50)
    finally:
        while _held:
            _held.pop().close()


async def test_every_method_says_so_when_the_table_is_not_there(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "empty.db")
    calls: list[Awaitable[object]] = [
        database.fetch("SELECT * FROM words"), database.fetch_one("SELECT * FROM words"),
        database.fetch_slow("SELECT * FROM words"), database.write(add("x")),
    ]  # fmt: skip
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in outcomes} == {DatabaseUnavailable}
    await database.close()


async def test_an_overwritten_database_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    database = SqliteDatabase(path)
    await database.write(lambda tx: tx.execute("CREATE TABLE users (name TEXT)"))
    await database.close()
    damaged = path.read_bytes()[:4096] + b"\xa5" * (path.stat().st_size - 4096)
    path.write_bytes(damaged)
    opened = SqliteDatabase(path)
    with pytest.raises(DatabaseUnavailable):
        await opened.fetch("SELECT * FROM users")
    with pytest.raises(DatabaseUnavailable):
        await opened.write(lambda tx: tx.fetch("SELECT * FROM users"))
    await opened.close()
