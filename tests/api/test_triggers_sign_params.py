"""POST /triggers/sign-params: the typed data that every wallet signs, and refusals before anybody signs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, cron, deploy, event, once
from conftest import NOW_MS
from eth_signing import Account, encode_typed_data
from muniment.protocol.ipfs.cid import CidParts, cid_v1

pytestmark = pytest.mark.one_engine

MIXED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
INPUTS = {
    "z": "int", "u": "uint", "small": "uint8", "owner": "address", "flag": "bool", "note": "string",
    "tag": "bytes32", "data": "bytes", "token": "Token", "amount": {"type": "TokenAmount", "description": "how much"},
}  # fmt: skip
INPUT: dict[str, Any] = {
    "amount": {"token": {"address": MIXED.lower(), "chainId": 8453}, "amount": "1.50"},
    "token": {"address": "0x" + MIXED[2:].upper(), "chainId": 1}, "data": "0x", "tag": "0x" + "ab" * 32,
    "note": "ünïcode 💡", "flag": False, "owner": MIXED.lower(), "small": 255, "u": str(2**256 - 1), "z": "-5",
}  # fmt: skip


def params(cid: str, **changes: Any) -> dict[str, Any]:
    return {"functionCid": cid, "version": "1.0.0", "input": {}, "config": cron(), **changes}


def words(types: dict[str, Any], struct: str) -> list[tuple[str, str]]:
    return [(member["name"], member["type"]) for member in types[struct]]


async def ask(client: httpx2.AsyncClient, body: dict[str, Any], path: str = "/triggers/sign-params") -> httpx2.Response:
    """Big integers and lone surrogates go through as they are."""
    return await client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})


async def test_the_types_come_in_the_order_of_the_interface_and_of_the_manifest(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client, Bundle(inputs=INPUTS))
    answer = (await client.post("/triggers/sign-params", json=params(cid, input=INPUT))).json()
    assert list(answer) == ["domain", "primaryType", "types", "message"]
    assert answer["domain"] == {"name": "Mimic Protocol - Registry", "version": "1"}
    assert answer["primaryType"] == "Trigger"
    types = answer["types"]
    assert list(types) == ["Trigger", "Input", "Config", "Token", "TokenAmount"]
    assert words(types, "Trigger") == [
        ("functionCid", "string"), ("version", "string"), ("input", "Input"), ("config", "Config"),
        ("executionFeeLimit", "uint256"), ("minValidations", "uint8"),
    ]  # fmt: skip
    assert words(types, "Input") == [
        ("z", "int256"), ("u", "uint256"), ("small", "uint8"), ("owner", "address"), ("flag", "bool"),
        ("note", "string"), ("tag", "bytes32"), ("data", "bytes"), ("token", "Token"), ("amount", "TokenAmount"),
    ]  # fmt: skip
    assert words(types, "Token") == [("address", "address"), ("chainId", "uint256")]
    assert words(types, "TokenAmount") == [("token", "Token"), ("amount", "string")]


async def test_addresses_in_the_message_have_their_checksum(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client, Bundle(inputs=INPUTS))
    config = event(contract=MIXED.lower())
    message = (await ask(client, params(cid, input=INPUT, config=config))).json()["message"]
    assert message["input"]["owner"] == MIXED
    assert message["input"]["token"] == {"address": MIXED, "chainId": 1}
    assert message["input"]["amount"] == {"token": {"address": MIXED, "chainId": 8453}, "amount": "1.50"}
    assert message["config"]["contract"] == MIXED


CONFIG_WORDS = {
    "cron": (cron(), [("type", "uint8"), ("schedule", "string"), ("delta", "string"), ("endDate", "uint256")]),
    "event": (
        event(),
        [
            ("type", "uint8"), ("chainId", "uint256"), ("contract", "address"), ("topics", "bytes32[][]"),
            ("delta", "string"), ("endDate", "uint256"),
        ],
    ),
    "once": (once(), [("type", "uint8"), ("startDate", "uint256"), ("delta", "string"), ("endDate", "uint256")]),
}  # fmt: skip


async def test_each_variant_of_config_has_its_members(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    cid = await deploy(client)
    for row, (config, expected) in CONFIG_WORDS.items():
        with subtests.test(row):
            answer = ok(await ask(client, params(cid, config=config))).json()
            assert words(answer["types"], "Config") == expected
            assert answer["message"]["config"] == config
            assert list(answer["types"]) == ["Trigger", "Input", "Config"]
            assert answer["types"]["Input"] == []


async def test_a_single_run_without_a_start_gets_a_start_that_can_be_signed(client: httpx2.AsyncClient) -> None:
    config = once()
    del config["startDate"]
    answer = (await ask(client, params(await deploy(client), config=config))).json()
    assert answer["message"]["config"] == once()


async def test_fee_limit_and_validations_have_defaults(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    message = (await ask(client, params(cid))).json()["message"]
    assert (message["executionFeeLimit"], message["minValidations"]) == ("0", 1)
    given = params(cid, executionFeeLimit=str(2**256 - 1), minValidations=255)
    message = (await ask(client, given)).json()["message"]
    assert (message["executionFeeLimit"], message["minValidations"]) == (str(2**256 - 1), 255)
    assert list(message) == ["functionCid", "version", "input", "config", "executionFeeLimit", "minValidations"]


async def test_only_the_structs_that_are_used_are_given(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client, Bundle(inputs={"t": "Token"}))
    answer = (await ask(client, params(cid, input={"t": {"address": MIXED, "chainId": 1}}))).json()
    assert list(answer["types"]) == ["Trigger", "Input", "Config", "Token"]


SIGNED = {
    "no-inputs": ({}, {}, cron()),
    "every-input": (INPUTS, INPUT, cron(endDate=NOW_MS + 1)),
    "event": ({}, {}, event(contract=MIXED.lower(), topics=[["0x" + "AB" * 32], [], ["0x" + "00" * 32] * 2])),
    "no-topics": ({}, {}, event(topics=[])),
    "once": ({"n": "uint64"}, {"n": 7}, once(startDate=NOW_MS, endDate=NOW_MS + 1)),
    "token-amount-only": ({"a": "TokenAmount"}, {"a": INPUT["amount"]}, cron()),
}


async def test_eth_account_signs_the_answer_and_the_trigger_is_registered(
    client: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    account = Account.from_key(Wallet(21).key)
    for number, (row, (inputs, given, config)) in enumerate(SIGNED.items(), 1):
        cid = await deploy(client, Bundle(inputs=inputs), Wallet(number))
        with subtests.test(row):
            answer = ok(await ask(client, params(cid, input=given, config=config, executionFeeLimit="7"))).json()
            signature = account.sign_message(encode_typed_data(full_message=answer)).signature
            body = {
                "description": "Signed elsewhere", "sig": "0x" + signature.hex(), "signer": account.address,
                "typedData": {"types": answer["types"], "values": answer["message"]},
            }  # fmt: skip
            trigger = ok(await client.post("/triggers", json=body)).json()
            assert trigger["signer"] == account.address
            assert trigger["types"] == answer["types"]
            assert {name: trigger[name] for name in answer["message"]} == answer["message"]


async def test_an_unknown_function_is_refused(client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]) -> None:
    async with nothing_stored():
        response = await ask(client, params(TriggerDraft(str(cid_v1(0x70, bytes(32)))).cid))
    check_refusal(response, 400, "unknown-function", pointer="/functionCid")


CIDS: dict[str, Any] = {
    "empty": "", "short": "Qm", "upper-case-v1": str(cid_v1(0x70, bytes(32))).upper(),
    "raw": str(cid_v1(0x55, bytes(32))), "base58-with-0OIl": "Qm" + "0OIl" * 11,
    "identity": CidParts(1, 0x70, 0x00, b"x").text, "sha1": CidParts(1, 0x70, 0x11, bytes(20)).text,
    "5KB": "Qm" * 2560, "path": "Qm/../x", "nul": "Qm\0", "number": 1, "null": None,
}  # fmt: skip


async def test_a_text_that_is_not_the_cid_of_a_bundle_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for row, cid in CIDS.items():
            code = "invalid-cid" if isinstance(cid, str) else "invalid-body"
            with subtests.test(row):
                check_refusal(await ask(client, params(cid)), 400, code, pointer="/functionCid")


VERSIONS = ["1.0", "01.0.0", "1.0.0-01", "v1.0.0", "1.0.0 ", "", "1.0.٣", "1" * 300 + ".0.0", "1.0.0\n"]


async def test_a_text_that_is_not_a_semantic_version_is_refused(
    client: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    cid = await deploy(client)
    for version in VERSIONS:
        with subtests.test(repr(version[:8])):
            check_refusal(await ask(client, params(cid, version=version)), 400, "invalid-version", pointer="/version")


async def test_a_version_with_a_chain_after_it_is_accepted(client: httpx2.AsyncClient) -> None:
    response = await ask(client, params(await deploy(client), version="0.0.1-42161"))
    assert response.json()["message"]["version"] == "0.0.1-42161"
