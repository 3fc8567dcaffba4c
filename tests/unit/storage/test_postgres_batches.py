"""On PostgreSQL equal statements that wait at the same moment are sent as one; each caller has its own outcome."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from each_row import each_row
from muniment.protocol.errors import DatabaseUnavailable, TriggerNotFound
from muniment.protocol.evm.address import Address
from muniment.service.resources.users import store
from muniment.service.storage import open_database
from muniment.service.storage.database import Transaction
from muniment.service.storage.postgres.connection import Connection
from muniment.service.storage.postgres.engine import PostgresDatabase
from muniment.service.storage.postgres.statements import Statements

ADD = "INSERT INTO users (address, name, created_at_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
NAME = "SELECT name FROM users WHERE address = ?"


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    made = open_database(postgres_url, data_dir=Path())
    assert isinstance(made, PostgresDatabase)
    yield made
    await made.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that goes to the server."""
    statements: list[str] = []
    driver: Any = asyncpg.Connection
    for method in ("fetch", "execute"):
        original = getattr(driver, method)

        def watched(self: Connection, sql: str, *values: object, _original: Any = original, **options: Any) -> Any:
            statements.append(sql)
            return _original(self, sql, *values, **options)

        monkeypatch.setattr(driver, method, watched)
    return statements


def address(number: int) -> bytes:
    return number.to_bytes(20)


def adding(number: int, name: str = "") -> Any:
    async def add(transaction: Transaction) -> int:
        return await transaction.execute(ADD, (address(number), name, 1))

    return add


async def add_all(database: PostgresDatabase, *numbers: int) -> list[int]:
    return await asyncio.gather(*(database.write(adding(number)) for number in numbers))


async def test_equal_reads_are_one_statement_with_an_answer_for_each(
    database: PostgresDatabase, sent: list[str]
) -> None:
    await asyncio.gather(*(database.write(adding(number, f"user {number}")) for number in range(50)))
    sent.clear()
    rows = await asyncio.gather(*(database.fetch(NAME, (address(number),)) for number in range(60)))
    assert rows == [[(f"user {number}",)] for number in range(50)] + [[]] * 10
    assert len([sql for sql in sent if "FROM users" in sql]) == 1


async def test_two_different_reads_use_two_connections(database: PostgresDatabase) -> None:
    await asyncio.gather(*(database.fetch(NAME, (address(number),)) for number in range(10)))
    assert database.connections_made == 1
    await asyncio.gather(database.fetch(NAME, (address(1),)), database.fetch("SELECT 1"))
    assert database.connections_made == 2


