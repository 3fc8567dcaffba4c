"""GET /intents/{hash}/moves: when an intent got each of its statuses, as far as it was written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal

from conftest import NOW_MS, Clock
from muniment.protocol.evm.address import Address
from muniment.protocol.intents.lifecycle import Moment
from muniment.service.context import Context
from muniment.service.resources.intents.chain_facts import Fact, apply_to_subjects, insert_facts
from operator_client import (
    DEADLINE,
    HEX32,
    SETTLER,
    IntentDraft,
    OperationsDraft,
    OperatorClient,
    hash_of_proposal,
    operations_proposal,
    operator_key,
    proposal,
)

Shown = list[tuple[str, int | None]]
GRACE_S = 3_600


@pytest.fixture(params=[IntentDraft, OperationsDraft], ids=["first", "second"])
def draft(request: pytest.FixtureRequest) -> IntentDraft:
    """An intent of each form."""
    return request.param()


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(client, await operator_key(context, "secretive"))


async def moves(operator: OperatorClient, of: str) -> Shown:
    """Statuses, each with the seconds from the beginning of the test; None for a time that is not known."""
    response = await operator.client.get(f"/intents/{of}/moves")
    assert response.status_code == 200, response.text
    assert "secretive" not in response.text
    return [(each["status"], (each["at"] - NOW_MS) // 1_000 if "at" in each else None) for each in response.json()]


async def test_each_move_has_its_time(operator: OperatorClient, draft: IntentDraft, clock: Clock) -> None:
    of = await operator.recorded(draft)
    assert (await operator.client.get(f"/intents/{of}/moves")).json() == [{"status": "created", "at": NOW_MS}]
    expected: Shown = [("created", 0)]
    for number, status in enumerate(["enqueued", "submitted", "succeeded"], 1):
        clock.advance(seconds=10)
        await operator.move(of, status)
        expected.append((status, 10 * number))
        assert await moves(operator, of) == expected


async def test_what_is_no_move_of_the_intent_changes_nothing(
    operator: OperatorClient, draft: IntentDraft, clock: Clock
) -> None:
    offer = (operations_proposal if isinstance(draft, OperationsDraft) else proposal)(1)
    of = await operator.recorded(draft.saying(proposals=[offer]))
    clock.advance(seconds=10)
    await operator.move(of, "enqueued")
    clock.advance(seconds=10)
    answers = [
        await operator.move(of, "enqueued"),
        await operator.move(of, "enqueued", transactionHash=HEX32),
        await operator.move(of, "accepted", proposal=hash_of_proposal(of, offer)),
        await operator.move(of, "succeeded"),
        await operator.put(draft),
    ]
    assert [each.status_code for each in answers] == [200, 200, 200, 409, 200]
    await operator.append(of, "logs", {"level": "info", "data": "move to submitted"})
    assert await moves(operator, of) == [("created", 0), ("enqueued", 10)]


async def test_the_time_of_a_status_with_which_it_arrived_is_not_known(
    operator: OperatorClient, draft: IntentDraft, clock: Clock
) -> None:
    of = await operator.recorded(draft.saying(status="submitted"))
    clock.advance(seconds=10)
    await operator.move(of, "submitted")  # a repetition is no move
    assert await moves(operator, of) == [("created", 0), ("submitted", None)]
    clock.advance(seconds=10)
    await operator.move(of, "failed")
    assert await moves(operator, of) == [("created", 0), ("failed", 20)]


async def test_a_status_that_comes_with_the_whole_intent_again_is_a_move(
    operator: OperatorClient, draft: IntentDraft, clock: Clock
) -> None:
    of = await operator.recorded(draft)
    clock.advance(seconds=10)
    for _ in range(2):
        await operator.put(draft.saying(status="submitted"))
        clock.advance(seconds=10)
    assert await moves(operator, of) == [("created", 0), ("submitted", 10)]


async def test_an_intent_expires_at_its_deadline(operator: OperatorClient, draft: IntentDraft, clock: Clock) -> None:
    of = await operator.recorded(draft)
    clock.advance(seconds=10)
    await operator.move(of, "enqueued")
    clock.now_ms = DEADLINE * 1_000 - 1
    assert await moves(operator, of) == [("created", 0), ("enqueued", 10)]
    clock.now_ms += 10_000_000
    response = await operator.client.get(f"/intents/{of}/moves")
    assert response.json()[2:] == [{"status": "expired", "at": DEADLINE * 1_000}]


async def test_a_submitted_one_expires_after_the_grace(
    operator: OperatorClient, draft: IntentDraft, clock: Clock
) -> None:
    of = await operator.recorded(draft.saying(status="submitted"))
    clock.now_ms = (DEADLINE + GRACE_S) * 1_000
    last = (await operator.client.get(f"/intents/{of}/moves")).json()[-1]
    assert last == {"status": "expired", "at": clock.now_ms}


def success_of(intent: str) -> Fact:
    """An event of the settler that the intent was executed."""
    settler = Address.parse(SETTLER).raw
    return Fact(8453, 7, b"\x01" * 32, b"\x02" * 32, 3, settler, bytes.fromhex(intent[2:]), "succeeded")


async def chain_tells(context: Context, intent: str) -> None:
    """The watcher has read that the intent was executed."""
    fact, moment = success_of(intent), Moment(context.clock.now_ms(), GRACE_S)
    await context.database.write(lambda tx: insert_facts(tx, [fact]))
    await context.database.write(lambda tx: apply_to_subjects(tx, [fact.subject], moment))


async def test_the_chain_decides_when_the_watcher_reads_it(
    operator: OperatorClient, context: Context, draft: IntentDraft, clock: Clock
) -> None:
    of = await operator.recorded(draft.saying(status="submitted"))
    clock.advance(seconds=10)
    await chain_tells(context, of)
    clock.advance(seconds=10)
    await operator.move(of, "succeeded")
    assert await moves(operator, of) == [("created", 0), ("succeeded", 10)]


async def test_the_chain_confirms_what_an_operator_said_before(
    operator: OperatorClient, context: Context, draft: IntentDraft, clock: Clock
) -> None:
    of = await operator.recorded(draft.saying(status="submitted"))
    clock.advance(seconds=10)
    await operator.move(of, "succeeded")
    clock.advance(seconds=10)
    await chain_tells(context, of)
    assert await moves(operator, of) == [("created", 0), ("succeeded", 10)]


async def test_an_unknown_intent_has_no_moves(operator: OperatorClient, nothing_stored: Callable[[], Any]) -> None:
    async with nothing_stored():
        check_refusal(await operator.client.get(f"/intents/{HEX32}/moves"), 404, "intent-not-found")
        check_refusal(await operator.client.get("/intents/0x12/moves"), 400, "invalid-hex")
