"""POST /intents/{hash}/status: one step of the diagram at a time, from the status as read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal

from conftest import Clock
from muniment.protocol.intents.lifecycle import INTENT_MOVES, PROPOSAL_MOVES, reachable
from muniment.service.context import Context
from operator_client import (
    HEX32,
    IntentDraft,
    OperationsDraft,
    OperatorClient,
    hash_of_proposal,
    operations_proposal,
    operator_key,
    proposal,
)

NothingStored = Callable[[], Any]
OTHER = "0x" + "cd" * 32
INTENT = {
    "created": ["enqueued", "discarded"], "enqueued": ["submitted", "discarded"], "submitted": ["succeeded", "failed"],
    "discarded": [], "succeeded": [], "failed": [],
}  # fmt: skip
DAY_S = 86_400


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(client, await operator_key(context))


async def test_an_intent_moves_one_step_and_no_other(
    operator: OperatorClient, nothing_stored: NothingStored, subtests: pytest.Subtests
) -> None:
    for number, status in enumerate(INTENT):
        of = await operator.recorded(IntentDraft(number, members={"status": status}))
        refused = {*INTENT, "expired"} - {status, *INTENT[status]}
        async with nothing_stored():
            for wanted in sorted(refused):
                with subtests.test(status, wanted=wanted):
                    check_refusal(await operator.move(of, wanted), 409, "status-conflict", pointer="/status")
        for other, wanted in enumerate([status, *INTENT[status]]):
            with subtests.test(status, wanted=wanted):
                of = await operator.recorded(IntentDraft(100 * (number + 1) + other, members={"status": status}))
                answer = await operator.move(of, wanted)
                assert (answer.status_code, answer.json()) == (200, await operator.read(of))
                assert answer.json()["status"] == wanted


async def test_a_refused_move_names_those_that_are_allowed(operator: OperatorClient) -> None:
    of = await operator.recorded()
    detail = check_refusal(await operator.move(of, "succeeded"), 409, "status-conflict")["detail"]
    assert "created" in detail
    assert "enqueued or discarded" in detail


async def test_a_proposal_moves_to_any_status_that_can_follow(
    operator: OperatorClient, nothing_stored: NothingStored, subtests: pytest.Subtests
) -> None:
    for number, status in enumerate(PROPOSAL_MOVES):
        offer = proposal(status=status)
        of = await operator.recorded(IntentDraft(number, members={"proposals": [offer]}))
        follow = {status, *reachable(PROPOSAL_MOVES, status)}
        async with nothing_stored():
            for wanted in [each for each in PROPOSAL_MOVES if each not in follow]:
                with subtests.test(status, wanted=wanted):
                    refused = await operator.move(of, wanted, proposal=hash_of_proposal(of, offer))
                    check_refusal(refused, 409, "status-conflict")
        for other, wanted in enumerate(sorted(follow)):
            with subtests.test(status, wanted=wanted):
                of = await operator.recorded(IntentDraft(100 * (number + 1) + other, members={"proposals": [offer]}))
                answer = await operator.move(of, wanted, proposal=hash_of_proposal(of, offer), transactionHash=HEX32)
                assert answer.status_code == 200, answer.text
                (shown,) = answer.json()["proposals"]
                assert (shown["status"], shown["transactionHash"]) == (wanted, HEX32)
                assert answer.json()["status"] == "created"


async def test_a_transaction_of_the_intent_is_also_that_of_its_one_proposal_under_way(
    operator: OperatorClient, subtests: pytest.Subtests
) -> None:
    for number, status in enumerate(PROPOSAL_MOVES):
        with subtests.test(status):
            offers = [proposal(1, status="rejected"), proposal(2, status=status)]
            of = await operator.recorded(IntentDraft(number, members={"status": "enqueued", "proposals": offers}))
            answer = (await operator.move(of, "submitted", transactionHash=HEX32)).json()
            assert answer["transactionHash"] == HEX32
            under_way = status in {"accepted", "submitted"}
            assert [each.get("transactionHash") for each in answer["proposals"]] == [None, HEX32 if under_way else None]
            assert await operator.read(of) == answer
            assert (await operator.move(of, "submitted", transactionHash=HEX32)).json() == answer


async def test_a_transaction_of_the_intent_is_that_of_no_proposal_where_several_are_under_way(
    operator: OperatorClient,
) -> None:
    offers = [proposal(1, status="accepted"), proposal(2, status="submitted")]
    of = await operator.recorded(IntentDraft(members={"status": "enqueued", "proposals": offers}))
    answer = (await operator.move(of, "submitted", transactionHash=HEX32)).json()
    assert [each.get("transactionHash") for each in answer["proposals"]] == [None, None]


async def test_a_transaction_of_the_intent_leaves_that_of_a_proposal_as_it_is(operator: OperatorClient) -> None:
    offers = [proposal(1, status="accepted", transactionHash=OTHER)]
    of = await operator.recorded(IntentDraft(members={"status": "enqueued", "proposals": offers}))
    answer = (await operator.move(of, "submitted", transactionHash=HEX32)).json()
    assert (answer["transactionHash"], answer["proposals"][0]["transactionHash"]) == (HEX32, OTHER)


@pytest.mark.parametrize(
    ("draft", "offered"),
    [(IntentDraft(), proposal), (OperationsDraft(), operations_proposal)],
    ids=["first", "second"],
)  # fmt: skip
async def test_a_transaction_that_is_told_again_stays_with_the_proposal_that_it_was_told_for(
    operator: OperatorClient, draft: IntentDraft, offered: Callable[..., dict[str, Any]]
) -> None:
    offers = [offered(1, status="accepted"), offered(2)]
    of = await operator.recorded(draft.saying(status="enqueued", proposals=offers))
    told = (await operator.move(of, "submitted", transactionHash=HEX32)).json()
    assert [each.get("transactionHash") for each in told["proposals"]] == [HEX32, None]
    for offer, status in ((offers[0], "failed"), (offers[1], "accepted")):
        answer = await operator.move(of, status, proposal=hash_of_proposal(of, offer))
        assert answer.status_code == 200, answer.text
    again = await operator.move(of, "submitted", transactionHash=HEX32)
    assert again.json() == answer.json()


async def test_a_transaction_is_set_once(operator: OperatorClient, nothing_stored: NothingStored) -> None:
    of = await operator.recorded(IntentDraft(members={"status": "enqueued"}))
    answer = await operator.move(of, "submitted", transactionHash=HEX32)
    assert answer.json()["transactionHash"] == HEX32
    again = await operator.move(of, "submitted", transactionHash=HEX32, destTransactionHash=OTHER)
    assert again.json()["destTransactionHash"] == OTHER
    async with nothing_stored():
        check_refusal(await operator.move(of, "succeeded", transactionHash=OTHER), 409, "intent-differs")
        check_refusal(await operator.move(of, "succeeded", destTransactionHash=HEX32), 409, "intent-differs")
    assert (await operator.move(of, "succeeded")).json()["transactionHash"] == HEX32


@pytest.mark.parametrize(("status", "seconds"), [("created", DAY_S), ("enqueued", DAY_S), ("submitted", DAY_S + 3_600)])
async def test_an_intent_with_the_status_expired_does_not_move(
    operator: OperatorClient, clock: Clock, nothing_stored: NothingStored, status: str, seconds: int
) -> None:
    of = await operator.recorded(IntentDraft(members={"status": status}))
    clock.advance(seconds=seconds)
    assert (await operator.move(of, "expired")).json()["status"] == "expired"
    assert (await operator.move(of, status)).json()["status"] == "expired"  # told again what was told in time
    for wanted in INTENT_MOVES[status]:
        async with nothing_stored():
            check_refusal(await operator.move(of, wanted), 409, "status-conflict")
            refused = await operator.put(IntentDraft(members={"status": wanted}))
            check_refusal(refused, 409, "status-conflict")


async def test_a_submitted_intent_moves_within_the_grace(operator: OperatorClient, clock: Clock) -> None:
    of = await operator.recorded(IntentDraft(members={"status": "submitted"}))
    clock.advance(seconds=DAY_S + 3_599)
    assert (await operator.read(of))["status"] == "submitted"
    assert (await operator.move(of, "succeeded")).json()["status"] == "succeeded"


async def test_the_same_status_again_changes_nothing(operator: OperatorClient) -> None:
    of = await operator.recorded(IntentDraft(members={"status": "submitted"}))
    before = await operator.client.get(f"/intents/{of}")
    answer = await operator.move(of, "submitted")
    assert (answer.status_code, answer.json()) == (200, before.json())
    assert (await operator.client.get(f"/intents/{of}")).headers["etag"] == before.headers["etag"]


async def test_an_unknown_intent_or_proposal_does_not_move(
    operator: OperatorClient, nothing_stored: NothingStored
) -> None:
    of = await operator.recorded(IntentDraft(1, members={"proposals": [proposal()]}))
    other = await operator.recorded(IntentDraft(2))
    async with nothing_stored():
        check_refusal(await operator.move(HEX32, "enqueued"), 404, "intent-not-found")
        check_refusal(await operator.move(of, "accepted", proposal=HEX32), 404, "proposal-not-found")
        named = hash_of_proposal(of, proposal())
        check_refusal(await operator.move(other, "accepted", proposal=named), 404, "proposal-not-found")


@pytest.mark.one_engine
async def test_an_unknown_status_is_refused(operator: OperatorClient, nothing_stored: NothingStored) -> None:
    of = await operator.recorded(IntentDraft(members={"proposals": [proposal()]}))
    async with nothing_stored():
        for named in ({}, {"proposal": hash_of_proposal(of, proposal())}):
            for status in ("", "done", "CREATED", "created "):
                check_refusal(await operator.move(of, status, **named), 400, "invalid-intent", pointer="/status")


@pytest.mark.one_engine
async def test_a_browser_may_put(operator: OperatorClient) -> None:
    asked = {"origin": "https://app.test", "access-control-request-method": "PUT",
             "access-control-request-headers": "x-operator-key"}  # fmt: skip
    answer = await operator.client.options(f"/intents/{HEX32}", headers=asked)
    assert answer.headers["allow"] == answer.headers["access-control-allow-methods"] == "GET, HEAD, PUT, OPTIONS"
    assert answer.headers["access-control-allow-headers"] == "x-operator-key"
    wrong = await operator.client.delete(f"/intents/{HEX32}")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, PUT, OPTIONS")
