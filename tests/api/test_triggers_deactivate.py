"""POST /triggers/deactivate and its sign-params, GET /triggers/{sig} before and after."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal, high_twin, in_turn, sign_with_nonce

from answers import ok
from builders import DOMAIN, TriggerDraft, Wallet, deploy, register
from eth_signing import Account, encode_defunct, encode_typed_data
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.triggers.typed_data import deactivation_digests
from muniment.service.context import Context
from muniment.service.resources.triggers import store
from muniment.service.resources.triggers.store import NewRow
from muniment.service.storage.database import Transaction

UNKNOWN = "0x" + "1" * 128 + "1b"
OWNER = Wallet(31)
STRANGER = Wallet(32)


@pytest.fixture
async def sigs(client: httpx2.AsyncClient) -> list[str]:
    """Four triggers of the owner."""
    cid = await deploy(client)
    return [(await register(client, TriggerDraft(cid, OWNER, version=f"{n}.0.0")))["sig"] for n in range(4)]


def consent(sigs: list[str], wallet: Wallet = OWNER, *, as_text: bool = False) -> dict[str, Any]:
    return {"triggerSigs": sigs, "signature": wallet.sign_deactivation(sigs, as_text=as_text)}


async def post(client: httpx2.AsyncClient, body: Any) -> httpx2.Response:
    return await client.post("/triggers/deactivate", json=body)


async def states(client: httpx2.AsyncClient, sigs: list[str]) -> list[str | None]:
    """The deactivateSig of each."""
    return [ok(await client.get(f"/triggers/{sig}")).json().get("deactivateSig") for sig in sigs]


def from_zero(sig: str) -> str:
    return f"{sig[:130]}{int(sig[130:], 16) - 27:02x}"


async def test_eth_account_signs_the_answer_of_sign_params_and_the_signature_deactivates(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    cid = await deploy(client)
    for number, (count, scheme) in enumerate(itertools.product((1, 4), ("text", "typed-data"))):
        owner = Wallet(41 + number)
        sigs = [(await register(client, TriggerDraft(cid, owner, version=f"{n}.0.0")))["sig"] for n in range(4)]
        listed = sigs[:count]
        async with nothing_stored():
            asked = ok(await client.post("/triggers/deactivate/sign-params", json={"triggerSigs": listed})).json()
        assert asked["message"] == ",".join(listed)
        assert asked["typedData"] == {
            "domain": {"name": "Mimic Protocol - Registry", "version": "1"}, "primaryType": "Deactivate",
            "types": {"Deactivate": [{"name": "triggerSigs", "type": "string[]"}]}, "message": {"triggerSigs": listed},
        }  # fmt: skip
        signable = (
            encode_defunct(text=asked["message"])
            if scheme == "text"
            else encode_typed_data(full_message=asked["typedData"])
        )
        signature = "0x" + Account.from_key(owner.key).sign_message(signable).signature.hex()
        response = await post(client, {"triggerSigs": listed, "signature": signature})
        assert (response.status_code, response.content) == (204, b""), (count, scheme)
        assert await states(client, sigs) == [signature] * count + [None] * (4 - count), (count, scheme)
        active = ok(await client.get(f"/triggers?active=true&sort=1&signer={owner.address}")).json()
        assert [trigger["sig"] for trigger in active] == sigs[count:], (count, scheme)


async def test_sign_params_gives_the_canonical_form(client: httpx2.AsyncClient, sigs: list[str]) -> None:
    respelled = ["0x" + sigs[0][2:].upper(), from_zero(sigs[1])]
    asked = ok(await client.post("/triggers/deactivate/sign-params", json={"triggerSigs": respelled})).json()
    assert asked["message"] == ",".join(sigs[:2])
    assert asked["typedData"]["message"]["triggerSigs"] == sigs[:2]


async def test_other_spellings_in_the_list_are_the_same_triggers(client: httpx2.AsyncClient, sigs: list[str]) -> None:
    for listed, as_text in ((sigs[:2], True), (sigs[2:], False)):
        signature = consent(listed, as_text=as_text)["signature"]
        body = {"triggerSigs": ["0x" + listed[0][2:].upper(), from_zero(listed[1])], "signature": from_zero(signature)}
        assert (await post(client, body)).status_code == 204, as_text
        assert await states(client, listed) == [signature] * 2, as_text


Change = Callable[[list[str]], list[str]]
LISTS: dict[str, tuple[Change, int, str]] = {
    "malformed": (lambda sigs: [sigs[0], "0x12"], 400, "invalid-signature"),
    "high-s": (lambda sigs: [sigs[0], high_twin(sigs[1])], 400, "invalid-signature"),
    "empty-text": (lambda sigs: [sigs[0], ""], 400, "invalid-signature"),
    "twice": (lambda sigs: [sigs[0], sigs[1], sigs[0]], 400, "invalid-body"),
    "twice-in-capitals": (lambda sigs: [sigs[0], "0x" + sigs[0][2:].upper()], 400, "invalid-body"),
    "twice-from-zero": (lambda sigs: [sigs[0], from_zero(sigs[0])], 400, "invalid-body"),
    "none": (lambda _: [], 400, "invalid-body"),
    "101": (lambda sigs: [sigs[0], *(f"0x{n:064x}{'1' * 64}1b" for n in range(1, 101))], 400, "invalid-body"),
    "unknown": (lambda sigs: [sigs[0], UNKNOWN], 404, "trigger-not-found"),
    "foreign": (lambda sigs: [sigs[0], sigs[4]], 403, "not-the-owner"),
    "all-foreign": (lambda sigs: [sigs[4]], 403, "not-the-owner"),
    "malformed-and-unknown-and-foreign": (lambda sigs: [sigs[4], UNKNOWN, "0x"], 400, "invalid-signature"),
    "twice-and-unknown": (lambda sigs: [UNKNOWN, sigs[0], UNKNOWN], 400, "invalid-body"),
    "unknown-and-foreign": (lambda sigs: [sigs[4], UNKNOWN], 404, "trigger-not-found"),
}


async def test_one_bad_entry_stops_the_whole_deactivation(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], sigs: list[str], subtests: pytest.Subtests
) -> None:
    cid = ok(await client.get(f"/triggers/{sigs[0]}")).json()["functionCid"]
    foreign = (await register(client, TriggerDraft(cid, STRANGER)))["sig"]
    async with nothing_stored():
        for (row, (listed, status, code)), as_text in itertools.product(LISTS.items(), (True, False)):
            given = listed([*sigs, foreign])
            try:
                signature = OWNER.sign_deactivation(given, as_text=as_text)
            except ValueError:
                signature = OWNER.sign_text("anything")
            with subtests.test(row, as_text=as_text):
                response = await post(client, {"triggerSigs": given, "signature": signature})
                problem = check_refusal(response, status, code)
                if status != 403:
                    assert problem["errors"][0]["pointer"].startswith("/triggerSigs")


async def test_a_signature_that_is_not_the_owners_over_this_list_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], sigs: list[str], subtests: pytest.Subtests
) -> None:
    def signed(listed: list[str], wallet: Wallet = OWNER) -> dict[str, str]:
        return {form: wallet.sign_deactivation(listed, as_text=form == "text") for form in ("text", "typed data")}

    signatures = {
        "another order": signed([sigs[1], sigs[0]]),
        "another list": signed([sigs[0], sigs[2]]),
        "part of the list": signed([sigs[0]]),
        "a longer list": signed(sigs[:3]),
        "a stranger": signed(sigs[:2], STRANGER),
        "a trigger's own": {"": sigs[0]},
        "joined by a comma and a space": {"text": OWNER.sign_text(", ".join(sigs[:2]))},
        "in capitals": {"text": OWNER.sign_text(",".join(sigs[:2]).upper())},
        "nobody": {"": UNKNOWN},
    }
    async with nothing_stored():
        for row, forms in signatures.items():
            for form, signature in forms.items():
                with subtests.test(row, form=form):
                    response = await post(client, {"triggerSigs": sigs[:2], "signature": signature})
                    check_refusal(response, 403, "not-the-owner")


async def test_a_triggers_own_signature_does_not_deactivate_it(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], sigs: list[str]
) -> None:
    async with nothing_stored():
        response = await post(client, {"triggerSigs": [sigs[0]], "signature": sigs[0]})
    check_refusal(response, 403, "not-the-owner")


@pytest.mark.one_engine
async def test_a_malformed_signature_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], sigs: list[str], subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for signature in ("0x", "0x12", "", high_twin(OWNER.sign_text("x")), "0x" + "0" * 130):
            with subtests.test(signature):
                response = await post(client, {"triggerSigs": sigs, "signature": signature})
                check_refusal(response, 400, "invalid-signature", pointer="/signature")


@pytest.mark.one_engine
async def test_a_body_of_another_shape_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    bodies: list[Any] = [{}, [], None, {"triggerSigs": UNKNOWN, "signature": UNKNOWN}, {"triggerSigs": [1]}]
    paths = ("/triggers/deactivate", "/triggers/deactivate/sign-params")
    async with nothing_stored():
        for body, path in itertools.product(bodies, paths):
            with subtests.test(path, body=body):
                check_refusal(await client.post(path, json=body), 400, "invalid-body")


async def test_the_first_deactivation_stays(client: httpx2.AsyncClient, sigs: list[str]) -> None:
    first, wider = consent(sigs[:2]), consent(sigs, as_text=True)
    assert (await post(client, first)).status_code == 204
    assert (await post(client, first)).status_code == 204
    assert (await post(client, wider)).status_code == 204
    assert await states(client, sigs) == [first["signature"]] * 2 + [wider["signature"]] * 2


async def test_one_request_deactivates_a_hundred_triggers(client: httpx2.AsyncClient, context: Context) -> None:
    first = await register(client, TriggerDraft(await deploy(client), OWNER))
    many = [first["sig"], *(f"0x{n:064x}{n:064x}1b" for n in range(1, 100))]

    async def insert(tx: Transaction) -> None:
        for n, sig in enumerate(many[1:]):
            row = NewRow(
                sig=Signature(sig).raw, signer=Address.parse(OWNER.address).raw, digest=n.to_bytes(32),
                function_digest=bytes(32), protocol="Mimic", end_date_ms=0, created_at_ms=context.clock.now_ms(),
                record=lambda _, sig=sig: json.dumps({**first, "sig": sig}),
            )  # fmt: skip
            await store.insert(tx, row)

    await context.database.write(insert)
    assert (await post(client, consent(many))).status_code == 204
    assert ok(await client.get("/triggers?active=true")).json() == []
    assert len(ok(await client.get("/triggers?active=false&limit=100")).json()) == 100


async def test_simultaneous_deactivations_of_overlapping_lists_all_succeed(
    client: httpx2.AsyncClient, context: Context, sigs: list[str]
) -> None:
    bodies = [consent(listed) for listed in (sigs[:3], sigs[:0:-1], [sigs[2], sigs[0]], sigs)]
    answers = await in_turn(context.database, *(post(client, body) for body in bodies * 5))
    assert {answer.status_code for answer in answers} == {204}
    assert await states(client, sigs) == [bodies[0]["signature"]] * 3 + [bodies[1]["signature"]]


async def test_the_consent_is_kept_once_with_its_list(
    client: httpx2.AsyncClient, context: Context, sigs: list[str]
) -> None:
    body = consent([sigs[2], sigs[0]])
    for _ in range(3):
        assert (await post(client, body)).status_code == 204
    rows = await context.database.fetch("SELECT signature, trigger_sigs FROM deactivations")
    assert rows == [(bytes.fromhex(body["signature"][2:]), bytes.fromhex(sigs[2][2:] + sigs[0][2:]))]


async def test_a_consent_that_ends_nothing_is_not_kept(
    client: httpx2.AsyncClient, context: Context, nothing_stored: Callable[[], Any], sigs: list[str]
) -> None:
    assert (await post(client, consent(sigs[:2]))).status_code == 204
    repeated = [consent(sigs[:2], as_text=True), consent(sigs[1::-1]), consent(sigs[:1]), consent(sigs[1:2])]
    signable = deactivation_digests(sigs[:2], DOMAIN)[1]  # pyright: ignore[reportArgumentType] - canonical texts
    repeated += [
        {"triggerSigs": sigs[:2], "signature": sign_with_nonce(signable, OWNER, nonce)} for nonce in range(1, 6)
    ]
    async with nothing_stored():
        for body in repeated:
            assert (await post(client, body)).status_code == 204
    assert (await post(client, consent(sigs[:3]))).status_code == 204, "it ends one more"
    rows = await context.database.fetch("SELECT length(trigger_sigs) / 65 FROM deactivations ORDER BY 1")
    assert rows == [(2,), (3,)]


async def test_a_consent_is_kept_with_its_form_and_its_domain(
    client: httpx2.AsyncClient, context: Context, sigs: list[str]
) -> None:
    for listed, as_text in ((sigs[:1], True), (sigs[1:], False)):
        assert (await post(client, consent(listed, as_text=as_text))).status_code == 204
    rows = await context.database.fetch("SELECT form, protocol, signer FROM deactivations ORDER BY form")
    owner = bytes.fromhex(OWNER.address[2:])
    assert rows == [("eip191", "Mimic", owner), ("eip712", "Mimic", owner)]
