"""Whatever is raised, and wherever: each caller gets an outcome, and the writer goes on or says that it cannot.

The patches here raise where no client can make the writer fail: at the end of its thread, at a failing fsync.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import structlog
from words import Work, add, commit_held, connection_of, nothing, opened, words, write_lock_held

from muniment.protocol.errors import DatabaseUnavailable, NotReady, Overloaded, TriggerDeactivated
from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits, Transaction
from muniment.service.storage.sqlite import commits as sqlite_commits, writer as sqlite_writer
from muniment.service.storage.sqlite.engine import SqliteDatabase
from muniment.service.storage.sqlite.jobs import Group
from muniment.service.storage.sqlite.writer import Writer

# A writer that lost a job would keep its caller waiting for ever.
ANSWER_SECONDS_MAX = 120


class Halt(BaseException):
    """What no `except Exception` catches."""


def halt(*_: object) -> NoReturn:
    raise Halt


def halt_after_the_first(patch: pytest.MonkeyPatch, ending: Callable[[], object] = lambda: None) -> None:
    """End the thread after the first group from now on; it may still be busy with what made the database.

    It calls `ending` before.
    """
    finish, call_next = Writer._finish, Writer._call_next
    finished: list[Group] = []

    def finish_and_note(writer: Writer, group: Group) -> None:
        finish(writer, group)
        finished.append(group)

    def call_next_or_halt(writer: Writer) -> None:
        if not finished:
            return call_next(writer)
        ending()
        raise Halt

    patch.setattr(Writer, "_finish", finish_and_note)
    patch.setattr(Writer, "_call_next", call_next_or_halt)


@pytest.fixture
def broken_log(tmp_path: Path) -> None:
    """The log goes to a file that is closed, as when standard error was closed before the service started."""
    with (tmp_path / "log").open("w") as closed:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(closed))


@pytest.fixture
def limits() -> DatabaseLimits:
    """The limits of `database`; a test that needs small ones gives its own as a parameter."""
    return DATABASE_LIMITS


@pytest.fixture
async def database(tmp_path: Path, limits: DatabaseLimits) -> AsyncIterator[SqliteDatabase]:
    async with opened(tmp_path / "test.db", limits) as made:
        yield made


async def outcomes(database: SqliteDatabase, *works: Work) -> list[Any]:
    """What came of work that was handed in together."""
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        return await asyncio.gather(*(database.write(work) for work in works), return_exceptions=True)


def fill_up(database: SqliteDatabase) -> None:
    """No page can be added any more: SQLite says that the disk is full."""
    connection = connection_of(database)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")


@pytest.mark.usefixtures("broken_log")
async def test_a_failing_log_keeps_no_caller_waiting(database: SqliteDatabase) -> None:
    fill_up(database)
    told = await outcomes(database, add("a"), add("b" * 10_000))
    assert [str(each) for each in told] == ["the database cannot write now: the disk is full (SQLITE_FULL)"] * 2
    connection_of(database).execute("PRAGMA max_page_count=1000000")
    await outcomes(database, add("later"))
    assert await words(database) == ["later"]


@pytest.mark.usefixtures("broken_log")
async def test_a_log_that_fails_in_the_thread_does_not_end_it(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_make_durable", halt)
        (told,) = await outcomes(database, add("a"))
    assert isinstance(told, DatabaseUnavailable)
    await outcomes(database, add("later"))
    assert await words(database) == ["later"]


async def test_an_error_on_the_loop_is_the_outcome_of_the_group(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context.get("exception")))
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_commits.Commits, "begin", halt)
        told = await outcomes(database, add("a"), add("b"))
    assert [type(each) for each in told] == [DatabaseUnavailable] * 2
    assert [type(each) for each in raised] == [Halt]
    await outcomes(database, add("later"))
    assert await words(database) == ["later"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the end of the thread is the test
@pytest.mark.parametrize("limits", [DatabaseLimits(writes_per_group_max=1)], ids=[""])
@pytest.mark.parametrize("step", ["_finish", "_call_next"])
async def test_a_writer_whose_thread_ends_refuses_all_callers_and_is_not_ready(
    database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await database.migrate()
    await database.check()
    with monkeypatch.context() as patch:
        if step == "_finish":
            patch.setattr(Writer, step, halt)
        else:
            halt_after_the_first(patch)
        told = await outcomes(database, add("a"), add("b"), add("c"))
    assert [type(each) for each in told[1:]] == [DatabaseUnavailable] * 2
    kept = [] if step == "_finish" else ["a"]
    assert isinstance(told[0], int) is bool(kept)
    assert await words(database) == kept
    (later,) = await outcomes(database, add("later"))
    assert isinstance(later, DatabaseUnavailable)
    with pytest.raises(NotReady, match="no longer has a writer"):
        await database.check()
    async with asyncio.timeout(ANSWER_SECONDS_MAX):  # the lock of the file was let go
        other = SqliteDatabase(tmp_path / "test.db")
        await other.write(add("theirs"))
        await other.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the end of the thread is the test
async def test_a_group_that_runs_while_the_thread_ends_is_also_refused_and_undone(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_ending, ends = threading.Event(), threading.Event()

    def ending() -> None:
        is_ending.set()
        ends.wait(60)

    with monkeypatch.context() as patch:
        halt_after_the_first(patch, ending)
        assert await outcomes(database, add("a")) == [1]
        assert await asyncio.to_thread(is_ending.wait, 60)
        telling = asyncio.create_task(outcomes(database, add("b")))
        await asyncio.sleep(0.05)  # it runs on the event loop, as far as it comes without the thread
        ends.set()
        (told,) = await telling
    assert isinstance(told, DatabaseUnavailable)
    assert await words(database) == ["a"]
    assert not connection_of(database).in_transaction


@pytest.fixture
def skip(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the time of the writers forward by so many seconds."""
    skipped: list[float] = []
    moved = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(skipped), sleep=time.sleep)
    monkeypatch.setattr(sqlite_writer, "time", moved)
    return skipped.append


