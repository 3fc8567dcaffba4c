"""GET /deactivations/{signature}: everybody can check a deactivation of several triggers again."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal, high_twin

from builders import TriggerDraft, Wallet, deploy, register
from eth_signing import Account, encode_defunct, encode_typed_data
from muniment.protocol.evm.address import Address

OWNER = Wallet(31)
TYPES = {"Deactivate": [{"name": "triggerSigs", "type": "string[]"}]}


@pytest.fixture
async def sigs(client: httpx2.AsyncClient) -> list[str]:
    """Three triggers of the owner."""
    cid = await deploy(client)
    return [(await register(client, TriggerDraft(cid, OWNER, version=f"{n}.0.0")))["sig"] for n in range(3)]


async def deactivate(client: httpx2.AsyncClient, sigs: list[str], *, as_text: bool) -> str:
    """Deactivate the triggers; the signature that each of them shows afterwards."""
    signature = OWNER.sign_deactivation(sigs, as_text=as_text)
    answer = await client.post("/triggers/deactivate", json={"triggerSigs": sigs, "signature": signature})
    assert answer.status_code == 204
    shown = {(await client.get(f"/triggers/{sig}")).json()["deactivateSig"] for sig in sigs}
    assert shown == {signature}
    return signature


def recovered(record: dict[str, Any]) -> str:
    """The address that eth_account recovers from nothing but the answer."""
    if record["form"] == "eip191":
        signable = encode_defunct(text=",".join(record["triggerSigs"]))
    else:
        message = {"triggerSigs": record["triggerSigs"]}
        signable = encode_typed_data(domain_data=record["domain"], message_types=TYPES, message_data=message)
    return Account.recover_message(signable, signature=record["signature"])


@pytest.mark.parametrize("as_text", [True, False], ids=["text", "typed-data"])
async def test_the_answer_alone_proves_that_the_owner_signed(
    client: httpx2.AsyncClient, sigs: list[str], *, as_text: bool
) -> None:
    listed = [sigs[2], sigs[0]]
    signature = await deactivate(client, listed, as_text=as_text)
    record = (await client.get(f"/deactivations/{signature}")).json()
    created_at = record.pop("createdAt")
    assert record == {
        "signature": signature, "signer": OWNER.address, "form": "eip191" if as_text else "eip712",
        "domain": {"name": "Mimic Protocol - Registry", "version": "1"}, "triggerSigs": listed,
    }  # fmt: skip
    assert recovered(record) == Address.parse(OWNER.address)
    assert created_at.endswith("Z")


async def test_another_spelling_of_the_signature_finds_the_same_record(
    client: httpx2.AsyncClient, sigs: list[str]
) -> None:
    signature = await deactivate(client, sigs, as_text=False)
    spelled = f"0x{signature[2:130].upper()}{int(signature[130:], 16) - 27:02x}"
    answers = [(await client.get(f"/deactivations/{each}")).json() for each in (signature, spelled)]
    assert answers[0] == answers[1]
    assert answers[0]["signature"] == signature


async def test_a_signature_that_ended_no_trigger_is_not_found(client: httpx2.AsyncClient, sigs: list[str]) -> None:
    unused = OWNER.sign_deactivation(sigs[:1], as_text=True)
    check_refusal(await client.get(f"/deactivations/{unused}"), 404, "deactivation-not-found")
    await deactivate(client, sigs, as_text=False)
    again = {"triggerSigs": sigs[:1], "signature": unused}
    assert (await client.post("/triggers/deactivate", json=again)).status_code == 204
    check_refusal(await client.get(f"/deactivations/{unused}"), 404, "deactivation-not-found")
    # A trigger's own signature names the trigger, not its end.
    check_refusal(await client.get(f"/deactivations/{sigs[0]}"), 404, "deactivation-not-found")


@pytest.mark.one_engine
@pytest.mark.parametrize("signature", ["0x12", "x", high_twin(OWNER.sign_text("x")), "0x" + "0" * 130])
async def test_a_malformed_signature_is_refused(client: httpx2.AsyncClient, signature: str) -> None:
    check_refusal(await client.get(f"/deactivations/{signature}"), 400, "invalid-signature", parameter="signature")
