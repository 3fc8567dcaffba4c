"""The cost of a listing on the event loop is the same among many intents as among few."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, LiteralString

import httpx2
import pytest
from intents_world import HOUR
from test_triggers_cost import STEPS_COUNTED, steps

from answers import cursor_at
from conftest import NOW_MS
from muniment.operate.watch.receipts import CLAIMED, ENQUEUED, SUBMITTED, named_transactions
from muniment.protocol.intents.lifecycle import Moment
from muniment.service.context import Context
from muniment.service.resources.intents.listing import ROWS_WALKED_MAX
from muniment.service.resources.intents.store import mark_expired
from muniment.service.storage.database import Transaction
from muniment.service.storage.sqlite.engine import SqliteDatabase

pytestmark = [
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
    pytest.mark.spoils_events("rows are filled in by SQL"),
]

FEW, MANY = 1_000, 10_000
NOW_S = NOW_MS // 1_000
USERS, SETTLERS, SIGNATURES = 8, 3, 12
# Some dozen steps for each row of a page; and as many for each of the rows that are looked at before a search gives
# up, which happens up to four times: for a walk, and for each filter that selects few.
STEPS_MAX = 100 * 60 + 4 * ROWS_WALKED_MAX * 30
INSERT = """INSERT INTO intents
    (generation, hash, user_address, settler, trigger_sig, op, deadline, status, standing, created_at_ms, record)
  VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, '{}')"""
UNDER_WAY = ("created", "enqueued", "submitted")


def row_of(n: int) -> tuple[Any, ...]:
    """Deadlines grow with the rows; the last hundred are to come. One in a hundred failed, 40 are not settled yet."""
    deadline = NOW_S - MANY + 100 + n
    standing = "failed" if n % 100 == 1 else "discarded" if n % 100 == 2 else "succeeded" if n % 2 else "expired"
    if deadline > NOW_S - 40:
        standing = UNDER_WAY[n % len(UNDER_WAY)]
    status = UNDER_WAY[n // 2 % 2] if standing == "expired" else standing
    return (
        n.to_bytes(32), (n % USERS).to_bytes(20), (n // 7 % SETTLERS).to_bytes(20), (n // 3 % SIGNATURES).to_bytes(65),
        n // 11 % 4, deadline.to_bytes(32), status, standing, n,
    )  # fmt: skip


async def fill(database: SqliteDatabase, numbers: Iterable[int]) -> None:
    async def insert(tx: Transaction) -> None:
        for n in numbers:
            await tx.execute(INSERT, row_of(n))

    await database.write(insert)


# The rows are numbered so that the few are the newest of the many: then both have the same first page.
def sequence_of(first: int) -> dict[str, list[dict[str, str]]]:
    middle = first + FEW // 2
    return {
        "user": [{"user": "0x" + (3).to_bytes(20).hex()}],
        "settler": [{"settler": "0x" + (1).to_bytes(20).hex()}],
        "configSig": [{"configSig": "0x" + (5).to_bytes(65).hex()}],
        "op": [{"op": "2"}],
        "status": [
            {"status": each}
            for each in ("created", "enqueued", "discarded", "submitted", "succeeded", "failed", "expired")
        ],
        "deadlineAfter": [{"deadlineAfter": str(NOW_S)}, {"deadlineAfter": str(NOW_S - FEW // 2)}],
        "deadlineBefore": [{"deadlineBefore": str(NOW_S)}],
        "createdAfter": [{"createdAfter": str(middle)}],
        "createdBefore": [{"createdBefore": str(middle)}],
        "cursor": [{"cursor": str(cursor_at("intents", FEW // 2))}],
    }


@pytest.fixture
async def database(context: Context) -> SqliteDatabase:
    assert isinstance(context.database, SqliteDatabase)
    return context.database


async def cost_of(client: httpx2.AsyncClient, database: SqliteDatabase, query: dict[str, str], limit: int) -> int:
    """The steps of SQLite's virtual machine on the event loop."""
    with steps(database._view._connection) as counted:
        response = await client.get("/intents", params={**query, "limit": limit})
    assert response.status_code == 200
    return counted()


@pytest.mark.long
@pytest.mark.parametrize("sort", ["1", "-1"])
async def test_no_filter_and_no_pair_walks_far(client: httpx2.AsyncClient, database: SqliteDatabase, sort: str) -> None:
    await fill(database, range(MANY))
    filters = sequence_of(MANY - FEW)
    costs: dict[str, int] = {}
    for names in [(), *itertools.combinations(filters, 1), *itertools.combinations(filters, 2)]:
        for chosen in itertools.product(*(filters[name] for name in names)):
            query = {key: value for each in chosen for key, value in each.items()}
            costs[str(query)] = await cost_of(client, database, {**query, "sort": sort}, 100)
    assert {query: cost for query, cost in costs.items() if cost >= STEPS_MAX} == {}


async def test_a_page_of_one_filter_costs_the_same_among_few_and_many(
    client: httpx2.AsyncClient, database: SqliteDatabase
) -> None:
    queries = [query for each in sequence_of(MANY - FEW).values() for query in each]
    queries = [query for query in queries if "cursor" not in query]
    await fill(database, range(MANY - FEW, MANY))
    among_few = [await cost_of(client, database, query, 5) for query in queries]
    await database.write(lambda tx: tx.execute("DELETE FROM intents"))
    await fill(database, range(MANY))
    among_many = [await cost_of(client, database, query, 5) for query in queries]
    costs = zip(queries, among_few, among_many, strict=True)
    assert [each for each in costs if each[2] > each[1] * 1.3 + 10 * STEPS_COUNTED] == []


@pytest.mark.long
async def test_one_intent_costs_the_same_among_few_and_many(
    client: httpx2.AsyncClient, database: SqliteDatabase
) -> None:
    costs: list[int] = []
    for numbers in (range(FEW), range(FEW, MANY)):
        await fill(database, numbers)
        with steps(database._view._connection) as counted:
            for n in range(10):
                assert (await client.get(f"/intents/0x{n:064x}")).status_code == 200
        costs.append(counted())
    assert costs[1] <= costs[0] + STEPS_COUNTED


async def test_a_sweep_looks_only_at_intents_that_have_expired(database: SqliteDatabase) -> None:
    await fill(database, range(MANY))
    assert 0 < await database.write(lambda tx: mark_expired(tx, Moment(NOW_MS, HOUR))) < 40
    with steps(database._writer._connection) as counted:
        assert await database.write(lambda tx: mark_expired(tx, Moment(NOW_MS, HOUR))) == 0
    assert counted() <= STEPS_COUNTED * 10


@pytest.mark.long
@pytest.mark.parametrize("kind", [SUBMITTED, ENQUEUED, CLAIMED])
async def test_receipts_are_looked_for_without_a_look_at_other_intents(
    database: SqliteDatabase, kind: LiteralString
) -> None:
    await fill(database, range(MANY))
    await database.write(lambda tx: tx.execute("UPDATE intents SET chain_status = status WHERE status = 'succeeded'"))
    with steps(database._view._connection) as counted:
        await named_transactions(database, (1).to_bytes(20), kind, 0)
    assert counted() <= STEPS_COUNTED * 20
