"""Pages of triggers at a large offset: the same rows as a plain count gives, and on SQLite no other row is read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, LiteralString, NamedTuple, cast

import httpx2
import pytest
from hypothesis import given, strategies as st

from answers import ok
from conftest import NOW_MS
from muniment.protocol.evm.address import Address
from muniment.protocol.ipfs.cid import BundleCid, cid_v0
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.http.paging import OFFSET_QUICK_MAX
from muniment.service.resources.triggers.listing import TriggerQuery, search
from muniment.service.storage.database import Database, Transaction
from muniment.service.storage.sqlite.engine import SqliteDatabase
from without_server import InProcess

ROWS = 4 * OFFSET_QUICK_MAX
# Rows of one time, so that an order by time alone would be none.
OF_ONE_TIME = 7
ENDS_MS = (0, 0, 0, NOW_MS + 1, NOW_MS + 2, NOW_MS, NOW_MS - 1)
ROWS_TOGETHER = 50
MARKS: list[LiteralString] = ["(?, ?, ?, ?, 'Mimic', ?, ?, ?, ?, ?)"] * ROWS_TOGETHER
INSERT: LiteralString = f"""INSERT INTO triggers
  (sig, signer, digest, function_digest, protocol, live, deactivated, end_date_ms, created_at_ms, record)
  VALUES {", ".join(MARKS)}"""


class Row(NamedTuple):
    """A trigger as far as filters and the order are concerned."""

    n: int
    signer: bytes
    function: bytes
    live: int
    end_date_ms: int
    created_at_ms: int

    @property
    def is_active(self) -> bool:
        return self.live == 1 and (self.end_date_ms == 0 or self.end_date_ms > NOW_MS)


# The first signer and the first function have most; a few live ones have ended since the last sweep.
STORED = [
    Row(n, bytes([n % 13 == 0]) * 20, bytes([n % 11 == 0]) * 32, int(n % 17 > 1), ENDS_MS[n % 7], 1 + n // OF_ONE_TIME)
    for n in range(ROWS)
]


async def fill(tx: Transaction) -> None:
    for first in range(0, ROWS, ROWS_TOGETHER):
        values: list[object] = []
        for row in STORED[first : first + ROWS_TOGETHER]:
            sig, digest = row.n.to_bytes(65), row.n.to_bytes(32)
            ends = (row.live, 1 - row.live, row.end_date_ms)
            values += (sig, row.signer, digest, row.function, *ends, row.created_at_ms, f'{{"n":{row.n}}}')
        await tx.execute(INSERT, values)


@pytest.fixture
async def caller(app: Application, context: Context) -> httpx2.AsyncClient:
    """A client that does not mind that these records are no triggers."""
    await context.database.write(fill)
    return httpx2.AsyncClient(transport=InProcess(app), base_url="http://test")


TIME_MAX = 2 + ROWS // OF_ONE_TIME
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "active": st.sampled_from([True, True, False]),
        "signer": st.sampled_from([0, 0, 1]),
        "functionCid": st.sampled_from([0, 0, 1]),
        "createdAfter": st.integers(0, TIME_MAX // 4),
        "createdBefore": st.integers(TIME_MAX * 3 // 4, TIME_MAX),
    },
)
# The offset, in percent of the rows.
PLACES = st.integers(0, 101)
LIMITS = st.sampled_from([1, 10, 100])
SORTS = st.sampled_from([1, -1])


def chosen(query: dict[str, Any]) -> list[int]:
    """What the filters leave, counted one by one."""
    return [
        row.n
        for row in STORED
        if query.get("active", row.is_active) == row.is_active
        and query.get("signer", row.signer[0]) == row.signer[0]
        and query.get("functionCid", row.function[0]) == row.function[0]
        and query.get("createdAfter", -1) < row.created_at_ms <= query.get("createdBefore", ROWS)
    ]


def as_sent(query: dict[str, Any]) -> dict[str, str]:
    """Filters that are numbers here, in the words of the interface."""
    words = {
        "active": lambda value: str(value).lower(),
        "signer": lambda value: "0x" + (bytes([value]) * 20).hex(),
        "functionCid": lambda value: str(cid_v0(bytes([value]) * 32)),
    }
    return {name: words.get(name, str)(value) for name, value in query.items()}


@pytest.mark.spoils_events("rows are filled in by SQL")
async def test_a_page_at_a_far_offset_holds_the_same_rows_as_a_plain_count(
    caller: httpx2.AsyncClient, context: Context
) -> None:
    asked: list[tuple[dict[str, Any], int, int, int]] = []

    @given(FILTERS, PLACES, LIMITS, SORTS)
    def ask(filters: dict[str, Any], place: int, limit: int, sort: int) -> None:
        asked.append((filters, place, limit, sort))

    ask()
    # Which examples come depends on constants of the code; these are far in any case.
    asked += [({"active": True}, place, 10, sort) for place in (90, 95, 100) for sort in (1, -1)]
    differ_ms = {0: "times follow the order", 3: "times may differ"}  # as in a file that was copied from PostgreSQL
    for each in differ_ms if isinstance(context.database, SqliteDatabase) else [context.database.times_differ_ms]:
        vars(context.database)["times_differ_ms"] = each
        deep = 0
        for filters, place, limit, sort in asked:
            there = chosen(filters)[::sort]
            offset = len(there) * place // 100
            deep += offset > OFFSET_QUICK_MAX and filters.get("active", False)
            query = {**as_sent(filters), "offset": offset, "limit": limit, "sort": sort}
            rows = ok(await caller.get("/triggers", params=query)).json()
            assert [record["n"] for record in rows] == there[offset:][:limit], (query, differ_ms.get(each))
        assert deep >= 6  # of active ones, for which the two ways differ most


class Recorder:
    """A database that notes what it is asked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.asked: list[tuple[LiteralString, Sequence[object]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def fetch_slow(self, sql: LiteralString, parameters: Sequence[object] = (), *, client: str = "") -> list[Any]:
        self.asked.append((sql, parameters))
        return await self._database.fetch_slow(sql, parameters, client=client)


# Ended ones are few, and their index has no signer and no function: of these the rows are looked at.
READS_ROWS = (
    "SEARCH t USING INTEGER PRIMARY KEY", "SEARCH triggers USING INDEX triggers_by_end",
    "SEARCH triggers USING INDEX triggers_by_marked_end",
)  # fmt: skip


async def _has_rows(*_: object) -> bool:
    return True


SIGNERS = {"a signer": Address.from_raw(bytes(20)), "": None}
FUNCTIONS = {"a function": BundleCid.parse(str(cid_v0(bytes(32)))), "": None}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_rows_that_are_skipped_are_not_read(
    context: Context, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    database = context.database
    assert isinstance(database, SqliteDatabase)
    monkeypatch.setattr("muniment.service.resources.triggers.listing.has_row_after", _has_rows)
    sorts: tuple[Any, ...] = (1, -1)
    for differ_ms, sort, active, signer, function in product((0, 3), sorts, (True, False, None), SIGNERS, FUNCTIONS):
        vars(database)["times_differ_ms"] = differ_ms
        recorder = Recorder(database)
        query = TriggerQuery(
            active=active, signer=SIGNERS[signer], function_cid=FUNCTIONS[function], sort=sort,
            offset=OFFSET_QUICK_MAX + 1, limit=10,
        )  # fmt: skip
        with subtests.test(differ_ms=differ_ms, sort=sort, active=active, filters=(signer, function)):
            await search(cast("Database", recorder), query, lambda: NOW_MS)
            ((sql, parameters),) = recorder.asked
            plan = [step for *_, step in await database.fetch(f"EXPLAIN QUERY PLAN {sql}", parameters)]
            tables = [step for step in plan if " triggers" in step or step.startswith("SEARCH t ")]
            assert any("COVERING" in step for step in tables), plan
            assert [step for step in tables if "COVERING" not in step and not step.startswith(READS_ROWS)] == []
