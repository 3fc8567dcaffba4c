"""What a replica may be asked, and when it is not: commits in order on a standby, other histories, no replica."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from each_row import each_row
from emptying import empty
from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.resources.triggers.listing import TriggerQuery, search
from muniment.service.storage import open_replicated
from muniment.service.storage.database import DatabaseLimits, Reader
from muniment.service.storage.postgres.engine import PostgresDatabase
from muniment.service.storage.postgres.slot import _url_of_each_host
from muniment.service.storage.replication import replica as replica_reads
from muniment.service.storage.replication.replicated import ReplicatedDatabase
from postgres import Cluster

# This ends a hang.
SECONDS_MAX = 60
INSERT = """INSERT INTO triggers (sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record)
    VALUES (?, ?, ?, ?, 'Mimic', 0, 1, ?)"""


@pytest.fixture(scope="module")
def primary() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started


@pytest.fixture(scope="module")
def replica(primary: Cluster) -> Iterator[Cluster]:
    with primary.replica() as started:
        yield started


@pytest.fixture
async def database(
    primary: Cluster, replica: Cluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ReplicatedDatabase]:
    # A late answer comes from the primary.
    monkeypatch.setattr(replica_reads, "ANSWER_SECONDS_MAX", SECONDS_MAX)
    made = replicated(primary, replica)
    await made.migrate()
    await empty(primary.url())
    yield made
    await made.close()


def replicated(primary: Cluster, replica: Cluster, lag_s_max: float = 600) -> ReplicatedDatabase:
    limits = DatabaseLimits(slow_read_seconds_max=60)
    return open_replicated(primary.url(), [replica.url()], lag_s_max=lag_s_max, limits=limits)


def values(number: int) -> tuple[bytes | str, ...]:
    return (number.to_bytes(65), bytes(20), number.to_bytes(32), bytes(32), str(number))


async def insert(database: ReplicatedDatabase, number: int) -> None:
    await database.write(lambda tx: tx.execute(INSERT, values(number)))


async def at_the_replica(database: ReplicatedDatabase) -> Reader:
    """A reader, once it is that of the replica."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            with suppress(DatabaseUnavailable):  # too late for a busy machine, and then there is no primary either
                if await (reader := database.list_reader()).fetch("SELECT 1 WHERE pg_is_in_recovery()"):
                    return reader
            await asyncio.sleep(0.01)


