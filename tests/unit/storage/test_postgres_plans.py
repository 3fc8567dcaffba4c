"""Statements whose rows are few although PostgreSQL takes them for many: they are found by an index all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, LiteralString, cast

import pytest
from msgspec.structs import replace

from applications import PATIENT, wait_for_postgres
from muniment.protocol.evm.address import Address
from muniment.protocol.ipfs.cid import BundleCid, cid_v0
from muniment.service.resources.triggers.listing import TriggerQuery, search
from muniment.service.resources.triggers.store import fetch_functions_of, mark_ended
from muniment.service.storage.database import Database, Transaction
from muniment.service.storage.postgres.engine import PostgresDatabase
from muniment.service.storage.postgres.subset import fetch_some
from postgres import Cluster

NOW_MS = 1_000_000
# Seven of ten are live and end later; the others ended long ago and are not live. A planner that takes the two for
# independent expects a fifth of the table to be live and past its end. It is none.
# Each of fifty signers has triggers of each of forty functions.
_ROWS = """
INSERT INTO triggers (seq, sig, signer, digest, function_digest, protocol, live, end_date_ms, created_at_ms, record)
SELECT n, sha256(int8send(n)) || sha256(int8send(-n)) || '\\x1b', substr(sha256(int8send(n % 50)), 1, 20),
       sha256(int8send(n)), sha256(int8send(n / 50 % 40)), 'Mimic', (n % 10 < 7)::int,
       CASE WHEN n % 10 < 7 THEN 1000000 + n ELSE 1000000 - n END, n, repeat('.', 300)
FROM generate_series(1, 20000) n
"""


@pytest.fixture
async def database(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostgresDatabase]:
    wait_for_postgres(monkeypatch)  # twenty thousand rows are more than a statement of the service
    made = PostgresDatabase(await cluster.create_migrated(f"plans-{tmp_path.name}"), PATIENT)

    async def fill(tx: Transaction) -> None:
        await tx.execute(_ROWS)
        await tx.execute("ANALYZE triggers")

    await made.write(fill)
    yield made
    await made.close()


class Explained:
    """A database, or a transaction, that explains what it is asked."""

    plans_as_written = PostgresDatabase.plans_as_written
    times_differ_ms = PostgresDatabase.times_differ_ms

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.plan = ""

    async def fetch(self, sql: LiteralString, parameters: Sequence[object] = ()) -> list[Any]:
        if sql == "SELECT settled_seq()":
            return await self._database.fetch(sql)
        lines = await self._database.fetch_slow(f"EXPLAIN (COSTS OFF) {sql}", parameters)
        self.plan += "".join(f"{line}\n" for (line,) in lines)
        return []

    async def fetch_some(
        self, sql: LiteralString, parameters: Sequence[object], *, rows_max: int, bytes_max: int
    ) -> tuple[list[Any], int]:
        return await fetch_some(self.fetch, sql, parameters, rows_max=rows_max, bytes_max=bytes_max)

    async def execute(self, sql: LiteralString, parameters: Sequence[object] = ()) -> int:
        return len(await self.fetch(sql, parameters))


def assert_found_by_end(plan: str) -> None:
    assert "Seq Scan" not in plan
    assert "triggers_by_end" in plan
    assert f"Index Cond: (end_date_ms <= '{NOW_MS}'::bigint)" in plan


async def test_the_sweep_finds_ended_triggers_by_the_index_on_their_end(database: PostgresDatabase) -> None:
    explained = Explained(database)
    await mark_ended(cast("Transaction", explained), NOW_MS)
    assert_found_by_end(explained.plan)


async def test_the_triggers_of_a_signer_for_a_function_are_found_by_both(database: PostgresDatabase) -> None:
    ((signer, function),) = await database.fetch("SELECT signer, function_digest FROM triggers WHERE seq = 1")
    of_both = TriggerQuery(signer=Address.from_raw(signer), function_cid=BundleCid.parse(str(cid_v0(function))))
    explained = Explained(database)
    for active in (None, True, False):
        await search(cast("Database", explained), replace(of_both, active=active), lambda: NOW_MS)
    assert explained.plan.count("triggers_by_signer_and_function") == 4  # those that ended since a sweep have another


async def test_a_listing_of_inactive_triggers_uses_that_index_too(database: PostgresDatabase) -> None:
    explained = Explained(database)
    await search(cast("Database", explained), TriggerQuery(active=False), lambda: NOW_MS)
    assert_found_by_end(explained.plan)


async def test_the_functions_of_an_owner_are_found_by_an_index_one_by_one(database: PostgresDatabase) -> None:
    explained, signer = Explained(database), Address.from_raw(b"\x11" * 20)
    await fetch_functions_of(cast("Database", explained), signer)
    assert "Hash" not in explained.plan
    assert "triggers_by_signer_and_function" in explained.plan
    assert "Seq Scan" not in explained.plan