async def test_more_reads_than_the_queue_holds_are_refused(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url, reads_waiting_max=2)
    for _ in range(3):
        assert await asyncio.gather(*(database.fetch("SELECT 1") for _ in range(2))) == [[(1,)]] * 2
    outcomes = await asyncio.gather(*(database.fetch("SELECT 1") for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in outcomes] == [list, list, DatabaseUnavailable]
    await database.close()


async def test_a_single_read_is_the_statement_itself(database: PostgresDatabase, sent: list[str]) -> None:
    assert await database.fetch_one(NAME, (address(1),)) is None
    assert sent[-1] == "SELECT name FROM users WHERE address = $1"


async def test_works_that_wait_run_one_after_the_other_in_one_transaction(
    database: PostgresDatabase, sent: list[str]
) -> None:
    assert await add_all(database, *range(40)) == [1] * 40
    statements = [sql.split()[0] for sql in sent if "set_config" not in sql and "backend_pid" not in sql]
    assert statements == ["BEGIN", *["INSERT"] * 40, "COMMIT"]


async def test_of_equal_rows_one_goes_in_and_each_caller_knows(database: PostgresDatabase) -> None:
    assert sorted(await add_all(database, *[1] * 100)) == [0] * 99 + [1]
    assert await add_all(database, 1, 2, 2, 3) == [0, 1, 0, 1]


async def test_a_bad_row_does_not_fail_its_neighbours(database: PostgresDatabase) -> None:
    def adding_raw(raw: bytes) -> Any:
        return lambda transaction: transaction.execute(ADD, (raw, "", 1))

    raws = [address(1), b"too short", address(2)]
    results = await asyncio.gather(*(database.write(adding_raw(raw)) for raw in raws), return_exceptions=True)
    assert [type(each).__name__ for each in results] == ["int", "CheckViolationError", "int"]
    assert len(await database.fetch("SELECT 1 FROM users")) == 2


async def test_a_bad_read_does_not_fail_its_neighbours(database: PostgresDatabase) -> None:
    await add_all(database, 1)
    asked: list[Awaitable[Any]] = [database.fetch(NAME, (each,)) for each in (address(1), "no bytes", address(2))]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert results[0] == [("",)]
    assert isinstance(results[1], asyncpg.DataError)
    assert results[2] == []


async def test_a_refusal_undoes_its_own_work_and_no_other(database: PostgresDatabase) -> None:
    async def refused(transaction: Transaction) -> None:
        await transaction.execute(ADD, (address(2), "", 1))
        raise TriggerNotFound("gone")

    works = [adding(1), refused, adding(3)]
    results = await asyncio.gather(*(database.write(work) for work in works), return_exceptions=True)
    assert results[0] == results[2] == 1
    assert isinstance(results[1], TriggerNotFound)
    assert await database.fetch("SELECT address FROM users ORDER BY 1") == [(address(1),), (address(3),)]


async def test_works_that_change_one_row_run_one_after_the_other(database: PostgresDatabase) -> None:
    owner = Address.from_raw(os.urandom(20))
    rotations = [database.write(lambda tx: store.next_generation(tx, owner, 1, 2)) for _ in range(30)]
    assert sorted(await asyncio.gather(*rotations)) == list(range(2, 32))


async def test_a_work_whose_row_was_there_sees_all_changes_of_the_work_that_added_it(
    database: PostgresDatabase,
) -> None:
    async def claim(transaction: Transaction, mine: int) -> tuple[int, str]:
        won = await transaction.execute(ADD, (address(1), "", 1))
        if won:
            await transaction.execute(ADD, (address(100 + mine), "", 1))
            await transaction.execute("UPDATE users SET name = ? WHERE address = ?", (f"{mine}", address(1)))
        row = await transaction.fetch_one(NAME, (address(1),))
        assert row is not None
        return won, row[0]

    claims = [database.write(lambda tx, mine=mine: claim(tx, mine)) for mine in range(20)]
    outcomes = await asyncio.gather(*claims)
    assert sum(won for won, _ in outcomes) == 1
    assert len({name for _, name in outcomes}) == 1


async def test_a_work_with_a_lock_whose_row_was_there_is_not_overtaken(database: PostgresDatabase) -> None:
    """Each raises a number under its lock, and only then adds a row that may be there: no number is read twice."""
    await database.write(adding(1, "0"))

    async def raised(transaction: Transaction) -> int:
        lock = NAME + transaction.for_update
        ((name,),) = await transaction.fetch(lock, (address(1),))
        await transaction.execute(ADD, (address(2), "", 1))  # it is there for all but the first
        await transaction.execute("UPDATE users SET name = ? WHERE address = ?", (f"{int(name) + 1}", address(1)))
        return int(name) + 1

    outcomes = await asyncio.gather(*(database.write(raised) for _ in range(20)))
    assert sorted(outcomes) == list(range(1, 21))


async def test_a_work_that_goes_on_after_a_failed_statement_is_undone(database: PostgresDatabase) -> None:
    async def swallow(transaction: Transaction) -> int:
        await transaction.execute(ADD, (address(1), "", 1))
        with suppress(asyncpg.CheckViolationError):
            await transaction.execute(ADD, (b"too short", "", 1))
        return 1

    outcomes = await asyncio.gather(
        database.write(swallow), database.write(adding(2)), return_exceptions=True
    )  # fmt: skip
    assert isinstance(outcomes[0], asyncpg.CheckViolationError)
    assert outcomes[1] == 1
    assert await database.fetch("SELECT address FROM users") == [(address(2),)]


async def test_a_row_that_a_work_got_back_is_a_change(database: PostgresDatabase) -> None:
    commits: list[int] = []
    database.call_after_commits(lambda: commits.append(1))

    async def add(transaction: Transaction) -> None:
        await transaction.fetch(f"{ADD} RETURNING address", (address(1), "", 1))

    async def refused(transaction: Transaction) -> None:
        await add(transaction)
        raise TriggerNotFound("gone")

    with pytest.raises(TriggerNotFound):
        await database.write(refused)
    assert (await database.fetch("SELECT 1 FROM users"), commits) == ([], [])
    await database.write(lambda tx: tx.fetch("SELECT 1"))
    assert commits == []
    await database.write(add)
    assert commits == [1]


@each_row(
    ("sql", "values", "single"),
    [
        ("SELECT a FROM t WHERE b = ?", (1,), "SELECT a FROM t WHERE b = $1"),
        (
            "SELECT * FROM (SELECT a FROM t WHERE b = ? LIMIT ?) x WHERE c = ? LIMIT ? OFFSET ?", (1, 2, 3, 4, 5),
            "SELECT * FROM (SELECT a FROM t WHERE b = $1 LIMIT 2) x WHERE c = $2 LIMIT 4 OFFSET 5",
        ),
        ("INSERT INTO t (a, b) VALUES (?, 0)", (1,), "INSERT INTO t (a, b) VALUES ($1, 0)"),
        ("DELETE FROM t", (), "DELETE FROM t"),
    ],
)  # fmt: skip
def test_the_parameters_of_a_statement_are_numbered(sql: str, values: tuple[int, ...], single: str) -> None:
    statement, rest = Statements().find(sql, values)
    assert (statement.single, statement.parameter_count) == (single, len(rest))


def test_statements_with_the_same_bounds_are_the_same_object() -> None:
    statements = Statements()
    (one, values), (same, _), (other, _) = (
        statements.find("SELECT a FROM t WHERE b = ? LIMIT ?", (b, limit)) for b, limit in ((1, 10), (2, 10), (1, 11))
    )
    assert one is same
    assert one is not other
    assert values == [1]


def test_a_bound_that_is_not_a_number_never_enters_the_sql() -> None:
    with pytest.raises(TypeError):
        Statements().find("SELECT a FROM t LIMIT ?", ("1; DROP TABLE t",))
