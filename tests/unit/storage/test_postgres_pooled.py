"""Prepared statements that a pooler loses, because it gives each transaction another session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from muniment.protocol.errors import NotReady
from muniment.service.storage.database import Transaction
from muniment.service.storage.postgres import slot as postgres_slot
from muniment.service.storage.postgres.engine import PostgresDatabase


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    made = PostgresDatabase(postgres_url)
    yield made
    await made.close()


async def lose_prepared_statements(database: PostgresDatabase) -> None:
    """Drop the prepared statements of every session, as if it were another session."""
    for slot in (*database._read_queue._dispatcher._slots, *database._writer._dispatcher._slots):
        if slot._connection is not None:
            await slot._connection.execute("DEALLOCATE ALL")


async def ask(tx: Transaction) -> None:
    await tx.fetch("SELECT sig FROM triggers WHERE sig = ?", (b"",))


async def test_a_lost_statement_is_sent_again_on_a_new_connection_and_it_is_not_ready(
    database: PostgresDatabase,
) -> None:
    await database.check_writes()
    await database.fetch("SELECT sig FROM triggers WHERE sig = ?", (b"",))
    await database.write(ask)
    for again in (
        lambda: database.fetch("SELECT sig FROM triggers WHERE sig = ?", (b"",)),
        lambda: database.write(ask),
    ):
        await lose_prepared_statements(database)
        made = database.connections_made
        await again()
        assert database.connections_made == made + 1
        with pytest.raises(NotReady, match="a connection pooler"):
            await database.check_writes()


async def test_an_error_that_shows_a_pooler_counts_for_a_while() -> None:
    for seconds, counts in ((60, True), (0.01, False)):
        connector = postgres_slot.Connector("postgresql:///", pooled_seconds=seconds)
        assert not connector.is_pooled
        connector.note(postgres_slot.asyncpg.DuplicatePreparedStatementError("it exists"))
        await asyncio.sleep(0.02)
        assert connector.is_pooled is counts


async def test_a_name_that_another_process_took_is_the_same(database: PostgresDatabase) -> None:
    await database.check_writes()
    line = database._connector
    line.note(postgres_slot.asyncpg.DuplicatePreparedStatementError("it exists"))
    with pytest.raises(NotReady, match="a connection pooler"):
        await database.check_writes()
