"""The order of events on PostgreSQL, where a transaction is numbered before it waits for the row that it changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from itertools import cycle

import asyncpg
import pytest

from applications import PATIENT
from feed_checks import check_events
from muniment.protocol.intents.rules import check_log
from muniment.protocol.intents.texts import LogText
from muniment.protocol.intents.types import NewLog
from muniment.service.resources.feed.events import EVERYTHING
from muniment.service.resources.feed.reading import newest, read_slice
from muniment.service.resources.intents import recording
from muniment.service.storage.postgres.engine import PostgresDatabase

INTENTS = 8
CHANGES = 400
INSERT = """INSERT INTO intents (generation, hash, user_address, settler, trigger_sig, op, deadline, status, standing,
                     created_at_ms, record)
VALUES (1, $1, $2, $2, $3, 1, $1, 'created', 'created', 1, '{}')"""
CHANGE = "UPDATE intents SET version = version + 1, changed_version = version + 1, changed_at_ms = 2 WHERE hash = $1"
HASH = bytes(31) + b"\x01"


@pytest.fixture
async def connections(postgres_url: str) -> AsyncIterator[tuple[asyncpg.Connection, asyncpg.Connection]]:
    made = [await asyncpg.connect(postgres_url) for _ in range(2)]
    await made[0].execute(INSERT, HASH, bytes(20), bytes(65))
    yield made[0], made[1]
    for each in made:
        await each.close()


async def test_a_transaction_that_waited_for_a_later_one_is_refused_and_succeeds_when_it_is_run_again(
    connections: tuple[asyncpg.Connection, asyncpg.Connection],
) -> None:
    early, late = connections
    await early.execute("BEGIN")
    await early.fetch("SELECT pg_current_xact_id()")  # its number is lower from now on
    await late.execute(CHANGE, HASH)
    with pytest.raises(asyncpg.SerializationError, match="a later transaction"):
        await early.execute(CHANGE, HASH)
    await early.execute("ROLLBACK")
    await early.execute(CHANGE, HASH)
    rows = await early.fetch("SELECT facts::json ->> 'version' FROM events ORDER BY seq")
    assert [row[0] for row in rows] == ["1", "2", "3"]


async def test_two_processes_that_change_the_same_intents_leave_every_version_in_order(postgres_url: str) -> None:
    dice = random.Random(7)
    hashes = [number.to_bytes(32) for number in range(1, INTENTS + 1)]
    processes = [PostgresDatabase(postgres_url, PATIENT) for _ in range(2)]
    first = await asyncpg.connect(postgres_url)
    await first.executemany(INSERT, [(each, bytes(20), bytes(65)) for each in hashes])
    await first.close()

    async def append(database: PostgresDatabase, number: int) -> None:
        line = check_log(NewLog(level="info", data=LogText.parse(str(number))), number)
        intent_hash = dice.choice(hashes)
        await database.write(lambda tx: recording.append_log(tx, intent_hash, line, "relayer", 2), order=intent_hash)

    turns = cycle(processes)
    await asyncio.gather(*(append(next(turns), number) for number in range(CHANGES)))
    assert await check_events(processes[0]) == INTENTS + CHANGES
    for each in processes:
        await each.close()


async def test_while_a_transaction_runs_the_feed_shows_nothing_after_it_and_loses_nothing(
    postgres_url: str, connections: tuple[asyncpg.Connection, asyncpg.Connection]
) -> None:
    slow, other = connections
    database = PostgresDatabase(postgres_url)
    before = await newest(database)
    await slow.execute("BEGIN")
    await slow.execute(INSERT, bytes(31) + b"\x02", bytes(20), bytes(65))
    await other.execute(CHANGE, HASH)
    assert (await read_slice(database, before, EVERYTHING, 100)).events == []
    assert await newest(database) == before
    await slow.execute("COMMIT")
    found = await read_slice(database, before, EVERYTHING, 100)
    assert [event.subject[-1] for event in found.events] == [2, 1]
    assert found.is_caught_up
    await database.close()
