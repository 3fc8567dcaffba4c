"""On PostgreSQL the rows of many `InsertOnce` are one statement, which is a transaction by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg
import pytest

from each_row import each_row
from muniment.protocol.errors import DatabaseUnavailable, TriggerNotFound
from muniment.service.storage.database import InsertOnce, Made, Row, Transaction
from muniment.service.storage.postgres import transaction as postgres_transaction
from muniment.service.storage.postgres.driver_errors import is_refusal
from muniment.service.storage.postgres.engine import PostgresDatabase

ADD = "INSERT INTO users (address, name, created_at_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
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
    """Add a row; the name in the row."""
    await transaction.execute(ADD, (address(number), name, 1))
    row = await transaction.fetch_one(NAME, (address(number),))
    assert row is not None
    return row[0]


def adding(number: int, name: str = "", raw: object = None) -> InsertOnce[str]:
    """The same as a value. The name `refused` is refused, `undecided` is left to the work."""
    key = address(number) if raw is None else raw

    def make(found: Row) -> Made[str] | None:
        known, _ = found
        if name == "refused":
            raise TriggerNotFound("gone")
        if known is not None:
            return Made(known, ())
        return None if name == "undecided" else Made(name, (key, name, 1))

    look_up = "SELECT (SELECT name FROM users WHERE address = ?), (SELECT count(*) FROM users)"
    return InsertOnce(
        look_up, (address(number),), "users", ("address", "name", "created_at_ms"), make,
        partial(add, number=number, name=name),
    )  # fmt: skip


async def add_all(database: PostgresDatabase, *named: tuple[int, str]) -> list[Any]:
    return await asyncio.gather(*(database.write(adding(*each)) for each in named), return_exceptions=True)


async def names(database: PostgresDatabase) -> list[str]:
    return [name for (name,) in await database.fetch("SELECT name FROM users ORDER BY address")]


@pytest.mark.parametrize("count", [1, 20])
async def test_the_rows_of_many_are_one_statement_without_begin_and_commit(
    database: PostgresDatabase, sent: list[str], count: int
) -> None:
    named = [(number, f"user {number}") for number in range(count)]
    assert await add_all(database, *named) == [name for _, name in named]
    assert sent == ["SELECT", "INSERT"]
    assert await names(database) == [name for _, name in named]


async def test_a_row_that_the_look_up_finds_is_not_inserted(database: PostgresDatabase, sent: list[str]) -> None:
    assert await add_all(database, (2, "first")) == ["first"]
    sent.clear()
    assert await add_all(database, (1, "a"), (2, "second"), (3, "b")) == ["a", "first", "b"]
    assert sent == ["SELECT", "INSERT"]
    sent.clear()
    assert await add_all(database, (1, "c"), (2, "d")) == ["a", "first"]
    assert sent == ["SELECT"]


async def test_of_rows_with_one_key_one_goes_in_and_the_others_look_again(
    database: PostgresDatabase, sent: list[str]
) -> None:
    outcomes = await add_all(database, *((7, f"{number}") for number in range(20)), (8, "other"))
    assert set(outcomes[:20]) == {(await names(database))[0]}
    assert outcomes[20] == "other"
    assert sent[:3] == ["SELECT", "INSERT", "SELECT"]


async def test_a_row_that_exists_although_the_look_up_found_none_is_left_to_the_work(
    database: PostgresDatabase, sent: list[str]
) -> None:
    await database.write(adding(1, "there"))
    sent.clear()
    blind = adding(1, "new")._replace(look_up="SELECT NULL, length(?::bytea)")
    assert await database.write(blind) == "there"
    assert sent == ["SELECT", "INSERT", "SELECT", "INSERT", "BEGIN", "INSERT", "SELECT", "COMMIT"]


async def test_each_of_many_has_its_own_outcome(database: PostgresDatabase) -> None:
    outcomes = await add_all(database, (1, "a"), (2, "refused"), (3, "undecided"), (4, "b"))
    assert [outcomes[0], *outcomes[2:]] == ["a", "undecided", "b"]
    assert isinstance(outcomes[1], TriggerNotFound)
    assert await names(database) == ["a", "undecided", "b"]


async def test_a_row_that_the_server_refuses_fails_alone(database: PostgresDatabase) -> None:
    async def add_raw(transaction: Transaction, raw: object) -> str:
        await transaction.execute(ADD, (raw, "", 1))
        return ""

    raws = (address(1), b"short", address(2))
    writes = [
        database.write(adding(number, raw=raw)._replace(work=partial(add_raw, raw=raw)))
        for number, raw in enumerate(raws, 1)
    ]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(each) for each in outcomes] == [str, asyncpg.CheckViolationError, str]
    with pytest.raises(asyncpg.CheckViolationError):
        await database.write(adding(3, raw=b"short"))
    with pytest.raises(asyncpg.DataError):  # the driver does not even send it
        await database.write(adding(3, raw=1))


async def test_works_of_the_same_moment_are_committed_after_the_rows(
    database: PostgresDatabase, sent: list[str]
) -> None:
    async def rename(transaction: Transaction) -> int:
        return await transaction.execute("UPDATE users SET name = 'new' WHERE address = ?", (address(1),))

    await add_all(database, (1, "old"))
    sent.clear()
    writes: list[Awaitable[Any]] = [database.write(rename), database.write(adding(2, "b"))]
    assert await asyncio.gather(*writes) == [1, "b"]
    assert sent == ["SELECT", "INSERT", "BEGIN", "UPDATE", "COMMIT"]
    assert await names(database) == ["new", "b"]


async def test_rows_of_two_tables_are_two_statements(database: PostgresDatabase, sent: list[str]) -> None:
    async def use(transaction: Transaction) -> bool:
        return await transaction.execute(USE, (address(1), 1, 1)) == 1

    using = InsertOnce(
        "SELECT length(?::bytea)", (b"",), "used_nonces", ("address", "nonce_window", "slot"),
        lambda _: Made(result=True, values=(address(1), 1, 1)), use,
    )  # fmt: skip
    writes: list[Awaitable[Any]] = [database.write(adding(1, "a")), database.write(using)]
    assert await asyncio.gather(*writes) == ["a", True]
    assert sorted(sent) == ["INSERT", "INSERT", "SELECT", "SELECT"]


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


@each_row(
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
