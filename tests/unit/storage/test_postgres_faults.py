"""A PostgreSQL that is absent, stopped, killed, locked or slow: quick refusals, and recovery without a restart."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from applications import wait_for_postgres
from emptying import empty
from muniment.protocol.errors import DatabaseUnavailable, DeadlineExceeded, NotReady
from muniment.service.storage.database import DatabaseLimits, Transaction
from muniment.service.storage.postgres import (
    connection as postgres_connection,
    transaction as postgres_transaction,
    writer as postgres_writer,
)
from muniment.service.storage.postgres.engine import PostgresDatabase
from postgres import Cluster

ADD = "INSERT INTO users (address, created_at_ms) VALUES (?, 1) ON CONFLICT DO NOTHING"
UPDATE = "UPDATE users SET created_at_ms = 2 WHERE address = ?"


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A server that tests may kill; commits reach the disk."""
    with Cluster(fsync=True, config="deadlock_timeout = 50ms") as started:
        asyncio.run(started.create_database("faults"))
        yield started


@pytest.fixture
async def database(own_cluster: Cluster) -> AsyncIterator[PostgresDatabase]:
    made = PostgresDatabase(own_cluster.url("faults"))
    await made.migrate()
    await empty(own_cluster.url("faults"))
    yield made
    await made.close()


async def add(database: PostgresDatabase, number: int) -> int:
    return await database.write(lambda tx: tx.execute(ADD, (number.to_bytes(20),)))


async def numbers(database: PostgresDatabase) -> list[int]:
    rows = await database.fetch("SELECT address FROM users ORDER BY address")
    return [int.from_bytes(raw) for (raw,) in rows]


async def until_it_answers(database: PostgresDatabase) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                return await database.check()
            except DatabaseUnavailable:
                await asyncio.sleep(0.02)


