"""Intents that were recorded before nonces were held hold theirs from the migration on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from test_deactivation_numbers import know

from muniment.storage.database import Database, Row, Transaction
from muniment.storage.postgres.engine import PostgresDatabase
from muniment.storage.sqlite.engine import SqliteDatabase
from postgres import Cluster

TRIGGER_SIG, SETTLER = b"\x12" * 65, b"\x34" * 20
# By hash, in the order of arrival: nonce, deadline, status, the word of the chain.
RECORDED: list[tuple[int, int, int, str, str | None]] = [
    (1, 1, 100, "created", None),
    (2, 2, 100, "discarded", None),  # the first of its nonce, with the earlier deadline
    (3, 2, 300, "created", None),
    (4, 2, 200, "created", None),
    (5, 3, 100, "failed", None),
    (6, 3, 100, "submitted", "succeeded"),
    (7, 4, 100, "succeeded", "failed"),
    (8, 5, 100, "succeeded", None),
]
HELD = [
    (1, 1, 100), (2, 2, 300), (3, 6, None), (4, 7, 100), (5, 8, None),
]  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path, cluster: Cluster) -> AsyncIterator[Database]:
    if request.param == "sqlite":
        made: Database = SqliteDatabase(tmp_path / "test.db")
    else:
        made = PostgresDatabase(await cluster.create_database(f"nonces-{tmp_path.name}"))
    yield made
    await made.close()


def nonce(number: int) -> str:
    return f"0x{number:064x}"


async def add(tx: Transaction) -> None:
    for intent, number, deadline, status, chain_status in RECORDED:
        record = f'{{"feePayer":"0x","nonce":"{nonce(number)}","operations":[]}}'
        await tx.execute(
            """INSERT INTO intents_2 (hash, settler, trigger_sig, deadline, status, chain_status, standing,
                 operation_count, created_at_ms, record) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                intent.to_bytes(32), SETTLER, TRIGGER_SIG, deadline.to_bytes(32), status, chain_status, status,
                1, 1, record,
            ),
        )  # fmt: skip
    await tx.execute(
        """INSERT INTO intents_2 (hash, settler, trigger_sig, deadline, status, standing,
             operation_count, created_at_ms, record) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (b"\xff" * 32, SETTLER, TRIGGER_SIG, bytes(32), "created", "created", 1, 1, "damaged"),
    )


async def test_the_first_intent_of_a_nonce_holds_it_until_the_last_deadline_and_one_that_succeeded_for_ever(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, "0017")
    await database.migrate()
    await database.write(add)
    monkeypatch.undo()
    await database.migrate()
    rows = await database.fetch(
        "SELECT nonce, intent_hash, deadline, trigger_sig, settler FROM intent_nonces ORDER BY nonce"
    )
    assert rows == [_row(*held) for held in HELD]


def _row(number: int, intent: int, deadline: int | None) -> Row:
    last = None if deadline is None else deadline.to_bytes(32)
    return nonce(number), intent.to_bytes(32), last, TRIGGER_SIG, SETTLER