async def test_a_write_that_waited_too_long_is_refused_and_not_done(
    database: SqliteDatabase, skip: Callable[[float], None]
) -> None:
    with commit_held(database) as begun:
        first = asyncio.create_task(database.write(add("first")))
        await begun()
        late = asyncio.create_task(database.write(add("late")))
        await asyncio.sleep(0)
        skip(DATABASE_LIMITS.write_wait_seconds_max + 1)
    with pytest.raises(DatabaseUnavailable, match="too busy"):
        await asyncio.wait_for(late, ANSWER_SECONDS_MAX)
    await first
    await outcomes(database, add("later"))
    assert await words(database) == ["first", "later"]


async def test_closing_does_not_wait_for_writes_that_waited_too_long(
    tmp_path: Path, database: SqliteDatabase, skip: Callable[[float], None]
) -> None:
    other = SqliteDatabase(tmp_path / "test.db")
    with commit_held(other) as begun:
        writing = [asyncio.create_task(other.write(nothing))]
        await begun()
        writing.append(asyncio.create_task(other.write(add("late"))))
        closing = asyncio.create_task(other.close())
        while not other._writer._closing:
            await asyncio.sleep(0.01)
        skip(DATABASE_LIMITS.write_wait_seconds_max + 1)
    await asyncio.wait_for(closing, ANSWER_SECONDS_MAX)
    told = await asyncio.gather(*writing, return_exceptions=True)
    assert [type(each) for each in told] == [int, DatabaseUnavailable]
    assert await words(database) == []


@pytest.mark.parametrize("limits", [DatabaseLimits(writes_waiting_max=2)], ids=[""])
async def test_writes_beyond_the_queue_limit_are_refused_immediately(database: SqliteDatabase) -> None:
    with commit_held(database) as begun:
        first = asyncio.create_task(database.write(add("first")))
        await begun()
        waiting = [asyncio.create_task(database.write(add(word))) for word in ("a", "b")]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="too many"):
            await database.write(add("c"))
        waiting.append(asyncio.create_task(database.write(add("urgent"), urgent=True)))
        await asyncio.sleep(0)
    await asyncio.gather(first, *waiting)
    assert await words(database) == ["first", "a", "b", "urgent"]


async def test_all_callers_that_wait_for_a_lasting_lock_are_refused_in_time(tmp_path: Path) -> None:
    limits = DatabaseLimits(write_wait_seconds_max=0.3, writes_per_group_max=1, writes_late_seconds_max=60)
    async with opened(tmp_path / "test.db"):
        pass
    database = SqliteDatabase(tmp_path / "test.db", limits, busy_timeout_ms=200)
    with write_lock_held(tmp_path / "test.db"):
        began = time.monotonic()
        told = await outcomes(database, *(add(str(number)) for number in range(900)))
        assert time.monotonic() - began < 60  # one after the other would take three minutes
    assert {type(each) for each in told} == {DatabaseUnavailable}
    assert await words(database) == []
    await database.close()


@pytest.mark.long
@pytest.mark.parametrize("error", [TriggerDeactivated("no"), MemoryError(), sqlite3.IntegrityError("no")])
async def test_work_that_ended_the_transaction_is_a_failure_for_all_of_it(
    database: SqliteDatabase, error: Exception
) -> None:
    async def end_it(tx: Transaction) -> int:
        await tx.fetch("ROLLBACK")  # as SQLite does by itself when memory is not enough
        raise error

    told = await outcomes(database, add("before"), end_it, add("after"))
    assert [type(each) for each in told] == [DatabaseUnavailable] * 3
    assert await words(database) == []
    await outcomes(database, add("later"))
    assert await words(database) == ["later"]


async def test_a_caller_that_leaves_at_any_turn_fails_no_other_caller(database: SqliteDatabase) -> None:
    for turns in range(12):
        leaving = asyncio.create_task(database.write(add(f"left {turns}")))
        staying = asyncio.create_task(database.write(add(f"stayed {turns}")))
        for _ in range(turns):
            await asyncio.sleep(0)
        leaving.cancel()
        assert isinstance(await asyncio.wait_for(staying, ANSWER_SECONDS_MAX), int)
    assert {f"stayed {turns}" for turns in range(12)} <= set(await words(database))
