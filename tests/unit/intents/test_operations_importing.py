"""Files with intents of both forms: an import elsewhere answers what the first registry answers."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from test_importing import World

from muniment.context import Context
from muniment.storage.database import Transaction
from operator_client import (
    FAR_DEADLINE,
    IntentDraft,
    OperationsDraft,
    log,
    operations_proposal,
    proposal,
)

pytestmark = pytest.mark.spoils_events("rows are removed between two imports")
TABLES = (
    "audit_entries", "intent_logs", "intent_proposals", "intents",
    "intent_logs_2", "intent_proposals_2", "intent_users_2", "intent_ops_2", "intents_2",
)  # fmt: skip


@pytest.fixture
def world(context: Context) -> World:
    return World(context)


def lines(count: int = 6) -> list[bytes]:
    """Intents of the two forms in turn, each with a proposal and a log line."""
    return [json.dumps(body(n)).encode() for n in range(count)]


def body(number: int) -> dict[str, Any]:
    stamped = log(number, createdAt="2026-11-20T19:48:00.123Z")
    if number % 2:
        draft: IntentDraft = OperationsDraft(number, FAR_DEADLINE, {"proposals": [operations_proposal(number)]})
    else:
        draft = IntentDraft(number, FAR_DEADLINE, {"proposals": [proposal(number)]})
    return {**draft.body, "logs": [stamped]}


async def answers(client: httpx2.AsyncClient) -> list[Any]:
    """All that a registry answers about its intents, but for the times of arrival."""
    listed = (await client.get("/intents?generation=all&sort=1&limit=100")).json()
    alone = [(await client.get(f"/intents/{each['hash']}")).json() for each in listed]
    return [{**each, "createdAt": ""} for each in (*listed, *alone)]


async def test_an_import_elsewhere_gives_equal_answers_in_the_same_order(
    world: World, client: httpx2.AsyncClient
) -> None:
    tally = await world.run(b"\n".join(lines()))
    assert (tally.stored, tally.refused) == (6, 0)
    before, exported = await answers(client), await world.export()
    assert [each["generation"] for each in before[:6]] == [1, 2, 1, 2, 1, 2]

    async def empty(tx: Transaction) -> None:
        for table in TABLES:
            await tx.execute(f"DELETE FROM {table}")

    await world.context.database.write(empty)
    await world.run(exported)
    assert await answers(client) == before
    assert await world.export() == exported


async def test_the_same_file_again_changes_nothing(world: World) -> None:
    await world.run(b"\n".join(lines()))
    tally = await world.run(b"\n".join(lines()))
    assert (tally.stored, tally.unchanged) == (0, 6)


async def test_a_line_with_members_of_both_forms_is_refused_by_its_number(world: World) -> None:
    mixed = json.dumps({**body(0), **body(1)}).encode()
    tally = await world.run(b"\n".join([lines()[1], mixed, lines()[2]]))
    assert (tally.stored, tally.refused) == (2, 1)
    ((number, refusal),) = world.refused
    assert (number, refusal.code) == (2, "invalid-body")


async def test_an_export_in_parts_loses_nothing(world: World) -> None:
    count = 150  # more than two reads of heads
    await world.run(b"\n".join(lines(count)))
    exported = [json.loads(each)["nonce"] for each in (await world.export()).splitlines()]
    assert exported == [f"0x{n:064x}" for n in range(count)]
