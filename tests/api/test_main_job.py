"""The main job, over HTTP: log in, deploy a function, sign a trigger, list it, deactivate it."""

from __future__ import annotations

import httpx2

from builders import Bundle, TriggerDraft, Wallet, deploy, log_in, register


async def test_a_trigger_lives_from_sign_params_to_deactivation(client: httpx2.AsyncClient) -> None:
    wallet = Wallet(7)
    cid = await deploy(client, Bundle(inputs={"limit": "uint256"}), wallet)
    asked = {
        "functionCid": cid, "version": "1.0.0", "input": {"limit": "5"},
        "config": {"type": 0, "schedule": "0 * * * *", "delta": "1h", "endDate": 0},
    }  # fmt: skip
    params = (await client.post("/triggers/sign-params", json=asked)).json()
    sig = wallet.sign_typed_data(params)
    body = {
        "description": "Hourly", "sig": sig, "signer": wallet.address,
        "typedData": {"types": params["types"], "values": params["message"]},
    }  # fmt: skip
    trigger = (await client.post("/triggers", json=body)).json()
    assert trigger["sig"] == sig
    assert (await client.get(f"/triggers?signer={wallet.address}&active=true")).json() == [trigger]

    consent = {"triggerSigs": [sig], "signature": wallet.sign_deactivation([sig])}
    assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204

    assert (await client.get(f"/triggers?signer={wallet.address}&active=true")).json() == []
    ended = (await client.get(f"/triggers/{sig}")).json()
    assert ended == {**trigger, "deactivateSig": consent["signature"]}


async def test_a_trigger_answers_every_field_of_the_interface(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    draft = TriggerDraft(cid)
    trigger = await register(client, draft)
    assert trigger == {
        "sig": draft.signed()["sig"], "functionCid": cid, "signer": draft.wallet.address, "version": "1.0.0",
        "description": "Every six hours", "createdAt": "2026-11-20T19:48:00.123Z", "input": {},
        "config": draft.config, "executionFeeLimit": "0", "minValidations": 1,
        "types": draft.signed()["typedData"]["types"], "endDate": 0,
    }  # fmt: skip


async def test_log_in_gives_a_token_and_no_email(client: httpx2.AsyncClient) -> None:
    wallet = Wallet(3)
    token = await log_in(client, wallet)
    response = await client.get("/users/api-key", headers={"x-auth-token": token})
    assert response.json()["address"] == wallet.address
    assert response.headers["cache-control"] == "no-store"
