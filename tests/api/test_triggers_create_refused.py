"""POST /triggers: signatures that prove nothing, and configs that the world does not allow."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from trigger_world import ORDER, check_refusal, digest_of, high_twin

from answers import ok
from builders import TriggerDraft, Wallet, cron, deploy, event, once
from conftest import NOW_MS
from muniment.protocol.evm.signature import sign
from muniment.protocol.evm.typed_data import compile_types, digest
from muniment.protocol.ipfs.cid import cid_v0
from muniment.protocol.triggers.typed_data import registry_domain

pytestmark = pytest.mark.one_engine


async def check_refused(client: httpx2.AsyncClient, body: Any, code: str, pointer: str) -> dict[str, Any]:
    return check_refusal(await client.post("/triggers", json=body), 400, code, pointer=pointer)


def with_parts(sig: str, *, r: int | None = None, s: int | None = None, v: int | None = None) -> str:
    r, s, v = (
        given if given is not None else int(part, 16)
        for given, part in zip((r, s, v), (sig[2:66], sig[66:130], sig[130:]), strict=True)
    )
    return f"0x{r:064x}{s:064x}{v:02x}"


MALFORMED: dict[str, Callable[[str], Any]] = {
    "high-s-twin": high_twin,
    "v-2": lambda sig: with_parts(sig, v=2),
    "v-26": lambda sig: with_parts(sig, v=26),
    "v-29": lambda sig: with_parts(sig, v=29),
    "v-255": lambda sig: with_parts(sig, v=255),
    "r-0": lambda sig: with_parts(sig, r=0),
    "r-n": lambda sig: with_parts(sig, r=ORDER),
    "s-0": lambda sig: with_parts(sig, s=0),
    "s-n": lambda sig: with_parts(sig, s=ORDER),
    "64-bytes": lambda sig: sig[:130],
    "66-bytes": lambda sig: sig + "00",
    "odd": lambda sig: sig[:-1],
    "0X": lambda sig: "0X" + sig[2:],
    "no-prefix": lambda sig: sig[2:],
    "newline": lambda sig: sig + "\n",
    "empty": lambda _: "",
}


async def test_a_malformed_signature_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    body = TriggerDraft(await deploy(client)).signed()
    async with nothing_stored():
        for row, change in MALFORMED.items():
            with subtests.test(row):
                await check_refused(client, {**body, "sig": change(body["sig"])}, "invalid-signature", "/sig")


NOT_THEIRS: dict[str, Callable[[dict[str, Any]], None]] = {
    "another-signer": lambda body: body.update(signer=Wallet(2).address),
    "another-signature": lambda body: body.update(sig=Wallet(2).sign_text("hello")),
    "other-parity": lambda body: body.update(sig=with_parts(body["sig"], v=55 - int(body["sig"][130:], 16))),
    "no-point": lambda body: body.update(sig=with_parts(body["sig"], r=5)),
    "other-values": lambda body: body["typedData"]["values"].update(minValidations=2),
    "other-input-type": lambda body: body["typedData"]["types"]["Trigger"][5].update(type="uint16"),
    "other-order": lambda body: body["typedData"]["types"]["Trigger"].reverse(),
}


async def test_a_signature_over_something_else_is_refused_with_the_hashes_computed(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    signed = json.dumps(TriggerDraft(await deploy(client)).signed())
    async with nothing_stored():
        for row, change in NOT_THEIRS.items():
            body = json.loads(signed)
            change(body)
            with subtests.test(row):
                problem = await check_refused(client, body, "signature-mismatch", "/sig")
                assert problem["digest"] == "0x" + digest_of(body).hex()
                assert {len(problem[name]) for name in ("domainSeparator", "structHash", "digest")} == {66}


async def test_a_signature_for_another_registry_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    draft = TriggerDraft(await deploy(client))
    body = draft.signed()
    struct_hash = compile_types(body["typedData"]["types"], "Trigger").struct_hash(draft.values)
    async with nothing_stored():
        for name in ("Mimic2", "", "mimic"):
            body["sig"] = str(sign(digest(registry_domain(name), struct_hash), Wallet().key))
            with subtests.test(name):
                await check_refused(client, body, "signature-mismatch", "/sig")


CONFIGS: dict[str, tuple[Any, str, str]] = {
    "six-fields": (cron(schedule="* * * * * *"), "invalid-config", "schedule"),
    "never-runs": (cron(schedule="0 0 31 2 *"), "invalid-config", "schedule"),
    "delta": (cron(delta="0s"), "invalid-config", "delta"),
    "past": (cron(endDate=NOW_MS), "invalid-timestamp", "endDate"),
    "seconds": (cron(endDate=str(NOW_MS // 1000)), "invalid-timestamp", "endDate"),
    "far-future": (cron(endDate=2**53 - 1), "invalid-timestamp", "endDate"),
    "2^256-1": (cron(endDate=str(2**256 - 1)), "invalid-timestamp", "endDate"),
    "start-after-end": (once(startDate=NOW_MS + 2, endDate=NOW_MS + 1), "invalid-config", "startDate"),
    "start-too-far": (once(startDate=str(2**255)), "invalid-timestamp", "startDate"),
    "chain": (event(chainId=31337), "invalid-config", "chainId"),
    "chain-2^255": (event(chainId=str(2**255)), "invalid-config", "chainId"),
    "five-positions": (event(topics=[[]] * 5), "invalid-config", "topics"),
}


async def test_a_config_that_the_world_does_not_allow_is_refused_although_signed(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    cid = await deploy(client)
    async with nothing_stored():
        for row, (config, code, member) in CONFIGS.items():
            body = TriggerDraft(cid, config=config).signed()
            with subtests.test(row):
                await check_refused(client, body, code, f"/typedData/values/config/{member}")


async def test_an_unknown_function_is_refused(client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]) -> None:
    body = TriggerDraft(str(cid_v0(bytes(32)))).signed()
    async with nothing_stored():
        await check_refused(client, body, "unknown-function", "/typedData/values/functionCid")


BODIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no-typed-data": ({"typedData": None}, "invalid-body", "/typedData"),
    "no-sig": ({"sig": None}, "invalid-body", "/sig"),
    "no-signer": ({"signer": None}, "invalid-body", "/signer"),
    "no-description": ({"description": None}, "invalid-body", "/description"),
    "typed-data-a-list": ({"typedData": []}, "invalid-body", "/typedData"),
    "types-a-list": ({"typedData": {"types": [], "values": {}}}, "invalid-body", "/typedData/types"),
    "signer-checksum": ({"signer": "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"}, "invalid-address", "/signer"),
    "description-empty": ({"description": ""}, "invalid-text", "/description"),
    "description-1001": ({"description": "💡" * 1001}, "invalid-text", "/description"),
    "description-nul": ({"description": "a\0b"}, "invalid-text", "/description"),
    "description-number": ({"description": 5}, "invalid-body", "/description"),
}


async def test_a_body_with_a_bad_member_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    signed = TriggerDraft(await deploy(client)).signed()
    async with nothing_stored():
        for row, (changes, code, pointer) in BODIES.items():
            body = {name: value for name, value in {**signed, **changes}.items() if value is not None}
            with subtests.test(row):
                await check_refused(client, body, code, pointer)


async def test_a_description_of_a_thousand_characters_is_kept_verbatim(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    for number, text in enumerate(("💡" * 1000, "<script>alert(1)</script>", "=cmd()|'", "\u202eabc", "a\nb\u2028")):
        body = TriggerDraft(cid, description=text, version=f"{number}.0.0").signed()
        assert ok(await client.post("/triggers", json=body)).json()["description"] == text
        assert ok(await client.get(f"/triggers/{body['sig']}")).json()["description"] == text
