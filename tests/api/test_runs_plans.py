"""Pages of runs walk the index of their filters, on both engines, and sort nothing but the page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, LiteralString, cast

import pytest
import pytest_asyncio
from standing_world import ENGINES, standing_registry

from many_runs import RELAYERS, fill, sig_of, time_of
from muniment.service.context import Context
from muniment.service.http.paging import Cursor, cursor_after
from muniment.service.resources.runs import store
from muniment.service.resources.runs.listing import search
from muniment.service.resources.runs.pruning import remove_old
from muniment.service.resources.runs.queries import RunQuery
from muniment.service.storage.database import Database, Row, Transaction

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROWS = 20_000


class Explained:
    """A database, or a transaction, that answers, and explains what it is asked."""

    def __init__(self, context: Context, asked: Database | Transaction) -> None:
        self._asked = asked
        self.is_sqlite = context.settings.database_url.startswith("sqlite")
        self.plans_as_written = context.database.plans_as_written
        self.times_differ_ms = context.database.times_differ_ms
        # Without the statements on other tables.
        self.plans: list[str] = []

    async def fetch(self, sql: LiteralString, parameters: Sequence[object] = ()) -> list[Row]:
        if re.search(r"\b(runs|run_records)\b", sql):
            explain: LiteralString = "EXPLAIN QUERY PLAN" if self.is_sqlite else "EXPLAIN (COSTS OFF)"
            lines = await self._asked.fetch(f"{explain} {sql}", parameters)
            self.plans.append("\n".join(str(line[-1]) for line in lines))
        return await self._asked.fetch(sql, parameters)

    async def fetch_one(self, sql: LiteralString, parameters: Sequence[object] = ()) -> Row | None:
        return next(iter(await self.fetch(sql, parameters)), None)

    async def execute(self, sql: LiteralString, parameters: Sequence[object] = ()) -> int:
        return await cast("Transaction", self._asked).execute(sql, parameters)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def filled(request: pytest.FixtureRequest) -> AsyncIterator[Context]:
    async with standing_registry(request, spoils_events=True) as standing:
        await standing.context.database.write(lambda tx: fill(tx, ROWS))
        yield standing.context


@pytest.fixture
def explained(filled: Context) -> Explained:
    return Explained(filled, filled.database)


QUERIES: dict[str, tuple[dict[str, Any], str]] = {
    "all": ({}, "runs_pkey"),
    "trigger": ({"trigger_sig": sig_of(1)}, "runs_by_trigger"),
    "trigger with few": ({"trigger_sig": sig_of(50)}, "runs_by_trigger"),
    "relayer": ({"relayer": RELAYERS[0]}, "runs_by_relayer"),
    "relayer with few": ({"relayer": RELAYERS[2]}, "runs_by_relayer"),
    "result": ({"result": "nothing"}, "runs_by_result"),
    "rare result": ({"result": "skipped"}, "runs_by_result"),
    "trigger and result": ({"trigger_sig": sig_of(1), "result": "stopped"}, "runs_by_trigger_and_result"),
    "trigger and relayer": ({"trigger_sig": sig_of(1), "relayer": RELAYERS[2]}, "runs_by_trigger_and_relayer"),
    "relayer and result": ({"relayer": RELAYERS[1], "result": "nothing"}, "runs_by_relayer_and_result"),
    "all three": (
        {"trigger_sig": sig_of(1), "relayer": RELAYERS[0], "result": "intents"}, "runs_by_trigger_relayer_and_result",
    ),
}  # fmt: skip


@pytest.mark.parametrize("sort", [1, -1])
async def test_each_combination_of_filters_walks_its_own_index(explained: Explained, sort: Literal[1, -1]) -> None:
    cursor = Cursor(cursor_after("runs", ROWS // 2, None).decode())
    places: list[dict[str, Any]] = [{}, {"cursor": cursor}, {"offset": 3}, {"created_after": time_of(100)}]
    for name, (query, index) in QUERIES.items():
        for place in places:
            explained.plans.clear()
            await search(cast("Database", explained), RunQuery(**query, **place, sort=sort))
            page = [plan for plan in explained.plans if "page" in plan or "Limit" in plan][-1]
            if explained.is_sqlite:
                wanted = f"USING INDEX {index} " if query else "SCAN runs\n"
                wanted = wanted if query or not place else "runs"
                assert wanted in page.replace("COVERING ", ""), (name, place, page)
            else:
                assert re.search(rf"Index (Only )?Scan (Backward )?using {index} ", page), (name, place, page)
            for plan in explained.plans:
                assert "Seq Scan" not in plan, (name, plan)


async def test_the_newest_run_of_each_trigger_is_one_look_for_each(explained: Explained) -> None:
    sigs = [sig_of(n) for n in range(1, 101)]
    page = await search(cast("Database", explained), RunQuery(trigger_sigs=sigs, latest="1", limit=100))
    assert len(page.records) == 100
    explained.plans.clear()
    await search(cast("Database", explained), RunQuery(trigger_sigs=sigs[:2], latest="1", result="nothing"))
    assert "runs_by_trigger_and_result" in explained.plans[0]
    assert "Seq Scan" not in explained.plans[0]


async def test_what_is_read_beside_the_records_is_found_by_keys(explained: Explained) -> None:
    await store.listed(cast("Database", explained), [1, 2, 3])
    await store.find(cast("Database", explained), b"%032d" % 7)
    for plan in explained.plans:
        assert "Seq Scan" not in plan
        assert not re.search(r"SCAN (r|other|runs|run_records)\b", plan)


async def test_the_sweep_walks_the_runs_without_intents_by_age(filled: Context) -> None:
    async def sweep(tx: Transaction) -> Explained:
        seen = Explained(filled, tx)
        assert await remove_old(cast("Transaction", seen), time_of(50)) == 44
        return seen

    (plan,) = (await filled.database.write(sweep)).plans
    assert "runs_by_age" in plan
    assert "Seq Scan" not in plan
    assert "TEMP B-TREE" not in plan
