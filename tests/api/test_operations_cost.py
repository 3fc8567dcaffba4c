"""The cost of a listing of generation 2, or of both, on the event loop is the same among many intents as among few."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import httpx2
import pytest
from test_intents_cost import FEW, MANY, NOW_S, STEPS_MAX, UNDER_WAY, cost_of, fill as fill_first, sequence_of
from test_triggers_cost import STEPS_COUNTED, steps

from muniment.protocol.intents.lifecycle import Moment
from muniment.service.context import Context
from muniment.service.resources.intents.store import mark_expired
from muniment.service.storage.database import Transaction
from muniment.service.storage.sqlite.engine import SqliteDatabase

pytestmark = [
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
    pytest.mark.spoils_events("rows are filled in by SQL"),
]

HOUR = 3_600
INSERT = """INSERT INTO intents
    (generation, hash, settler, trigger_sig, deadline, status, standing, operation_count, nonce, created_at_ms,
     record)
  VALUES (2, ?, ?, ?, ?, ?, ?, 2, '0x', ?, '{}') RETURNING seq"""


def row_of(n: int) -> tuple[Any, ...]:
    """As the rows of generation 1 in test_intents_cost."""
    deadline = NOW_S - MANY + 100 + n
    standing = "failed" if n % 100 == 1 else "discarded" if n % 100 == 2 else "succeeded" if n % 2 else "expired"
    if deadline > NOW_S - 40:
        standing = UNDER_WAY[n % 3]
    status = UNDER_WAY[n // 2 % 2] if standing == "expired" else standing
    key = (n + 10 * MANY).to_bytes(32)
    return key, (n // 7 % 3).to_bytes(20), (n // 3 % 12).to_bytes(65), deadline.to_bytes(32), status, standing, n


async def fill(database: SqliteDatabase, numbers: Iterable[int]) -> None:
    async def insert(tx: Transaction) -> None:
        for n in numbers:
            ((seq,),) = await tx.fetch(INSERT, row_of(n))
            for user in {n % 8, n // 5 % 8}:
                await tx.execute("INSERT INTO intent_users VALUES (?, ?)", (user.to_bytes(20), seq))
            for op in {n // 11 % 5, n // 3 % 5}:
                await tx.execute("INSERT INTO intent_ops VALUES (?, ?)", (op, seq))

    await database.write(insert)


@pytest.fixture
async def database(context: Context) -> SqliteDatabase:
    assert isinstance(context.database, SqliteDatabase)
    return context.database


@pytest.mark.long
@pytest.mark.parametrize("sort", ["1", "-1"])
async def test_no_filter_and_no_pair_walks_far(client: httpx2.AsyncClient, database: SqliteDatabase, sort: str) -> None:
    await fill(database, range(MANY))
    filters = sequence_of(MANY - FEW)
    costs: dict[str, int] = {}
    for names in [(), *itertools.combinations(filters, 1), *itertools.combinations(filters, 2)]:
        for chosen in itertools.product(*(filters[name] for name in names)):
            query = {key: value for each in chosen for key, value in each.items()}
            costs[str(query)] = await cost_of(client, database, {**query, "generation": "2", "sort": sort}, 100)
    assert {query: cost for query, cost in costs.items() if cost >= STEPS_MAX} == {}


@pytest.mark.long
@pytest.mark.parametrize("generation", ["2", "all"])
async def test_a_page_of_one_filter_costs_the_same_among_few_and_many(
    client: httpx2.AsyncClient, database: SqliteDatabase, generation: str
) -> None:
    queries = [{**query, "generation": generation} for each in sequence_of(MANY - FEW).values() for query in each]
    queries = [query for query in queries if "cursor" not in query]
    for each in (fill_first, fill):
        await each(database, range(MANY - FEW, MANY))
    among_few = [await cost_of(client, database, query, 5) for query in queries]

    async def empty(tx: Transaction) -> None:
        for table in ("intent_users", "intent_ops", "intents"):
            await tx.execute(f"DELETE FROM {table}")

    await database.write(empty)
    for each in (fill_first, fill):
        await each(database, range(MANY))
    among_many = [await cost_of(client, database, query, 5) for query in queries]
    costs = zip(queries, among_few, among_many, strict=True)
    assert [each for each in costs if each[2] > each[1] * 1.3 + 10 * STEPS_COUNTED] == []


async def test_a_sweep_looks_only_at_what_has_expired(database: SqliteDatabase) -> None:
    await fill(database, range(MANY - 2 * FEW, MANY))
    moment = Moment(NOW_S * 1_000, HOUR)
    assert 0 < await database.write(lambda tx: mark_expired(tx, moment)) < 40
    with steps(database._writer._connection) as counted:
        assert await database.write(lambda tx: mark_expired(tx, moment)) == 0
    assert counted() <= STEPS_COUNTED * 20
