"""What is read of intents beside their records walks an index, on both engines and in both generations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString, cast

import pytest

from conftest import NOW_MS
from muniment.protocol.intents.lifecycle import Moment
from muniment.service.context import Context
from muniment.service.resources.intents.history import HOUR_MS, HOURS, count_by_hour
from muniment.service.resources.intents.parts import insert_rows
from muniment.service.resources.operators import moves_of
from muniment.service.storage.database import Database, Row, Transaction

pytestmark = pytest.mark.spoils_events("rows are filled in by SQL")
ROWS = 600
SHARED: tuple[LiteralString, ...] = (
    "hash", "settler", "deadline", "status", "standing", "proposal_count", "log_count", "created_at_ms", "record",
)  # fmt: skip


class Explained:
    """A database that explains what it is asked for in a thread."""

    def __init__(self, context: Context) -> None:
        self._database = context.database
        self._explain: LiteralString = (
            "EXPLAIN QUERY PLAN" if context.settings.database_url.startswith("sqlite") else "EXPLAIN"
        )
        self.plans: list[str] = []

    async def fetch_slow(self, sql: LiteralString, parameters: Sequence[object] = (), *, client: str = "") -> list[Row]:
        rows = await self._database.fetch_slow(f"{self._explain} {sql}", parameters, client=client)
        self.plans.append("\n".join(str(row[-1]) for row in rows))
        return []


async def fill(tx: Transaction) -> None:
    """Intents an hour apart, and a move of each."""
    for n in range(ROWS):
        at_ms, key = NOW_MS - n * HOUR_MS, n.to_bytes(32)
        shared = zip(SHARED, (key, b"s" * 20, b"\xff" * 32, "created", "created", 0, 0, at_ms, "{}"), strict=True)
        row: dict[LiteralString, object] = {**dict(shared), "trigger_sig": key + key + b"\x1b"}
        first: dict[LiteralString, object] = {**row, "generation": 1, "user_address": key[:20], "op": 1}
        other = (ROWS + n).to_bytes(32)
        second: dict[LiteralString, object] = {
            **row,
            "generation": 2,
            "hash": other,
            "operation_count": 1,
            "nonce": "0x",
        }
        for each in (first, second):
            await insert_rows(tx, f"intents ({', '.join(each)})", [tuple(each.values())])
        entry = (at_ms, "o", "move to enqueued", key)
        await insert_rows(tx, "audit_entries (at_ms, operator, action, subject)", [entry])
    await tx.execute("ANALYZE")


@pytest.fixture
async def explained(context: Context) -> Explained:
    await context.database.write(fill)
    return Explained(context)


async def test_moves_are_found_by_the_hash_of_their_intent(explained: Explained) -> None:
    await moves_of(cast("Database", explained), b"\x01" * 32, "")
    (plan,) = explained.plans
    assert "audit_entries_by_subject" in plan
    assert "SCAN audit_entries" not in plan


async def test_the_last_day_is_found_by_the_time_of_creation(explained: Explained) -> None:
    assert len(await count_by_hour(cast("Database", explained), Moment(NOW_MS, 0))) == HOURS
    (plan,) = explained.plans
    assert "intents_by_creation" in plan
    assert "Seq Scan" not in plan
    assert "SCAN intents" not in plan