async def replayed(primary: Cluster, replica: Cluster) -> None:
    """Return once the replica has all that is at the primary."""
    ((position,),) = await primary.execute("SELECT pg_current_wal_insert_lsn()::text")
    async with asyncio.timeout(SECONDS_MAX):
        while not await replica.execute(f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{position}'"):
            await asyncio.sleep(0.01)


@asynccontextmanager
async def replay_paused(replica: Cluster) -> AsyncGenerator[None]:
    """The replica keeps what it has replayed."""
    await replica.execute("SELECT pg_wal_replay_pause()")
    try:
        yield
    finally:
        await replica.execute("SELECT pg_wal_replay_resume()")


async def never_at_the_replica(database: ReplicatedDatabase) -> None:
    for _ in range(30):
        assert database.list_reader() is database
        await asyncio.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize("first_step", ["a row", "only a number"])
async def test_a_row_above_a_writer_that_runs_at_the_primary_is_not_followed_at_the_replica(
    database: ReplicatedDatabase, primary: Cluster, replica: Cluster, first_step: str
) -> None:
    driver = asyncpg
    running = await driver.connect(primary.url())
    transaction = running.transaction()
    await transaction.start()
    if first_step == "a row":
        await running.execute("INSERT INTO users (address, created_at_ms) VALUES (decode(repeat('ab', 20), 'hex'), 1)")
    else:  # nothing of it is in the log that the replica reads
        await running.execute("SELECT pg_current_xact_id()")
    await insert(database, 1)
    await replayed(primary, replica)
    reader = await at_the_replica(database)
    assert (await search(reader, TriggerQuery(sort=-1), lambda: 1)).records == ["1"]
    assert (await search(reader, TriggerQuery(sort=1), lambda: 1)).records == []
    await transaction.commit()
    await running.close()
    await replayed(primary, replica)
    async with asyncio.timeout(SECONDS_MAX):
        while (await search(await at_the_replica(database), TriggerQuery(sort=1), lambda: 1)).records != ["1"]:
            await database.write(lambda tx: tx.execute("UPDATE users SET name = name"))


async def test_an_answer_stays_at_the_primary_once_the_replica_failed(
    database: ReplicatedDatabase, replica: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        pass

    for number in range(3, 30):
        await at_the_replica(database)
        async with replay_paused(replica):
            await insert(database, number)
            find = ("SELECT record FROM triggers WHERE sig = ?", [number.to_bytes(65)])
            reader = database.list_reader()
            if await reader.fetch(*find):  # the primary answers where the connection to the replica is a new one
                continue
            assert await reader.fetch_one(*find) is None
            with monkeypatch.context() as patched:
                patched.setattr(replica_reads.Replica, "fetch", fail)
                assert await reader.fetch(*find) == [(str(number),)]
            assert await reader.fetch(*find) == [(str(number),)], "and later reads are not older"
            return
    pytest.fail("the replica never answered")


async def test_replicas_take_turns(primary: Cluster, replica: Cluster) -> None:
    database = open_replicated(primary.url(), [replica.url(), replica.url()], lag_s_max=10**9)
    assert database.list_reader() is database, "nothing is known of the replicas yet"
    first, second = database._replicas
    async with asyncio.timeout(SECONDS_MAX):
        while not (first.serves(time.monotonic_ns()) and second.serves(time.monotonic_ns())):
            await asyncio.sleep(0.01)
    readers: list[Any] = [database.list_reader() for _ in range(4)]
    turns = [each._replica for each in readers]
    assert turns in ([first, second] * 2, [second, first] * 2)
    await database.close()


@pytest.mark.long
async def test_a_replica_of_another_primary_is_not_used(replica: Cluster) -> None:
    with Cluster() as other:  # it has written less: by its position alone the replica would have all of that
        database = replicated(other, replica)
        await never_at_the_replica(database)
        await database.close()


async def test_a_server_that_is_not_a_replica_is_not_used(primary: Cluster) -> None:
    database = replicated(primary, primary)
    await never_at_the_replica(database)
    await database.close()


@pytest.mark.long
async def test_a_replica_is_used_no_longer_than_the_bound_without_the_primary(
    database: ReplicatedDatabase, primary: Cluster, replica: Cluster
) -> None:
    brief = replicated(primary, replica, lag_s_max=1)
    reader = await at_the_replica(database)
    await asyncio.gather(reader.fetch("SELECT 1"), reader.fetch("SELECT 2"))
    await at_the_replica(database)
    await at_the_replica(brief)
    primary.stop()
    try:
        await at_the_replica(database)
        async with asyncio.timeout(SECONDS_MAX):
            while brief.list_reader() is not brief:
                await asyncio.sleep(0.01)
        with pytest.raises(DatabaseUnavailable):
            await brief.list_reader().fetch("SELECT 1")
        await at_the_replica(database)
    finally:
        primary.start()
    await at_the_replica(brief)
    await brief.close()


@pytest.mark.long
async def test_a_long_read_ends_with_its_replica_and_is_asked_elsewhere(
    database: ReplicatedDatabase, replica: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = await at_the_replica(database)
    monkeypatch.setattr(replica_reads, "ANSWER_SECONDS_MAX", 1.0)  # so that its end is noticed
    sleep_there = "SELECT pg_sleep(CASE WHEN pg_is_in_recovery() THEN 60 ELSE 0 END) IS NULL, pg_is_in_recovery()"
    asked = asyncio.create_task(reader.fetch_slow(sleep_there))
    await asyncio.sleep(0.3)
    replica.pause()
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while not asked.done():
                database.list_reader()  # its readers keep it being asked
                await asyncio.sleep(0.05)
        assert await asked == [(False, False)], "answered by the primary"
    finally:
        replica.resume()


@each_row(
    ("url", "ones"),
    [
        ("postgresql://u:p@a/db", ["postgresql://u:p@a/db"]),
        (
            "postgresql://u:p,q@a:1,[::1]:2/db?target_session_attrs=primary",
            [
                "postgresql://u:p,q@a:1/db?target_session_attrs=primary",
                "postgresql://u:p,q@[::1]:2/db?target_session_attrs=primary",
            ],
        ),
        ("postgresql:///db?host=a,b", ["postgresql:///db?host=a,b"]),
    ],
)
def test_each_of_several_hosts_has_its_own_time_limit(url: str, ones: list[str]) -> None:
    assert _url_of_each_host(url) == ones


async def test_reading_stops_asking_and_closing_leaves_nothing(database: ReplicatedDatabase) -> None:
    await at_the_replica(database)
    await database.close()
    assert isinstance(database, PostgresDatabase)
    assert [task for task in asyncio.all_tasks() if "Replica" in repr(task)] == []
