"""Intents of generation 2 through every door of an operator: each is recorded and answered in its own form."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal

from answers import ok
from conftest import Clock
from muniment.service.context import Context
from operator_client import (
    DEADLINE,
    HEX32,
    IntentDraft,
    OperationsDraft,
    OperatorClient,
    hash_of_proposal,
    log,
    operations_proposal,
    operator_key,
    proposal,
)

DRAFT = OperationsDraft()


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(client, await operator_key(context))


async def stored(operator: OperatorClient) -> list[Any]:
    return (await operator.client.get("/intents?generation=all")).json()


async def test_an_intent_is_answered_in_its_own_form(operator: OperatorClient) -> None:
    answer = (await operator.put(DRAFT)).json()
    assert answer == {
        **DRAFT.body, "hash": DRAFT.hash, "executionHash": "0x", "createdAt": "2026-11-20T19:48:00.123Z",
        "status": "created", "generation": 2, "proposals": [], "logs": [],
    }  # fmt: skip
    assert await operator.read(DRAFT.hash) == answer


async def test_the_answer_can_be_put_as_it_is(operator: OperatorClient) -> None:
    await operator.recorded(DRAFT.saying(proposals=[operations_proposal()], logs=[log()]))
    answer = await operator.read(DRAFT.hash)
    again = await operator.client.put(f"/intents/{DRAFT.hash}", json=answer, headers=operator.headers)
    assert again.json() == answer


async def test_validations_are_accepted_and_not_returned(operator: OperatorClient) -> None:
    for draft in (IntentDraft(), DRAFT):
        answer = ok(await operator.put(draft.saying(validations=["0x" + "11" * 65])))
        assert answer.json() == await operator.read(draft.hash)
        assert "validations" not in answer.json()


BOTH = ("op, user, data, events, configSig", "feePayer, triggerSig, operations")


@pytest.mark.one_engine
async def test_members_of_both_forms_are_refused_with_the_names_of_both(operator: OperatorClient) -> None:
    mixed: list[tuple[IntentDraft, dict[str, Any]]] = [
        (IntentDraft(), {"operations": []}), (IntentDraft(), {"feePayer": None}), (DRAFT, {"op": 1}),
        (DRAFT, {"data": 7}),
    ]  # fmt: skip
    for draft, more in mixed:
        response = await operator.put(draft.saying(**more), draft.hash)
        detail = check_refusal(response, 400, "invalid-body")["detail"]
        assert all(names in detail for names in BOTH), more
    assert await stored(operator) == []


@pytest.mark.one_engine
async def test_a_body_of_neither_form_is_refused_with_the_names_of_both(operator: OperatorClient) -> None:
    response = await operator.client.put(f"/intents/{HEX32}", json={"settler": 1}, headers=operator.headers)
    detail = check_refusal(response, 400, "invalid-body")["detail"]
    assert all(names in detail for names in BOTH)


OPERATION = DRAFT.body["operations"][0]
REFUSED = {
    "no operation": ({"operations": []}, "/operations"),
    "33 operations": ({"operations": [OPERATION] * 33}, "/operations"),
    "an operation type of 5": ({"operations": [{**OPERATION, "opType": 5}]}, "/operations/0/opType"),
    "a negative operation type": ({"operations": [{**OPERATION, "opType": -1}]}, "/operations/0/opType"),
    "a short trigger signature": ({"triggerSig": "0x" + "11" * 64}, "/triggerSig"),
    "a long trigger signature": ({"triggerSig": "0x" + "11" * 66}, "/triggerSig"),
    "no payer of fees": ({"feePayer": None}, "/feePayer"),
}


@pytest.mark.one_engine
async def test_a_wrong_member_is_refused_where_it_stands(operator: OperatorClient, subtests: pytest.Subtests) -> None:
    for row, (members, pointer) in REFUSED.items():
        with subtests.test(row):
            problem = (await operator.put(DRAFT.saying(**members), DRAFT.hash)).json()
            assert (problem["status"], [each["pointer"] for each in problem["errors"]]) == (400, [pointer])
    assert await stored(operator) == []


async def test_32_operations_of_every_type_are_recorded(operator: OperatorClient) -> None:
    operations = [{**OPERATION, "opType": n % 5} for n in range(32)]
    draft = DRAFT.saying(operations=operations)
    assert (await operator.put(draft)).json()["operations"] == operations


@pytest.mark.one_engine
async def test_another_hash_is_refused_with_the_computed_one(operator: OperatorClient) -> None:
    problem = check_refusal(await operator.put(DRAFT, HEX32), 400, "hash-mismatch", parameter="hash")
    assert problem["computed"] == DRAFT.hash


@pytest.mark.one_engine
async def test_a_proposal_needs_as_many_datas_as_the_intent_has_operations(operator: OperatorClient) -> None:
    of = await operator.recorded(DRAFT)
    several: list[list[str]] = [[], ["0x"], ["0x"] * 3]
    for datas in several:
        appended = await operator.append(of, "proposals", operations_proposal(datas=datas))
        assert [each["pointer"] for each in appended.json()["errors"]] == ["/datas"], datas
        draft = OperationsDraft(2).saying(proposals=[operations_proposal(), operations_proposal(2, datas=datas)])
        sent = await operator.put(draft, OperationsDraft(2).hash)
        assert [each["pointer"] for each in sent.json()["errors"]] == ["/proposals/1/datas"], datas
        assert (appended.status_code, sent.status_code) == (400, 400), datas
    assert [each["proposals"] for each in await stored(operator)] == [[]]


@pytest.mark.one_engine
async def test_a_proposal_of_the_other_form_is_refused(operator: OperatorClient) -> None:
    for draft, body in ((IntentDraft(), operations_proposal()), (DRAFT, proposal())):
        of = await operator.recorded(draft)
        check_refusal(await operator.append(of, "proposals", body), 400, "invalid-intent")
        sent = await operator.put(draft.saying(proposals=[body]), draft.hash)
        check_refusal(sent, 400, "invalid-body", pointer="/proposals/0")
        assert (await operator.read(of))["proposals"] == []


@pytest.mark.one_engine
async def test_a_proposal_with_data_and_datas_is_refused(operator: OperatorClient) -> None:
    for draft in (IntentDraft(), DRAFT):
        of, both = await operator.recorded(draft), {**proposal(), **operations_proposal()}
        check_refusal(await operator.append(of, "proposals", both), 400, "invalid-body")
        refused = await operator.put(draft.saying(proposals=[both]), of)
        check_refusal(refused, 400, "invalid-body", pointer="/proposals/0")


async def test_a_proposal_is_answered_in_its_own_form_and_is_one(operator: OperatorClient) -> None:
    of = await operator.recorded(DRAFT)
    answer = await operator.append(of, "proposals", operations_proposal())
    assert answer.json() == {
        **operations_proposal(), "hash": hash_of_proposal(of, operations_proposal()), "feeUsd": "0",
        "status": "received", "description": "", "signatures": [], "verified": None, "signers": [],
    }  # fmt: skip
    await operator.append(of, "proposals", operations_proposal(status="accepted"))
    assert [each["status"] for each in (await operator.read(of))["proposals"]] == ["accepted"]


async def test_logs_are_appended_once(operator: OperatorClient) -> None:
    of = await operator.recorded(DRAFT)
    for number in (1, 2, 1):
        assert (await operator.append(of, "logs", log(number))).status_code == 200
    assert [each["data"] for each in (await operator.read(of))["logs"]] == ["line 1", "line 2"]


async def test_statuses_move_and_conflict_as_in_the_first_form(operator: OperatorClient) -> None:
    of = await operator.recorded(DRAFT.saying(proposals=[operations_proposal()]))
    name = hash_of_proposal(of, operations_proposal())
    assert (await operator.move(of, "accepted", proposal=name)).json()["proposals"][0]["status"] == "accepted"
    for status in ("enqueued", "submitted"):
        assert (await operator.move(of, status)).json()["status"] == status
    check_refusal(await operator.move(of, "enqueued"), 409, "status-conflict")
    answer = (await operator.move(of, "succeeded", transactionHash=HEX32)).json()
    assert (answer["transactionHash"], answer["proposals"][0]["transactionHash"]) == (HEX32, HEX32)
    check_refusal(await operator.put(DRAFT.saying(transactionHash="0x" + "cd" * 32)), 409, "intent-differs")


async def test_it_expires_with_its_deadline(operator: OperatorClient, clock: Clock) -> None:
    of = await operator.recorded(DRAFT)
    etag = (await operator.client.get(f"/intents/{of}")).headers["etag"]
    clock.now_ms = DEADLINE * 1_000
    response = await operator.client.get(f"/intents/{of}", headers={"if-none-match": etag})
    assert response.json()["status"] == "expired"


async def test_an_unknown_intent_takes_nothing(operator: OperatorClient) -> None:
    for response in (
        await operator.append(HEX32, "proposals", operations_proposal()),
        await operator.append(HEX32, "logs", log()),
        await operator.move(HEX32, "enqueued"),
    ):
        check_refusal(response, 404, "intent-not-found")


FIRST_FORM = (
    "/intents", "/intents?sort=1", "/intents?limit=1", "/intents?offset=1", "/intents?status=created",
    "/intents?user={user}", "/intents?op=1", "/intents?op=4", "/intents?settler={settler}",
    "/intents?configSig={configSig}", "/intents?deadlineAfter=1", "/intents?createdAfter=1", "/intents?generation=1",
    "/intents?limit=1&offset=2000", "/intents?op=4&generation=1",
)  # fmt: skip


async def test_clients_of_the_first_form_never_meet_the_second(operator: OperatorClient) -> None:
    drafts = [IntentDraft(number).saying(proposals=[proposal()], logs=[log()]) for number in (1, 2, 3)]
    for draft in drafts:
        await operator.recorded(draft)
    targets = [each.format(**drafts[0].body) for each in FIRST_FORM]
    targets += [f"/intents/{draft.hash}" for draft in drafts]
    before = [await operator.client.get(target) for target in targets]
    for number in range(5):
        await operator.recorded(OperationsDraft(number).saying(proposals=[operations_proposal()], logs=[log()]))
    after = [await operator.client.get(target) for target in targets]
    assert [(each.status_code, each.headers.get("link"), body_of(each)) for each in after] == [
        (each.status_code, each.headers.get("link"), body_of(each)) for each in before
    ]


def body_of(response: httpx2.Response) -> bytes:
    """The bytes of an answer; of a problem, without the id of its request."""
    if response.status_code == 200:
        return response.content
    return json.dumps({**response.json(), "requestId": ""}).encode()
