"""Triggers of a registry that was renamed: each is deactivated under the name that it was signed under."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal

from builders import TriggerDraft, Wallet, cron, deploy, register
from conformance import check_answer
from muniment.service.app import Application
from muniment.service.context import Context
from without_server import InProcess

OWNER = Wallet(31)
STRANGER = Wallet(32)


@pytest.fixture
async def renamed(context: Context) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the same registry under another protocol name."""
    named = replace(context, settings=replace(context.settings, protocol_name="Renamed"))
    transport = InProcess(Application(named))
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [check_answer]}
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", event_hooks=hooks) as made:
        yield made


@pytest.fixture
async def before(client: httpx2.AsyncClient) -> list[str]:
    """Two triggers that were signed under the name of before."""
    cid = await deploy(client)
    return [(await register(client, TriggerDraft(cid, OWNER, version=f"{n}.0.0")))["sig"] for n in range(2)]


@pytest.fixture
async def since(renamed: httpx2.AsyncClient, before: list[str]) -> list[str]:
    """Two that were signed under the new one."""
    cid = (await renamed.get(f"/triggers/{before[0]}")).json()["functionCid"]
    sigs: list[str] = []
    for n in range(2):
        params = {"functionCid": cid, "version": f"5.0.{n}", "config": cron(), "input": {}}
        signable = (await renamed.post("/triggers/sign-params", json=params)).json()
        assert signable["domain"]["name"] == "Renamed Protocol - Registry"
        body = {
            "description": "Later", "typedData": {"types": signable["types"], "values": signable["message"]},
            "sig": OWNER.sign_typed_data(signable), "signer": OWNER.address,
        }  # fmt: skip
        sigs.append((await renamed.post("/triggers", json=body)).json()["sig"])
    return sigs


def under(name: str, sigs: list[str], wallet: Wallet = OWNER) -> dict[str, Any]:
    """A deactivation by typed data under the domain of `name`."""
    signable = {
        "domain": {"name": f"{name} Protocol - Registry", "version": "1"}, "primaryType": "Deactivate",
        "types": {"Deactivate": [{"name": "triggerSigs", "type": "string[]"}]}, "message": {"triggerSigs": sigs},
    }  # fmt: skip
    return {"triggerSigs": sigs, "signature": wallet.sign_typed_data(signable)}


def by_text(sigs: list[str], wallet: Wallet = OWNER) -> dict[str, Any]:
    return {"triggerSigs": sigs, "signature": wallet.sign_text(",".join(sigs))}


async def post(client: httpx2.AsyncClient, body: Any) -> httpx2.Response:
    return await client.post("/triggers/deactivate", json=body)


async def kept(context: Context) -> list[tuple[str, str, int]]:
    """Form, protocol name and length of the list of each consent that is kept."""
    rows = await context.database.fetch("SELECT form, protocol, length(trigger_sigs) / 65 FROM deactivations")
    return sorted(rows)


async def test_sign_params_names_the_domain_that_the_triggers_were_signed_under(
    client: httpx2.AsyncClient, renamed: httpx2.AsyncClient, before: list[str], since: list[str]
) -> None:
    for sigs, name in ((before, "Mimic"), (since, "Renamed")):
        for asked in (client, renamed):
            answer = await asked.post("/triggers/deactivate/sign-params", json={"triggerSigs": sigs})
            assert answer.json()["typedData"]["domain"]["name"] == f"{name} Protocol - Registry"
    unknown = {"triggerSigs": ["0x" + "1" * 128 + "1b"]}
    answer = await renamed.post("/triggers/deactivate/sign-params", json=unknown)
    assert answer.json()["typedData"]["domain"]["name"] == "Renamed Protocol - Registry"


async def test_a_deactivation_counts_under_the_name_of_its_triggers_alone(
    renamed: httpx2.AsyncClient,
    context: Context,
    before: list[str],
    since: list[str],
    nothing_stored: Callable[[], Any],
) -> None:
    for sigs, wrong in ((before, "Renamed"), (since, "Mimic")):
        async with nothing_stored():
            check_refusal(await post(renamed, under(wrong, sigs)), 403, "not-the-owner")
    assert (await post(renamed, under("Mimic", before))).status_code == 204
    assert (await post(renamed, under("Renamed", since[:1]))).status_code == 204
    active = (await renamed.get("/triggers?active=true")).json()
    assert [trigger["sig"] for trigger in active] == since[1:]
    assert await kept(context) == [("eip712", "Mimic", 2), ("eip712", "Renamed", 1)]
    for sig, name in ((before[0], "Mimic"), (since[0], "Renamed")):
        ended = (await renamed.get(f"/triggers/{sig}")).json()["deactivateSig"]
        shown = (await renamed.get(f"/deactivations/{ended}")).json()
        assert shown["domain"]["name"] == f"{name} Protocol - Registry"


async def test_typed_data_over_two_names_is_refused_and_text_is_not(
    renamed: httpx2.AsyncClient,
    context: Context,
    before: list[str],
    since: list[str],
    nothing_stored: Callable[[], Any],
) -> None:
    both = [since[0], before[0]]
    for name in ("Mimic", "Renamed"):
        async with nothing_stored():
            refused = await post(renamed, under(name, both))
        problem = check_refusal(refused, 400, "invalid-body", pointer="/triggerSigs")
        assert "Mimic, Renamed" in problem["detail"]
        async with nothing_stored():
            check_refusal(await post(renamed, under(name, both, STRANGER)), 403, "not-the-owner")
    async with nothing_stored():
        refused = await renamed.post("/triggers/deactivate/sign-params", json={"triggerSigs": both})
        check_refusal(refused, 400, "invalid-body", pointer="/triggerSigs")
        check_refusal(await post(renamed, by_text(both, STRANGER)), 403, "not-the-owner")
    assert (await post(renamed, by_text(both))).status_code == 204
    active = (await renamed.get("/triggers?active=true&sort=1")).json()
    assert [trigger["sig"] for trigger in active] == [before[1], since[1]]
    assert await kept(context) == [("eip191", "Renamed", 2)]
