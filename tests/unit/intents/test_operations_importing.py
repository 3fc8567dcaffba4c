"""Files with intents of both forms: an import elsewhere answers what the first registry answers."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from test_importing import NOW_MS, World

from muniment.service.context import Context
from muniment.service.storage.database import Transaction
from operator_client import FAR_DEADLINE, IntentDraft, OperationsDraft, log, operations_proposal, proposal

pytestmark = pytest.mark.spoils_events("rows are removed between two imports")
TABLES = (
    "audit_entries", "intent_logs", "intent_proposals", "intent_users", "intent_ops", "intent_nonces", "intents",
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


def of_one_nonce(fee: int, deadline: int, **members: Any) -> OperationsDraft:
    """Intents that differ in their fee and deadline."""
    fees = [{"token": "0x" + "22" * 20, "amount": str(fee)}]
    return OperationsDraft(deadline=deadline, members={"maxFees": fees, **members})


PAST = NOW_MS // 1_000


async def test_a_line_whose_nonce_another_intent_has_is_refused_while_it_can_be_executed(
    world: World, client: httpx2.AsyncClient
) -> None:
    first, second = of_one_nonce(1, PAST), of_one_nonce(2, PAST + 1)
    tally = await world.run(json.dumps(first.body).encode() + b"\n" + json.dumps(second.body).encode())
    assert (tally.stored, tally.refused) == (1, 1)
    ((number, refusal),) = world.refused
    assert (number, refusal.code, refusal.facts) == (2, "nonce-taken", {"intent": first.hash})
    assert world.shared == []
    assert (await client.get(f"/intents/{second.hash}")).status_code == 404


@pytest.mark.parametrize("status", ["created", "succeeded"])
async def test_lines_past_their_deadline_are_recorded_and_reported(
    world: World, client: httpx2.AsyncClient, context: Context, status: str
) -> None:
    first, second = of_one_nonce(1, PAST - 5), of_one_nonce(2, PAST - 3, status=status)
    tally = await world.run(json.dumps(first.body).encode() + b"\n" + json.dumps(second.body).encode())
    assert (tally.stored, tally.refused) == (2, 0)
    assert world.shared == [(2, f"two intents share a nonce: {second.hash} and {first.hash}")]
    # The nonce is held until the last of the two deadlines, or by the one that succeeded.
    ((holder, deadline),) = await context.database.fetch("SELECT intent_hash, deadline FROM intent_nonces")
    if status == "succeeded":
        assert ("0x" + holder.hex(), deadline) == (second.hash, None)
    else:
        assert ("0x" + holder.hex(), int.from_bytes(deadline)) == (first.hash, PAST - 3)
    exported = await world.export()
    await world.run(exported)
    assert len(world.shared) == 1
    assert len((await client.get("/intents?generation=all")).json()) == 2
