"""On PostgreSQL rows that works add last are a transaction by themselves; other works begin one and commit it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from muniment.protocol.errors import DatabaseUnavailable, TriggerNotFound
from muniment.service.storage.database import Transaction
from muniment.service.storage.postgres import transaction as postgres_transaction
from muniment.service.storage.postgres.driver_errors import is_refusal
from muniment.service.storage.postgres.engine import PostgresDatabase

ADD = "INSERT INTO users (address, name, created_at_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
COUNT = "SELECT count(*) FROM users"
USE = "INSERT INTO used_nonces (address, nonce_window, slot) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
NAME = "SELECT name FROM users WHERE address = ?"


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    made = PostgresDatabase(postgres_url)
    yield made
    await made.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first word of every statement that goes to the server."""
    words: list[str] = []
    driver: Any = asyncpg.Connection
    for method in ("fetch", "execute"):
        original = getattr(driver, method)

        def watched(self: Any, sql: str, *values: object, _original: Any = original, **options: Any) -> Any:
            if "set_config" not in sql and "backend_pid" not in sql:  # the settings, and the look for a pooler
                words.append(sql.split(maxsplit=1)[0])
            return _original(self, sql, *values, **options)

        monkeypatch.setattr(driver, method, watched)
    return words


def address(number: int) -> bytes:
    return number.to_bytes(20)


async def add(transaction: Transaction, number: int, name: str = "") -> str:
    """Read, and add a row last; the name in the row."""
    await transaction.fetch(COUNT)
    if await transaction.add_last(ADD, (address(number), name, 1)):
        return name
    row = await transaction.fetch_one(NAME, (address(number),))
    assert row is not None
    return row[0]


async def add_all(database: PostgresDatabase, *named: tuple[int, str]) -> list[Any]:
    writes = [database.write(lambda tx, number=number, name=name: add(tx, number, name)) for number, name in named]
    return await asyncio.gather(*writes, return_exceptions=True)


async def names(database: PostgresDatabase) -> list[str]:
    return [name for (name,) in await database.fetch("SELECT name FROM users ORDER BY address")]


@pytest.mark.parametrize("count", [1, 20])
async def test_rows_added_last_are_one_statement_without_begin_and_commit(
    database: PostgresDatabase, sent: list[str], count: int
) -> None:
    named = [(number, f"user {number}") for number in range(count)]
    assert await add_all(database, *named) == [name for _, name in named]
    assert sent == ["SELECT", "INSERT"]
    assert await names(database) == [name for _, name in named]


async def test_a_work_whose_row_was_there_runs_again_in_a_transaction(
    database: PostgresDatabase, sent: list[str]
) -> None:
    assert await add_all(database, (2, "first")) == ["first"]
    sent.clear()
    assert await add_all(database, (1, "a"), (2, "second"), (3, "b")) == ["a", "first", "b"]
    # The new rows are committed by the first INSERT; the other work runs again.
    assert sent == ["SELECT", "INSERT", "SELECT", "BEGIN", "INSERT", "SELECT", "COMMIT"]


async def test_of_rows_with_one_key_one_goes_in(database: PostgresDatabase) -> None:
    outcomes = await add_all(database, *((7, f"{number}") for number in range(20)), (8, "other"))
    assert set(outcomes[:20]) == {(await names(database))[0]}
    assert outcomes[20] == "other"


async def test_a_row_that_is_not_said_to_be_the_last_is_in_a_transaction(
    database: PostgresDatabase, sent: list[str]
) -> None:
    async def add_two(transaction: Transaction, number: int, *, fails: bool = False) -> None:
        await transaction.fetch(COUNT)
        await transaction.execute(ADD, (address(number), "one", 1))
        await transaction.execute(ADD, (address(number + 100), "another", 1))
        if fails:
            raise TriggerNotFound("gone")

    with pytest.raises(TriggerNotFound):
        await database.write(lambda tx: add_two(tx, 1, fails=True))
    assert await names(database) == []
    sent.clear()
    await database.write(lambda tx: add_two(tx, 1))
    assert sent == ["SELECT", "BEGIN", "INSERT", "INSERT", "COMMIT"]
    assert await names(database) == ["one", "another"]


async def test_a_work_that_raises_after_a_row_leaves_nothing(database: PostgresDatabase) -> None:
    async def refused(transaction: Transaction) -> None:
        await transaction.fetch(COUNT)
        await transaction.execute(ADD, (address(2), "refused", 1))
        raise TriggerNotFound("gone")

    writes: list[Awaitable[Any]] = [database.write(lambda tx: add(tx, 1, "a")), database.write(refused)]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert outcomes[0] == "a"
    assert isinstance(outcomes[1], TriggerNotFound)
    assert await names(database) == ["a"]


