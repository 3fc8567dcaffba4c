"""Works for the writer: they add words to one table, read them, or fail."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits, Transaction
from muniment.service.storage.sqlite.commits import LOG_BYTES
from muniment.service.storage.sqlite.connection import BUSY_TIMEOUT_MS, connect
from muniment.service.storage.sqlite.engine import SqliteDatabase

TABLE = "CREATE TABLE words (seq INTEGER PRIMARY KEY AUTOINCREMENT, word TEXT NOT NULL UNIQUE) STRICT"
Work = Callable[[Transaction], Awaitable[int]]

_HOLD_THE_WRITE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("COMMIT")
"""


@asynccontextmanager
async def opened(
    path: Path,
    limits: DatabaseLimits = DATABASE_LIMITS,
    *,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    log_bytes: int = LOG_BYTES,
) -> AsyncGenerator[SqliteDatabase]:
    """A new database with one small table, without migrations."""
    database = SqliteDatabase(path, limits, busy_timeout_ms=busy_timeout_ms, log_bytes=log_bytes)
    with closing(connect(path)) as connection:  # not by the writer, which is busy for a moment after an outcome
        connection.execute(TABLE)
    yield database
    await database.close()


def add(word: str) -> Work:
    """Insert `word`; its sequence number."""

    async def work(tx: Transaction) -> int:
        await tx.execute("INSERT INTO words (word) VALUES (?)", (word,))
        row = await tx.fetch_one("SELECT last_insert_rowid()")
        assert row is not None
        return row[0]

    return work


def add_then_raise(word: str, error: BaseException) -> Work:
    """Insert `word`, then fail."""

    async def work(tx: Transaction) -> int:
        await add(word)(tx)
        raise error

    return work


async def nothing(_: Transaction) -> int:
    """Take part in a commit."""
    return 0


@contextmanager
def commit_held(database: SqliteDatabase) -> Generator[Callable[[], Awaitable[None]]]:
    """Commits wait until the end of the block, so that others gather after the first, which `await begun()` awaits."""
    gate, is_begun, writer = threading.Event(), threading.Event(), database._writer
    original = writer._make_durable

    def wait() -> None:
        is_begun.set()
        assert gate.wait(60)
        original()

    async def begun() -> None:
        async with asyncio.timeout(60):
            while not is_begun.is_set():
                await asyncio.sleep(0.001)

    vars(writer)["_make_durable"] = wait
    try:
        yield begun
    finally:
        gate.set()
        del vars(writer)["_make_durable"]


async def words(database: SqliteDatabase) -> list[str]:
    """What is stored, in the order of the sequence."""
    return [word for (word,) in await database.fetch("SELECT word FROM words ORDER BY seq")]


def connection_of(database: SqliteDatabase) -> sqlite3.Connection:
    """The connection that writes."""
    return database._writer._connection


@contextmanager
def write_lock_held(path: Path) -> Generator[None]:
    """Another process holds the write lock."""
    command = [sys.executable, "-c", _HOLD_THE_WRITE_LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"held\n"
            yield
        finally:
            holder.stdin.close()
            holder.wait(60)
