"""Group commit: many writers share one fsync, and each has its own outcome."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from words import TABLE, Work, add, add_then_raise, commit_held, connection_of, nothing, opened, words, write_lock_held

from muniment.protocol.errors import DatabaseUnavailable, TriggerDeactivated
from muniment.service.storage.database import DATABASE_LIMITS, Transaction
from muniment.service.storage.sqlite.engine import SqliteDatabase

GROUP_MAX = DATABASE_LIMITS.writes_per_group_max


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    async with opened(tmp_path / "test.db") as made:
        yield made


async def in_one_group(database: SqliteDatabase, *works: Work) -> list[int | BaseException]:
    """The outcomes of work that waited together for the writer."""
    with commit_held(database) as begun:
        first = asyncio.create_task(database.write(nothing))
        await begun()  # the writer has taken it, alone
        rest = [asyncio.create_task(database.write(work)) for work in works]
        await asyncio.sleep(0.05)
    return (await asyncio.gather(first, *rest, return_exceptions=True))[1:]


@pytest.mark.parametrize(("writers", "commits"), [(1, 1), (100, 1), (GROUP_MAX, 1), (GROUP_MAX + 1, 2)])
async def test_writers_that_wait_together_share_a_commit(database: SqliteDatabase, writers: int, commits: int) -> None:
    said: list[str] = []
    connection_of(database).set_trace_callback(said.append)
    outcomes = await in_one_group(database, *(add(str(number)) for number in range(writers)))
    assert outcomes == list(range(1, writers + 1))
    assert said.count("COMMIT") == 1 + commits  # the one of the gate, and theirs
    assert said.count("BEGIN IMMEDIATE") == 1 + commits


async def test_the_sequence_is_the_order_in_which_work_came(database: SqliteDatabase) -> None:
    expected = [f"word {number}" for number in range(50)]
    await in_one_group(database, *(add(word) for word in expected))
    assert await words(database) == expected


@pytest.mark.parametrize(
    "error",
    [TriggerDeactivated("no"), sqlite3.IntegrityError("no"), RuntimeError("no"), ZeroDivisionError()],
    ids=lambda error: type(error).__name__,
)
async def test_a_failing_work_gets_its_error_and_the_others_are_kept(
    database: SqliteDatabase, error: BaseException
) -> None:
    outcomes = await in_one_group(database, add("before"), add_then_raise("gone", error), add("after"))
    assert outcomes[1] is error
    assert await words(database) == ["before", "after"]
    assert isinstance(outcomes[0], int)
    assert isinstance(outcomes[2], int)


async def test_a_broken_constraint_is_the_outcome_of_its_writer_alone(database: SqliteDatabase) -> None:
    outcomes = await in_one_group(database, add("same"), add("same"), add("other"))
    assert isinstance(outcomes[1], sqlite3.IntegrityError)
    assert await words(database) == ["same", "other"]


async def test_a_work_sees_the_changes_of_earlier_works_in_its_group(database: SqliteDatabase) -> None:
    async def count(tx: Transaction) -> int:
        return len(await tx.fetch("SELECT 1 FROM words"))

    assert await in_one_group(database, add("a"), count, add("b"), count) == [1, 1, 2, 2]


async def test_a_caller_that_left_changes_nothing_for_the_others(database: SqliteDatabase) -> None:
    with commit_held(database) as begun:
        first = asyncio.create_task(database.write(nothing))
        await begun()
        leaving, staying = (asyncio.create_task(database.write(add(word))) for word in ("left", "stayed"))
        await asyncio.sleep(0.05)
        leaving.cancel()
    await first
    await staying
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert "stayed" in await words(database)


async def test_work_that_awaits_anything_else_is_refused_and_undone(database: SqliteDatabase) -> None:
    async def sleepy(tx: Transaction) -> int:
        await add("sleepy")(tx)
        await asyncio.sleep(0)
        return 1

    outcomes = await in_one_group(database, add("before"), sleepy, add("after"))
    assert isinstance(outcomes[1], RuntimeError)
    assert await words(database) == ["before", "after"]


async def test_closing_commits_the_queue_and_takes_no_more_writes(tmp_path: Path, database: SqliteDatabase) -> None:
    other = SqliteDatabase(tmp_path / "test.db")
    with commit_held(other) as begun:
        tasks = [asyncio.create_task(other.write(nothing))]
        await begun()
        tasks += [asyncio.create_task(other.write(work)) for work in map(add, "abc")]
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(other.close())
        while not other._writer._closing:
            await asyncio.sleep(0.001)
        with pytest.raises(DatabaseUnavailable):
            await other.write(add("late"))
    await closing
    await asyncio.gather(*tasks)
    assert await words(database) == ["a", "b", "c"]


async def test_a_failing_commit_keeps_nothing_and_fails_every_caller(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr("muniment.service.storage.sqlite.writer.Writer._make_durable", fail)
        # The second one's refusal may rest on the first one's row, which is gone: it is not told either.
        outcomes = await in_one_group(database, add("a"), add_then_raise("b", TriggerDeactivated("a is there")))
    assert [type(each) for each in outcomes] == [DatabaseUnavailable, DatabaseUnavailable]
    assert await words(database) == []
    await database.write(add("later"))
    assert await words(database) == ["later"]


class FailsToRollBack:
    """A connection that cannot undo a transaction the first times."""

    def __init__(self, connection: sqlite3.Connection, times: int) -> None:
        self._connection = connection
        self._times = times

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if sql == "ROLLBACK" and self._times:
            self._times -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, parameters)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


async def test_changes_that_could_not_be_undone_are_not_committed(database: SqliteDatabase) -> None:
    vars(database._writer)["_connection"] = FailsToRollBack(connection_of(database), 2)
    outcomes = await in_one_group(database, add("a"), add_then_raise("b", TriggerDeactivated("no")))
    assert [type(each) for each in outcomes] == [DatabaseUnavailable, DatabaseUnavailable]
    assert await words(database) == []
    with pytest.raises(DatabaseUnavailable):
        await database.write(add("while it is being undone"))
    await database.write(add("later"))
    assert await words(database) == ["later"]


async def test_an_error_of_the_writer_itself_does_not_end_it(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("muniment.service.storage.sqlite.writer.Writer._make_durable", fail)
        with pytest.raises(DatabaseUnavailable):
            await database.write(add("a"))
    await database.write(add("b"))
    assert await words(database) == ["b"]


async def test_work_of_one_turn_of_the_loop_is_one_group(database: SqliteDatabase) -> None:
    said: list[str] = []
    connection_of(database).set_trace_callback(said.append)
    await asyncio.gather(*(database.write(add(str(number))) for number in range(50)))
    assert said.count("COMMIT") == 1


@pytest.mark.parametrize(("writes", "undone"), [(False, 0), (True, 1)], ids=["has only read", "has written"])
async def test_works_run_again_one_by_one_only_if_a_failing_work_has_written(
    database: SqliteDatabase, *, writes: bool, undone: int
) -> None:
    async def refuse(tx: Transaction) -> int:
        await tx.fetch("SELECT 1 FROM words")
        if writes:  # no row, yet the statement may have left something
            await tx.execute("INSERT INTO words (word) VALUES ('before') ON CONFLICT DO NOTHING")
        raise TriggerDeactivated("no")

    said: list[str] = []
    connection_of(database).set_trace_callback(said.append)
    outcomes = await in_one_group(database, add("before"), refuse, add("after"))
    assert isinstance(outcomes[1], TriggerDeactivated)
    assert await words(database) == ["before", "after"]
    assert (said.count("ROLLBACK"), said.count("ROLLBACK TO job")) == (undone, undone)
    assert await database.fetch("SELECT seq FROM sqlite_sequence") == [(2,)]


async def test_statements_run_on_the_event_loop_unless_another_process_is_writing(
    database: SqliteDatabase, tmp_path: Path
) -> None:
    async def where(_: Transaction) -> int:
        return threading.get_ident()

    with write_lock_held(tmp_path / "test.db"):
        waiting = asyncio.create_task(database.write(where))
        await asyncio.sleep(0.1)
        assert not waiting.done()  # and the loop went on
    assert await waiting != threading.get_ident()
    assert await database.write(where) == threading.get_ident()


async def test_a_work_failing_in_the_thread_gets_its_error_and_the_others_are_kept(
    database: SqliteDatabase, tmp_path: Path
) -> None:
    with write_lock_held(tmp_path / "test.db"):
        works = (add("before"), add_then_raise("gone", TriggerDeactivated("no")), add("after"))
        waiting = [asyncio.create_task(database.write(work)) for work in works]
        await asyncio.sleep(0.1)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[1], TriggerDeactivated)
    assert await words(database) == ["before", "after"]


async def test_jobs_of_a_closed_loop_are_done(tmp_path: Path) -> None:
    made = SqliteDatabase(tmp_path / "other.db")

    async def leave_one_unfinished() -> None:
        with commit_held(made) as begun:
            first = asyncio.create_task(made.write(create))
            await begun()
            second = asyncio.create_task(made.write(add("left")))
            await asyncio.sleep(0.05)
            first.cancel()
            second.cancel()

    async def create(tx: Transaction) -> int:
        return await tx.execute(TABLE)

    await asyncio.to_thread(asyncio.run, leave_one_unfinished())
    await asyncio.sleep(0.1)
    await made.write(add("later"))
    assert await words(made) == ["left", "later"]
    await made.close()


async def test_a_loop_that_ends_before_it_starts_a_group_leaves_that_to_another(database: SqliteDatabase) -> None:
    async def submit_and_end() -> None:
        writing = database.write(add("left"))
        writing.send(None)  # as far as to wait for its outcome
        writing.close()
        asyncio.get_running_loop().stop()  # before it calls anything else: a slow machine would start the group

    def run() -> None:
        loop = asyncio.new_event_loop()
        submitted = loop.create_task(submit_and_end())
        loop.run_forever()
        submitted.result()
        loop.close()

    await asyncio.to_thread(run)
    assert await words(database) == []
    await asyncio.wait_for(database.write(add("later")), 60)
    assert await words(database) == ["left", "later"]
