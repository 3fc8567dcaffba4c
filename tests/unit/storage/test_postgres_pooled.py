"""A pooler that gives each transaction another session: what it loses, and how it is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, LiteralString

import pytest

from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.storage.database import Transaction
from muniment.service.storage.postgres import connection as connections
from muniment.service.storage.postgres.engine import PostgresDatabase
from rewriting_proxy import as_behind_a_pooler, as_in_transaction_mode, rewriting_proxy

READ: Final[LiteralString] = "SELECT sig FROM triggers WHERE sig = ?"


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
    await tx.fetch(READ, (b"",))


async def test_a_lost_statement_is_sent_again_on_a_new_connection(database: PostgresDatabase) -> None:
    await database.check_writes()
    await database.fetch(READ, (b"",))
    await database.write(ask)
    for again in (lambda: database.fetch(READ, (b"",)), lambda: database.write(ask)):
        await lose_prepared_statements(database)
        made = database.connections_made
        await again()
        assert database.connections_made == made + 1


async def test_a_pooler_is_refused_from_the_time_that_it_mixes_sessions(postgres_url: str) -> None:
    mixes_sessions = False

    def rewrite(piece: bytes) -> bytes:
        return as_in_transaction_mode(piece) if mixes_sessions else as_behind_a_pooler(piece)

    async with rewriting_proxy(postgres_url, rewrite) as front:
        database = PostgresDatabase(front)
        await database.check_writes()
        await database.fetch(READ, (b"",))
        mixes_sessions = True
        assert await database.fetch(READ, (b"",)) == []  # nothing has told yet
        await lose_prepared_statements(database)
        reads = (lambda: database.fetch(READ, (b"",)), lambda: database.fetch_slow(READ, (b"",)))
        for refused in (*reads, lambda: database.write(ask), database.check, database.migrate):
            for _ in range(2):
                with pytest.raises(DatabaseUnavailable, match="a connection pooler in transaction mode"):
                    await refused()
        mixes_sessions = False
        database._connector._retry_at = 0
        await database.check_writes()
        await database.close()


async def test_a_session_that_answers_another_connection_too_is_not_its_own(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rewriting_proxy(postgres_url, as_behind_a_pooler) as url:
        first = await connections.connect(url, {})
        assert await connections.has_own_session(first, url)

        async def connect(_url: str, _settings: dict[str, str]) -> connections.Connection:
            return first

        monkeypatch.setattr(connections, "connect", connect)
        assert not await connections.has_own_session(first, url)