async def test_a_row_that_the_server_refuses_fails_alone(database: PostgresDatabase) -> None:
    async def add_raw(transaction: Transaction, raw: object) -> bool:
        await transaction.fetch(COUNT)
        return await transaction.add_last(ADD, (raw, "", 1))

    writes = [database.write(lambda tx, raw=raw: add_raw(tx, raw)) for raw in (address(1), b"short", address(2))]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(each) for each in outcomes] == [bool, asyncpg.CheckViolationError, bool]
    with pytest.raises(asyncpg.DataError):  # the driver does not even send it
        await database.write(lambda tx: add_raw(tx, 1))


async def test_other_work_of_the_group_has_its_own_outcome(database: PostgresDatabase) -> None:
    async def rename(transaction: Transaction) -> int:
        return await transaction.execute("UPDATE users SET name = 'new' WHERE address = ?", (address(1),))

    await add_all(database, (1, "old"))
    writes: list[Awaitable[Any]] = [database.write(rename), database.write(lambda tx: add(tx, 2, "b"))]
    assert await asyncio.gather(*writes) == [1, "b"]
    assert await names(database) == ["new", "b"]


async def test_a_row_added_last_after_a_change_is_in_the_transaction_of_that_change(
    database: PostgresDatabase, sent: list[str]
) -> None:
    async def change_and_add(transaction: Transaction) -> str:
        await transaction.fetch(COUNT)
        await transaction.execute(USE, (address(1), 1, 1))
        return await add(transaction, 1, "a")

    assert await database.write(change_and_add) == "a"
    assert sent == ["SELECT", "BEGIN", "INSERT", "SELECT", "INSERT", "COMMIT"]


@pytest.mark.parametrize("changes_before", [False, True])
async def test_a_work_that_goes_on_after_its_last_row_is_an_error(
    database: PostgresDatabase, *, changes_before: bool
) -> None:
    async def go_on(transaction: Transaction) -> None:
        if changes_before:
            await transaction.execute(USE, (address(1), 1, 1))
        await add(transaction, 1, "a")
        await transaction.execute("UPDATE users SET name = 'b'")

    with pytest.raises(RuntimeError, match="sends a statement after"):
        await database.write(go_on)
    # The row by itself was committed by then; in a transaction it is undone.
    assert await names(database) == ([] if changes_before else ["a"])


async def test_rows_of_two_tables_share_a_transaction(database: PostgresDatabase, sent: list[str]) -> None:
    async def use(transaction: Transaction) -> bool:
        await transaction.fetch(COUNT)
        return await transaction.add_last(USE, (address(1), 1, 1))

    writes: list[Awaitable[Any]] = [database.write(lambda tx: add(tx, 1, "a")), database.write(use)]
    assert await asyncio.gather(*writes) == ["a", True]
    assert sent == ["SELECT", "BEGIN", "INSERT", "INSERT", "COMMIT"]


async def test_a_connection_lost_with_the_row_is_reported_and_not_repeated(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(ending: Callable[[], Awaitable[object]]) -> object:
        await ending()
        raise ConnectionResetError

    await add_all(database, (1, "before"))
    with monkeypatch.context() as patch:
        patch.setattr(postgres_transaction, "_make_durable", lose)
        (outcome,) = await add_all(database, (2, "lost"))
    assert isinstance(outcome, DatabaseUnavailable)
    assert "read the record" in outcome.detail
    assert await names(database) == ["before", "lost"]


async def test_a_session_that_ended_while_idle_fails_no_write(database: PostgresDatabase, postgres_url: str) -> None:
    await add_all(database, (1, "a"))
    other: Any = await asyncpg.connect(postgres_url)
    await other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'muniment'")
    await other.close()
    assert await add_all(database, (2, "b")) == ["b"]


@pytest.mark.parametrize(
    ("error", "severity", "expected"),
    [
        (asyncpg.UniqueViolationError, "ERROR", True),
        (asyncpg.LockNotAvailableError, "ERROR", True),
        (asyncpg.DataError, None, True),  # the driver's own, of a value
        (asyncpg.AdminShutdownError, "FATAL", False),
        (asyncpg.DiskFullError, "PANIC", False),
        (asyncpg.ConnectionDoesNotExistError, None, False),
        (asyncpg.InterfaceError, None, False),
        (ConnectionResetError, None, False),
        (TimeoutError, None, False),
    ],
)
def test_only_an_error_of_the_server_says_that_nothing_was_changed(
    error: type[Exception], severity: str | None, *, expected: bool
) -> None:
    raised: Any = error("why")
    if severity is not None:
        raised.severity_en = severity
    assert is_refusal(raised) is expected
