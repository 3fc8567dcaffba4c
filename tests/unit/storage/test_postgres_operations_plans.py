"""Listings of generation 2 on PostgreSQL: the index of a filter is walked in order, and joined row by row."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from test_postgres_plans import Explained

from applications import PATIENT, wait_for_postgres
from muniment.protocol.evm.address import Address
from muniment.protocol.intents.lifecycle import Moment
from muniment.service.resources.intents.listing import search
from muniment.service.resources.intents.queries import IntentQuery
from muniment.service.storage.database import Database, Transaction
from muniment.service.storage.postgres.engine import PostgresDatabase
from postgres import Cluster

_ROWS = (
    """INSERT INTO intents
         (seq, generation, hash, settler, trigger_sig, deadline, status, standing, operation_count, nonce,
          created_at_ms, record)
       SELECT n, 2, sha256(int8send(n)), substr(sha256('s'), 1, 20), sha256('t') || sha256('u') || '\\x1b', sha256('d'),
              'created', 'created', 1, '0x', n, repeat('.', 300)
       FROM generate_series(1, 20000) n""",
    "INSERT INTO intent_users SELECT substr(sha256(int8send(n % 20)), 1, 20), n FROM generate_series(1, 20000) n",
    "INSERT INTO intent_ops SELECT n % 5, n FROM generate_series(1, 20000) n",
    "ANALYZE",
)


@pytest.fixture
async def database(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostgresDatabase]:
    wait_for_postgres(monkeypatch)  # twenty thousand rows are more than a statement of the service
    made = PostgresDatabase(await cluster.create_migrated(f"operations-{tmp_path.name}"), PATIENT)

    async def fill(tx: Transaction) -> None:
        for sql in _ROWS:
            await tx.execute(sql)

    await made.write(fill)
    yield made
    await made.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "index"),
    [({"user": Address.parse("0x" + "11" * 20)}, "intent_users_pkey"), ({"op": 4}, "intent_ops_pkey")],
    ids=["user", "op"],
)
@pytest.mark.parametrize("sort", [1, -1])
async def test_a_filter_walks_its_own_index_and_sorts_nothing_but_the_page(
    database: PostgresDatabase, query: dict[str, Any], index: str, sort: int
) -> None:
    explained = Explained(database)
    asked = IntentQuery(**query, generation="2", sort=sort)  # pyright: ignore[reportArgumentType] - 1 or -1
    await search(cast("Database", explained), asked, Moment(0, 0))
    page = explained.plan.partition("Limit")[2]
    assert index in page
    assert "Seq Scan" not in page
    assert "Hash" not in page
    assert "Sort" not in page
