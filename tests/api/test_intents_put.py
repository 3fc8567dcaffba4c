"""PUT /intents/{hash}: a whole intent is recorded once, and recorded facts stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal

from conftest import Clock
from muniment.service.context import Context
from operator_client import (
    DEADLINE,
    HEX32,
    SETTLER,
    USER,
    IntentDraft,
    OperatorClient,
    hash_of_proposal,
    log,
    operator_key,
    proposal,
)

NothingStored = Callable[[], Any]
OTHER = "0x" + "cd" * 32


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(client, await operator_key(context))


async def written(context: Context) -> dict[str, Any]:
    """Every row about intents; the audit log names repetitions too."""
    tables = ("intents", "intent_proposals", "intent_logs")
    return {name: await context.database.fetch(f"SELECT * FROM {name}") for name in tables}


async def test_an_intent_is_answered_with_every_field_of_the_interface(operator: OperatorClient) -> None:
    draft = IntentDraft()
    answer = (await operator.put(draft)).json()
    assert answer == {
        **draft.body, "hash": draft.hash, "executionHash": "0x", "createdAt": "2026-11-20T19:48:00.123Z",
        "status": "created", "generation": 1, "proposals": [], "logs": [],
    }  # fmt: skip
    assert await operator.read(draft.hash) == answer


async def test_every_member_of_an_intent_is_kept(operator: OperatorClient) -> None:
    line = {"level": "warning", "data": "slow", "createdAt": "2026-11-20T19:00:00.001Z"}
    offer = proposal(
        status="accepted", feeUsd="7", description="best", transactionHash=HEX32, destTransactionHash=OTHER
    )
    draft = IntentDraft(members={
        "executionHash": "0xaa", "status": "enqueued", "transactionHash": HEX32, "destTransactionHash": OTHER,
        "proposals": [offer], "logs": [line, log()],
    })  # fmt: skip
    answer = (await operator.put(draft)).json()
    shown = {**offer, "hash": hash_of_proposal(draft.hash, offer), "signatures": [], "verified": None, "signers": []}
    assert answer["proposals"] == [shown]
    assert answer["logs"] == [line, {**log(), "createdAt": "2026-11-20T19:48:00.123Z"}]
    assert {name: answer[name] for name in draft.members} == {
        **draft.members, "proposals": answer["proposals"], "logs": answer["logs"],
    }  # fmt: skip
    assert await operator.read(draft.hash) == answer


async def test_the_same_put_twice_makes_one_record(operator: OperatorClient, context: Context) -> None:
    draft = IntentDraft(members={"proposals": [proposal(), proposal()], "logs": [log(), log()], "status": "enqueued"})
    first = await operator.put(draft)
    before = await written(context)
    again = await operator.put(draft)
    assert (again.status_code, again.content) == (200, first.content)
    assert await written(context) == before
    assert {name: len(rows) for name, rows in before.items()} == {
        "intents": 1, "intent_proposals": 1, "intent_logs": 1,
    }  # fmt: skip


@pytest.mark.parametrize("ahead_s", [0, 2 * 86_400], ids=["before its deadline", "after its deadline"])
async def test_the_answer_to_get_can_be_put_and_changes_nothing(
    operator: OperatorClient, context: Context, clock: Clock, ahead_s: int
) -> None:
    offers = [proposal(1), proposal(2, status="submitted", transactionHash=HEX32)]
    draft = IntentDraft(members={"proposals": offers, "logs": [log(), {"level": "debug", "data": "x"}]})
    await operator.recorded(draft)
    clock.advance(seconds=ahead_s)
    before = await written(context)
    answer = await operator.client.get(f"/intents/{draft.hash}")
    assert answer.json()["status"] == ("expired" if ahead_s else "created")
    put = await operator.client.put(f"/intents/{draft.hash}", json=answer.json(), headers=operator.headers)
    assert put.status_code == 200, put.text
    assert await written(context) == before
    again = await operator.client.get(f"/intents/{draft.hash}")
    assert (again.content, again.headers["etag"]) == (answer.content, answer.headers["etag"])


async def test_new_proposals_and_logs_are_added_to_the_recorded_ones(operator: OperatorClient) -> None:
    draft = IntentDraft(members={"proposals": [proposal(1)], "logs": [log(1)]})
    await operator.recorded(draft)
    more = IntentDraft(members={
        "status": "submitted", "transactionHash": HEX32, "executionHash": "0xaa", "logs": [log(2), log(1)],
        "proposals": [proposal(2), proposal(1, status="accepted", description="another one", transactionHash=OTHER)],
    })  # fmt: skip
    answer = (await operator.put(more)).json()
    assert (answer["status"], answer["transactionHash"], answer["executionHash"]) == ("submitted", HEX32, "0xaa")
    assert [each["data"] for each in answer["logs"]] == ["line 1", "line 2"]
    first, second = answer["proposals"]
    assert (first["data"], second["data"]) == (proposal(1)["data"], proposal(2)["data"])
    assert (first["status"], first["transactionHash"], first["description"]) == ("accepted", OTHER, "")
    assert await operator.read(draft.hash) == answer


async def test_without_a_status_a_put_moves_nothing(operator: OperatorClient) -> None:
    draft = IntentDraft(members={"proposals": [proposal(status="accepted")]})
    await operator.recorded(draft.saying(status="submitted"))
    answer = (await operator.put(IntentDraft(members={"proposals": [proposal()]}))).json()
    assert (answer["status"], answer["proposals"][0]["status"]) == ("submitted", "accepted")


@pytest.mark.one_engine
async def test_a_hash_of_other_fields_is_refused_with_the_one_computed(
    operator: OperatorClient, nothing_stored: NothingStored
) -> None:
    draft = IntentDraft()
    async with nothing_stored():
        in_path = check_refusal(await operator.put(draft, OTHER), 400, "hash-mismatch", parameter="hash")
        in_body = check_refusal(await operator.put(draft.saying(hash=OTHER)), 400, "hash-mismatch", pointer="/hash")
    assert in_path["computed"] == in_body["computed"] == draft.hash


CONTRADICTIONS = {
    "status backwards": ({"status": "created"}, "status-conflict"),
    "status sideways": ({"status": "discarded"}, "status-conflict"),
    "expired before the deadline": ({"status": "expired"}, "invalid-intent"),
    "transaction": ({"transactionHash": OTHER}, "intent-differs"),
    "destination transaction": ({"destTransactionHash": OTHER}, "intent-differs"),
    "execution hash": ({"executionHash": "0xbb"}, "intent-differs"),
    "proposal backwards": ({"proposals": [proposal(status="accepted")]}, "status-conflict"),
    "proposal's transaction": ({"proposals": [proposal(transactionHash=OTHER)]}, "intent-differs"),
}


async def test_a_body_that_contradicts_a_recorded_fact_is_refused_and_the_first_fact_kept(
    operator: OperatorClient, nothing_stored: NothingStored, subtests: pytest.Subtests
) -> None:
    facts = {
        "status": "submitted", "transactionHash": HEX32, "destTransactionHash": HEX32, "executionHash": "0xaa",
        "proposals": [proposal(status="submitted", transactionHash=HEX32)],
    }  # fmt: skip
    await operator.recorded(IntentDraft(members=facts))
    async with nothing_stored():
        for row, (members, code) in CONTRADICTIONS.items():
            with subtests.test(row):
                refused = await operator.put(IntentDraft(members={"logs": [log(5)], **members}))
                check_refusal(refused, 400 if code == "invalid-intent" else 409, code)


async def test_a_new_intent_may_be_anywhere_in_its_life(operator: OperatorClient) -> None:
    for number, status in enumerate(["created", "enqueued", "discarded", "submitted", "succeeded", "failed"]):
        answer = await operator.put(IntentDraft(number, members={"status": status}))
        assert (answer.status_code, answer.json()["status"]) == (200, status)


async def test_an_intent_of_the_past_comes_as_it_ended(operator: OperatorClient) -> None:
    past = DEADLINE - 10 * 86_400
    ends = [("succeeded", "succeeded"), ("expired", "expired"), ("created", "expired"), ("submitted", "expired")]
    for number, (status, shown) in enumerate(ends):
        answer = await operator.put(IntentDraft(number, past, {"status": status}))
        assert (answer.status_code, answer.json()["status"]) == (200, shown)


MALFORMED = {
    "op": ({"op": 4}, "/op"),
    "user": ({"user": "0x12"}, "/user"),
    "checksum": ({"user": USER.address.swapcase().replace("0X", "0x")}, "/user"),
    "deadline as a number": ({"deadline": DEADLINE}, "/deadline"),
    "config signature": ({"configSig": "0x12"}, "/configSig"),
    "status": ({"status": "done"}, "/status"),
    "fee": ({"maxFees": [{"token": SETTLER, "amount": "-1"}]}, "/maxFees/0/amount"),
    "proposal": ({"proposals": [proposal(fees=["01"])]}, "/proposals/0/fees/0"),
    "proposal's signature": ({"proposals": [proposal(signatures=["0x00"])]}, "/proposals/0/signatures/0"),
    "log level": ({"logs": [log(level="loud")]}, "/logs/0/level"),
    "log text": ({"logs": [log(data="x" * 4_097)]}, "/logs/0/data"),
    "log time": ({"logs": [log(), log(2, createdAt="2026-02-30T00:00:00.000Z")]}, "/logs/1/createdAt"),
}


@pytest.mark.one_engine
async def test_a_malformed_intent_is_refused_with_the_place(
    operator: OperatorClient, nothing_stored: NothingStored, subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for row, (members, pointer) in MALFORMED.items():
            with subtests.test(row):
                refused = await operator.put(IntentDraft().saying(**members), IntentDraft().hash)
                assert refused.status_code == 400
                assert pointer in [fault.get("pointer") for fault in refused.json()["errors"]], refused.text