@pytest.mark.long
async def test_a_restart_of_the_server_is_healed_at_the_next_statement(
    database: PostgresDatabase, own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_postgres(monkeypatch)
    assert await add(database, 1) == 1
    assert await numbers(database) == [1]
    own_cluster.restart()
    assert await numbers(database) == [1]
    assert await add(database, 2) == 1


@pytest.mark.timed
async def test_calls_fail_immediately_until_an_absent_server_returns(
    database: PostgresDatabase, own_cluster: Cluster
) -> None:
    await add(database, 1)
    own_cluster.stop()
    try:
        took: list[float] = []
        for _ in range(20):
            began = time.monotonic()
            with pytest.raises(DatabaseUnavailable):
                await numbers(database)
            with pytest.raises(DatabaseUnavailable):
                await add(database, 2)
            took.append(time.monotonic() - began)
        assert sorted(took)[len(took) // 2] < 1
    finally:
        own_cluster.start()
    await until_it_answers(database)
    assert await numbers(database) == [1]


@pytest.mark.long
async def test_after_a_kill_under_load_every_acknowledged_write_is_there(
    database: PostgresDatabase, own_cluster: Cluster
) -> None:
    acknowledged: list[int] = []
    stopping = asyncio.Event()

    async def write_on(start: int) -> None:
        number = start
        while not stopping.is_set():
            number += 16
            try:
                await add(database, number)
                acknowledged.append(number)
            except DatabaseUnavailable:
                await asyncio.sleep(0.01)

    writers = [asyncio.create_task(write_on(start)) for start in range(16)]
    for _ in range(3):
        await asyncio.sleep(0.2)
        await asyncio.to_thread(own_cluster.kill)
        await asyncio.to_thread(own_cluster.start)
        await until_it_answers(database)
    async with asyncio.timeout(300):
        while len(acknowledged) <= 100:
            await asyncio.sleep(0.01)
    stopping.set()
    await asyncio.gather(*writers)
    assert set(acknowledged) <= set(await numbers(database))


async def test_a_connection_lost_during_commit_is_reported_and_not_repeated(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    async def count_and_add(transaction: Transaction) -> None:
        begun.append(1)
        await transaction.execute(ADD, (b"x" * 20,))

    async def lose(ending: Callable[[], Awaitable[object]]) -> None:
        await ending()
        raise ConnectionResetError

    with monkeypatch.context() as patch:
        patch.setattr(postgres_transaction, "_make_durable", lose)
        with pytest.raises(DatabaseUnavailable, match="read the record"):
            await database.write(count_and_add)
    assert begun == [1]
    assert await database.fetch("SELECT 1 FROM users") == [(1,)]


async def test_a_locked_row_fails_only_the_works_that_want_it(
    database: PostgresDatabase, own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres_connection.SESSION, "lock_timeout", "100")
    await add(database, 1)
    await add(database, 2)
    await database.close()  # the next connections have the short bound
    other: Any = await asyncpg.connect(own_cluster.url("faults"))
    async with other.transaction():
        await other.execute("UPDATE users SET created_at_ms = 9 WHERE address = $1", (1).to_bytes(20))
        updates = [database.write(lambda tx, n=n: tx.execute(UPDATE, (n.to_bytes(20),))) for n in (1, 2)]
        results = await asyncio.gather(*updates, return_exceptions=True)
        assert isinstance(results[0], DatabaseUnavailable)
        assert results[1] == 1
    await other.close()
    assert await database.write(lambda tx: tx.execute(UPDATE, ((1).to_bytes(20),))) == 1


async def test_a_deadlock_is_done_again(
    database: PostgresDatabase, own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        await add(database, number)
    await database.close()
    wait_for_postgres(monkeypatch)  # its next connections do
    monkeypatch.setattr(postgres_writer, "TRIES_MAX", 50)
    other = PostgresDatabase(own_cluster.url("faults"))
    met = asyncio.Barrier(2)

    def both(first: int, second: int) -> Any:
        async def update(transaction: Transaction) -> int:
            return sum([await transaction.execute(UPDATE, (n.to_bytes(20),)) for n in (first, second)])

        return update

    assert await asyncio.gather(meet(met, database, both(1, 2)), meet(met, other, both(2, 1))) == [2, 2]
    await other.close()


async def meet(met: asyncio.Barrier, database: PostgresDatabase, work: Any) -> int:
    await met.wait()
    results = [await database.write(work) for _ in range(10)]
    assert set(results) == {2}
    return results[0]


@pytest.mark.long
@pytest.mark.usefixtures("database")
async def test_a_long_read_is_cancelled_at_its_deadline(own_cluster: Cluster) -> None:
    impatient = PostgresDatabase(own_cluster.url("faults"), DatabaseLimits(slow_read_seconds_max=2))
    with pytest.raises(DeadlineExceeded):
        await impatient.fetch_slow("SELECT pg_sleep(4)")
    async with asyncio.timeout(60):
        while True:
            with suppress(DeadlineExceeded):  # the two seconds may include a new connection
                assert await impatient.fetch_slow("SELECT 1") == [(1,)]
                break
    assert await impatient.fetch("SELECT 1") == [(1,)]
    await impatient.close()


async def test_two_concurrent_processes_apply_a_migration_once(own_cluster: Cluster) -> None:
    url = await own_cluster.create_database("twice")
    databases = [PostgresDatabase(url) for _ in range(3)]
    with pytest.raises(NotReady, match="0001_initial"):
        await databases[0].check()
    with pytest.raises(DatabaseUnavailable):
        await numbers(databases[0])
    applied = await asyncio.gather(*(database.migrate() for database in databases))
    assert sorted(len(names) > 0 for names in applied) == [False, False, True]
    for database in databases:
        await database.check()
        await database.close()


@pytest.mark.long
@pytest.mark.usefixtures("database")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # refused by the server, the driver
async def test_too_many_connections_are_503_until_one_is_free(own_cluster: Cluster) -> None:
    url, driver = own_cluster.url("faults"), asyncpg
    held: list[Any] = []
    with suppress(asyncpg.TooManyConnectionsError):
        while True:
            held.append(await driver.connect(url))
    full = PostgresDatabase(url)
    with pytest.raises(DatabaseUnavailable):
        await numbers(full)
    for connection in held:
        await connection.close()
    await until_it_answers(full)
    await full.close()
    gc.collect()  # leaves a socket to the collector


def test_a_url_of_another_engine_is_refused() -> None:
    from muniment.service.storage import open_database  # noqa: PLC0415 - beside what it is about

    assert isinstance(open_database("postgres://host/name", data_dir=Path()), PostgresDatabase)
    with pytest.raises(ValueError, match="mysql"):
        open_database("mysql://host/name", data_dir=Path())
