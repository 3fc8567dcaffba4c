"""One consent, one record: sent again, simultaneously, late, in another spelling or under another signature."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from trigger_world import at_once, check_refusal, digest_of, in_turn, sign_with_nonce

from builders import TriggerDraft, Wallet, cron, deploy, register
from conftest import Clock
from muniment.protocol.evm.signature import Signature, recover
from muniment.service.context import Context
from muniment.service.resources.triggers.store import mark_ended


async def count(context: Context) -> int:
    rows = await context.database.fetch("SELECT count(*) FROM triggers")
    return rows[0][0]


async def deactivate(client: httpx2.AsyncClient, sig: str, wallet: Wallet | None = None) -> None:
    consent = {"triggerSigs": [sig], "signature": (wallet or Wallet()).sign_deactivation([sig])}
    assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204


def respelled(sig: str) -> list[str]:
    """The same signature as others write it."""
    counted_from_0 = f"{sig[:130]}{int(sig[130:], 16) - 27:02x}"
    return [sig, "0x" + sig[2:].upper(), counted_from_0, "0x" + counted_from_0[2:].upper()]


def said(answer: httpx2.Response) -> str:
    """What an answer says of a consent: that it was `created`, or `repeated`."""
    return answer.headers["idempotency-status"]


async def test_the_same_request_twenty_times_at_once_created_one_record(
    client: httpx2.AsyncClient, context: Context
) -> None:
    """The clock stands still, so all would make the same record to the letter."""
    body = TriggerDraft(await deploy(client)).signed()
    answers = await at_once(context.database, *(client.post("/triggers", json=body) for _ in range(20)))
    assert len({answer.content for answer in answers}) == 1
    assert sorted(map(said, answers)) == ["created", *["repeated"] * 19]


async def test_twenty_simultaneous_requests_are_one_record(client: httpx2.AsyncClient, context: Context) -> None:
    cid = await deploy(client)
    bodies = [TriggerDraft(cid, description=f"Number {number}").signed() for number in range(20)]
    answers = await at_once(context.database, *(client.post("/triggers", json=body) for body in bodies))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert sorted(map(said, answers)) == ["created", *["repeated"] * 19]
    assert await count(context) == 1
    assert (await client.get("/triggers")).json() == [answers[0].json()]


async def test_twenty_simultaneous_requests_under_twenty_signatures_are_one_record(
    client: httpx2.AsyncClient, context: Context
) -> None:
    body = TriggerDraft(await deploy(client)).signed()
    sigs = [sign_with_nonce(digest_of(body), Wallet(), nonce) for nonce in range(1, 21)]
    assert len(set(sigs)) == 20
    posts = [client.post("/triggers", json={**body, "sig": sig}) for sig in sigs]
    answers = await at_once(context.database, *posts)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert await count(context) == 1


async def test_the_same_body_later_is_the_first_record(
    client: httpx2.AsyncClient, clock: Clock, nothing_stored: Callable[[], Any]
) -> None:
    body = TriggerDraft(await deploy(client)).signed()
    first = await client.post("/triggers", json=body)
    clock.advance(hours=1)
    async with nothing_stored():
        for sig in respelled(body["sig"]):
            again = await client.post("/triggers", json={**body, "sig": sig, "description": "Another"})
            assert (again.status_code, again.content, said(again)) == (200, first.content, "repeated")
    assert said(first) == "created"


async def test_another_valid_signature_is_answered_with_the_first_record(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    body = TriggerDraft(await deploy(client)).signed()
    first = await client.post("/triggers", json=body)
    other = sign_with_nonce(digest_of(body), Wallet(), 12345)
    assert other != body["sig"]
    async with nothing_stored():
        again = await client.post("/triggers", json={**body, "sig": other, "description": "Another"})
    assert (again.status_code, again.content, said(again)) == (200, first.content, "repeated")
    check_refusal(await client.get(f"/triggers/{other}"), 404, "trigger-not-found")


@pytest.mark.parametrize("is_swept", [False, True], ids=["before-the-sweep", "after-the-sweep"])
async def test_a_repeated_create_is_answered_also_after_its_end(
    client: httpx2.AsyncClient, context: Context, clock: Clock, nothing_stored: Callable[[], Any], *, is_swept: bool
) -> None:
    body = TriggerDraft(await deploy(client), config=cron(endDate=clock.now_ms + 1)).signed()
    first = await client.post("/triggers", json=body)
    clock.advance(hours=1)
    if is_swept:
        assert await context.database.write(lambda tx: mark_ended(tx, clock.now_ms)) == 1
    async with nothing_stored():
        for sig in (body["sig"], sign_with_nonce(digest_of(body), Wallet(), 7)):
            again = await client.post("/triggers", json={**body, "sig": sig})
            assert (again.status_code, again.content, said(again)) == (200, first.content, "repeated")


@pytest.mark.parametrize("nonce", [None, 99], ids=["same-signature", "another-signature"])
async def test_a_deactivated_consent_is_refused_for_ever(
    client: httpx2.AsyncClient, clock: Clock, nothing_stored: Callable[[], Any], nonce: int | None
) -> None:
    body = TriggerDraft(await deploy(client), config=cron(endDate=clock.now_ms + 1)).signed()
    trigger = (await client.post("/triggers", json=body)).json()
    await deactivate(client, trigger["sig"])
    ended = (await client.get(f"/triggers/{trigger['sig']}")).json()
    sig = body["sig"] if nonce is None else sign_with_nonce(digest_of(body), Wallet(), nonce)
    for _ in range(2):
        async with nothing_stored():
            again = await client.post("/triggers", json={**body, "sig": sig, "description": "Again"})
        check_refusal(again, 409, "trigger-deactivated")
        clock.advance(hours=24)
    assert (await client.get(f"/triggers/{trigger['sig']}")).json() == ended


async def test_a_consent_that_differs_in_anything_signed_is_another_record(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    drafts = [
        TriggerDraft(cid), TriggerDraft(cid, version="1.0.1"), TriggerDraft(cid, min_validations=2),
        TriggerDraft(cid, fee_limit="1"), TriggerDraft(cid, config=cron(delta="11m")), TriggerDraft(cid, Wallet(2)),
    ]  # fmt: skip
    made = [await register(client, draft) for draft in drafts]
    assert (await client.get("/triggers?sort=1")).json() == made
    assert len({trigger["sig"] for trigger in made}) == len(drafts)


async def test_the_same_values_under_other_types_are_another_consent(client: httpx2.AsyncClient) -> None:
    draft = TriggerDraft(await deploy(client))
    first = await register(client, draft)
    types = json.loads(json.dumps(first["types"]))
    types["Trigger"][5]["type"] = "uint16"
    draft.types = types
    second = await register(client, draft)
    assert second["sig"] != first["sig"]
    assert (await client.get("/triggers")).json() == [second, first]


async def test_a_signature_that_names_a_record_names_no_other(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    cid = await deploy(client)
    first = await register(client, TriggerDraft(cid))
    other = TriggerDraft(cid, version="2.0.0").signed()
    # Any signature recovers some address for any digest: one whose key nobody knows.
    stranger = recover(digest_of(other), Signature.parse(first["sig"]))
    assert stranger is not None
    async with nothing_stored():
        response = await client.post("/triggers", json={**other, "sig": first["sig"], "signer": stranger})
    check_refusal(response, 409, "signature-taken")
    assert (await client.get(f"/triggers/{first['sig']}")).json() == first


@pytest.mark.parametrize(("place", "expected"), [(0, [404, 200, 200]), (1, [200, 204, 409]), (2, [200, 200, 204])])
async def test_a_deactivation_and_a_creation_at_the_same_time_never_leave_the_trigger_active(
    client: httpx2.AsyncClient, context: Context, place: int, expected: list[int]
) -> None:
    body = TriggerDraft(await deploy(client)).signed()
    consent = {"triggerSigs": [body["sig"]], "signature": Wallet().sign_deactivation([body["sig"]])}
    calls = [client.post("/triggers", json=body) for _ in range(2)]
    calls.insert(place, client.post("/triggers/deactivate", json=consent))
    answers = await in_turn(context.database, *calls)
    assert [answer.status_code for answer in answers] == expected
    shown = (await client.get(f"/triggers/{body['sig']}")).json()
    assert ("deactivateSig" in shown) is (204 in expected)
    again = await client.post("/triggers", json=body)
    assert again.status_code == (409 if 204 in expected else 200)


async def test_a_signature_taken_meanwhile_is_refused(client: httpx2.AsyncClient, context: Context) -> None:
    cid = await deploy(client)
    first, other = TriggerDraft(cid).signed(), TriggerDraft(cid, version="2.0.0").signed()
    stranger = recover(digest_of(other), Signature.parse(first["sig"]))
    posts = [
        client.post("/triggers", json=body) for body in (first, {**other, "sig": first["sig"], "signer": stranger})
    ]
    taken, refused = await in_turn(context.database, *posts)
    assert taken.status_code == 200
    problem = check_refusal(refused, 409, "signature-taken", pointer="/sig")
    assert "the version's build part" in problem["detail"]
    assert (await client.get("/triggers")).json() == [taken.json()]


async def test_the_refusal_of_a_taken_signature_says_what_to_change(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    """Who saw it elsewhere registered it first, over other typed data, for the address that it recovers to there."""
    cid = await deploy(client)
    mine, other = TriggerDraft(cid).signed(), TriggerDraft(cid, version="2.0.0").signed()
    ghost = recover(digest_of(other), Signature.parse(mine["sig"]))
    assert (await client.post("/triggers", json={**other, "sig": mine["sig"], "signer": ghost})).status_code == 200
    async with nothing_stored():
        refused = await client.post("/triggers", json=mine)
    problem = check_refusal(refused, 409, "signature-taken", pointer="/sig")
    assert "change any signed member, for example the version's build part (1.0.0 to 1.0.0+1)" in problem["detail"]
    again = TriggerDraft(cid, version="1.0.0+1").signed()
    assert (await client.post("/triggers", json=again)).json()["sig"] == again["sig"] != mine["sig"]
