"""A settlement contract of generation 2 executes two intents of one nonce: so one nonce is one intent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest
from intents_world import record_at
from trigger_world import check_refusal

from conftest import NOW_MS, Clock
from muniment.protocol.errors import NonceTaken
from muniment.protocol.evm.address import Address
from muniment.protocol.intents.lifecycle import Moment
from muniment.service.context import Context
from muniment.service.resources.intents.chain_facts import Fact, apply_to_subjects, insert_facts
from muniment.service.storage import open_database
from muniment.service.storage.database import Database
from operator_client import (
    DEADLINE,
    SETTLER,
    IntentDraft,
    OperationsDraft,
    OperatorClient,
    hash_of_proposal,
    operations_proposal,
    operator_key,
)

# The grace of the settings.
HOUR = 3_600
FIRST = OperationsDraft()
TOKEN = "0x" + "22" * 20


def of_one_nonce(number: int, deadline: int = DEADLINE) -> OperationsDraft:
    """Another intent with the nonce of `FIRST`, for each number: its fee is another."""
    return OperationsDraft(deadline=deadline).saying(maxFees=[{"token": TOKEN, "amount": str(number)}])


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(client, await operator_key(context))


async def refused(operator: OperatorClient, draft: OperationsDraft, *, names: str) -> None:
    """Check that the intent is refused for the one with the hash `names`, and is stored nowhere."""
    before = await everything(operator)
    problem = check_refusal(await operator.put(draft), 409, "nonce-taken")
    assert problem["intent"] == names
    assert names in problem["detail"]
    assert (await operator.client.get(f"/intents/{draft.hash}")).status_code == 404
    assert await everything(operator) == before


async def everything(operator: OperatorClient) -> Any:
    events = await operator.client.get("/events?limit=100")
    return (await operator.client.get("/intents?generation=all&limit=100")).json(), events.json()


async def test_another_intent_of_one_nonce_is_refused_and_the_first_stays(operator: OperatorClient) -> None:
    await operator.recorded(FIRST)
    await refused(operator, of_one_nonce(1), names=FIRST.hash)
    assert (await operator.put(FIRST)).status_code == 200
    assert (await operator.put(FIRST.saying(proposals=[operations_proposal()]))).status_code == 200


async def test_another_settler_trigger_or_nonce_is_another_matter(operator: OperatorClient) -> None:
    await operator.recorded(FIRST)
    other = of_one_nonce(1)
    for draft in (
        other.saying(settler=TOKEN), other.saying(triggerSig="0x" + "13" * 64 + "1b"),
        OperationsDraft(2), IntentDraft(), IntentDraft(deadline=DEADLINE + 1),
    ):  # fmt: skip
        assert (await operator.put(draft)).status_code == 200, draft


@pytest.mark.parametrize("moves", [["discarded"], ["enqueued", "submitted", "failed"]], ids=lambda moves: moves[-1])
async def test_a_nonce_is_held_until_the_deadline_and_the_grace_whatever_the_claimed_status(
    operator: OperatorClient, clock: Clock, moves: list[str]
) -> None:
    await operator.recorded(FIRST)
    for status in moves:
        assert (await operator.move(FIRST.hash, status)).status_code == 200
    other = of_one_nonce(1, DEADLINE + 10 * HOUR)
    left_ms = (DEADLINE + HOUR) * 1_000 - NOW_MS
    clock.advance(seconds=(left_ms - 1) / 1_000)
    await refused(operator, other, names=FIRST.hash)
    clock.advance(seconds=0.001)
    assert (await operator.put(other)).status_code == 200
    await refused(operator, of_one_nonce(2, DEADLINE + 10 * HOUR), names=other.hash)


async def test_a_nonce_of_an_intent_that_succeeded_is_held_for_ever(operator: OperatorClient, clock: Clock) -> None:
    late = OperationsDraft(2)
    await operator.recorded(FIRST.saying(status="succeeded"))
    await operator.recorded(late.saying(status="submitted"))
    assert (await operator.move(late.hash, "succeeded")).status_code == 200
    clock.advance(hours=24 * 400)
    far = DEADLINE + 24 * 500 * HOUR
    await refused(operator, of_one_nonce(1, far), names=FIRST.hash)
    again = OperationsDraft(2, far)
    await refused(operator, again, names=late.hash)


def executed(subject: str) -> Fact:
    """The fact that the chain has executed an intent, told by its own hash or that of a proposal."""
    settler = Address.parse(SETTLER).raw
    return Fact(1, 7, b"\x01" * 32, b"\x02" * 32, 3, settler, bytes.fromhex(subject[2:]), "succeeded")


@pytest.mark.parametrize("told_by", ["the intent", "its proposal"])
async def test_what_the_chain_executed_holds_its_nonce_for_ever_though_another_intent_had_it_meanwhile(
    operator: OperatorClient, context: Context, clock: Clock, told_by: str
) -> None:
    await operator.recorded(FIRST.saying(proposals=[operations_proposal()]))
    clock.advance(seconds=DEADLINE + HOUR - NOW_MS // 1_000)
    meanwhile = of_one_nonce(1, DEADLINE + 2 * HOUR)
    assert (await operator.put(meanwhile)).status_code == 200
    subject = FIRST.hash if told_by == "the intent" else hash_of_proposal(FIRST.hash, operations_proposal())
    fact = executed(subject)
    moment = Moment(context.clock.now_ms(), HOUR)

    async def watch(tx: Any) -> None:
        await insert_facts(tx, [fact])
        assert await apply_to_subjects(tx, [fact.subject], moment) == 1

    await context.database.write(watch)
    assert (await operator.read(FIRST.hash))["status"] == "succeeded"
    clock.advance(hours=24 * 400)
    await refused(operator, of_one_nonce(2, DEADLINE + 24 * 500 * HOUR), names=FIRST.hash)


async def test_of_twelve_at_once_one_is_recorded_and_eleven_are_refused(operator: OperatorClient) -> None:
    drafts = [of_one_nonce(number) for number in range(12)]
    answers = await asyncio.gather(*(operator.put(draft) for draft in drafts))
    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 11]
    (recorded,) = (await operator.client.get("/intents?generation=all")).json()
    assert {answer.json()["intent"] for answer in answers if answer.status_code == 409} == {recorded["hash"]}


@pytest.fixture
async def processes(context: Context) -> AsyncIterator[list[Database]]:
    """Three processes' databases, as far as the engine can tell."""
    async with AsyncExitStack() as stack:
        opened = [open_database(context.settings.database_url, data_dir=context.settings.data_dir) for _ in range(3)]
        for each in opened:
            stack.push_async_callback(each.close)
        yield opened


async def test_of_twelve_at_once_through_three_processes_one_is_recorded(
    processes: list[Database], context: Context
) -> None:
    bodies = [of_one_nonce(number).body for number in range(12)]
    outcomes = await asyncio.gather(
        *(
            record_at(context, (NOW_MS, body), database=processes[number % 3])
            for number, body in enumerate(bodies)
        ),
        return_exceptions=True,
    )  # fmt: skip
    recorded = [each[0] for each in outcomes if isinstance(each, list)]
    refusals = [each for each in outcomes if isinstance(each, NonceTaken)]
    assert (len(recorded), len(refusals)) == (1, 11), outcomes
    assert {each.facts["intent"] for each in refusals} == {*recorded}
    assert [each for (each,) in await context.database.fetch("SELECT hash FROM intents WHERE generation = 2")] == [
        bytes.fromhex(recorded[0][2:])
    ]


async def test_simultaneous_puts_of_one_intent_record_it_once(operator: OperatorClient) -> None:
    answers = await asyncio.gather(*(operator.put(FIRST) for _ in range(12)))
    assert {answer.status_code for answer in answers} == {200}
    assert len((await operator.client.get("/intents?generation=all")).json()) == 1
