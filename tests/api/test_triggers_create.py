"""POST /triggers: accepted spellings of clients, refusals, and vectors that wallets' libraries made."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import product
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, cron, deploy, event, once, register
from conftest import NOW_MS
from counted_calls import calls_within
from muniment.protocol.triggers.typed_data import types_for

pytestmark = pytest.mark.one_engine

TOPIC = "0x" + "Ab" * 32
CALLS_MAX = 100_000


def respelled(
    config: dict[str, Any], *, order: Callable[[list[Any]], list[Any]] = list, **words: str
) -> dict[str, Any]:
    """The types for a function without inputs, with some members typed otherwise and in another order."""
    types = copy.deepcopy(types_for({}, config["type"]))
    for struct in ("Trigger", "Config"):
        for member in types[struct]:
            member["type"] = words.get(member["name"], member["type"])
        types[struct] = order(types[struct])
    return types


def no_start() -> tuple[dict[str, Any], dict[str, Any]]:
    """A once config without startDate, and types that do not have it either."""
    config = once()
    del config["startDate"]
    types = respelled(config)
    types["Config"] = [member for member in types["Config"] if member["name"] != "startDate"]
    return config, types


LOWER = event(contract=Wallet(99).address.lower(), topics=[[TOPIC], []])
SPELLINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fee-limit-as-string": (cron(), respelled(cron(), executionFeeLimit="string")),
    "validations-as-uint16": (cron(), respelled(cron(), minValidations="uint16")),
    "contract-as-string": (LOWER, respelled(LOWER, contract="string")),
    "topics-as-strings": (LOWER, respelled(LOWER, topics="string[][]")),
    "chain-as-uint32": (LOWER, respelled(LOWER, chainId="uint32")),
    "end-as-uint64-and-text": (cron(endDate=str(NOW_MS + 1)), respelled(cron(), endDate="uint64")),
    "type-as-uint256": (cron(), respelled(cron(), type="uint256")),
    "once-without-start": no_start(),
    "once-start-as-text": (once(startDate="5"), respelled(once())),
    "members-in-another-order": (cron(), respelled(cron(), order=lambda members: members[::-1])),
}


async def test_types_as_clients_spell_them_are_taken_and_shown_as_given(
    client: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    cid = await deploy(client)
    for row, (config, types) in SPELLINGS.items():
        with subtests.test(row):
            body = TriggerDraft(cid, config=config, types=types, fee_limit="12").signed()
            response = ok(await client.post("/triggers", json=body))
            trigger = ok(await client.get(f"/triggers/{body['sig']}")).json()
            assert trigger == response.json()
            for name, given in (("types", types), ("config", config), ("executionFeeLimit", "12")):
                assert json.dumps(trigger[name]) == json.dumps(given)  # the order of members too
            assert trigger["endDate"] == int(config["endDate"])


async def test_an_input_is_shown_as_it_was_given(client: httpx2.AsyncClient) -> None:
    inputs = {"b": "uint256", "a": "address", "t": "Token"}
    cid = await deploy(client, Bundle(inputs=inputs))
    lower = Wallet(5).address.lower()
    given = {"t": {"chainId": "0x1", "address": lower}, "a": lower, "b": "0xFf"}
    trigger = await register(client, TriggerDraft(cid, inputs=inputs, input=given))
    assert json.dumps(trigger["input"]) == json.dumps(given)


async def test_the_signer_is_shown_with_its_checksum_and_the_cid_as_given(client: httpx2.AsyncClient) -> None:
    body = TriggerDraft(await deploy(client)).signed()
    body["signer"] = body["signer"].lower()
    trigger = ok(await client.post("/triggers", json=body)).json()
    assert trigger["signer"] == Wallet().address
    assert trigger["functionCid"] == body["typedData"]["values"]["functionCid"]


async def check_refused(client: httpx2.AsyncClient, body: Any, code: str, pointer: str) -> None:
    """Refused in bounded time, and not because of the signature."""
    content = json.dumps(body)
    with calls_within(CALLS_MAX):
        response = await client.post("/triggers", content=content, headers={"content-type": "application/json"})
        check_refusal(response, 400, code, pointer=pointer)


def member(name: str, word: str) -> dict[str, str]:
    return {"name": name, "type": word}


CYCLE = {"A": [member("b", "B[]")], "B": [member("a", "A")]}
TYPES: dict[str, tuple[dict[str, Any], str]] = {
    "no-config": ({"Config": None}, "/types"),
    "domain": ({"EIP712Domain": [member("name", "string")]}, "/types"),
    "unused": ({"Unused": [member("x", "uint8")]}, "/types"),
    "token-unused": ({"Token": [member("address", "address"), member("chainId", "uint256")]}, "/types"),
    "cycle": ({"Input": [member("x", "A")], **CYCLE}, "/types"),
    "500-structs": ({f"S{number}": [] for number in range(500)}, "/types"),
    "proto": ({"__proto__": []}, "/types"),
    "empty-name": ({"": []}, "/types"),
    "input-array": ({"Trigger": {"input": "Input[]"}}, "/types/Trigger/2/type"),
    "input-as-config": ({"Trigger": {"input": "Config"}}, "/types/Trigger/2/type"),
    "cid-as-bytes": ({"Trigger": {"functionCid": "bytes"}}, "/types/Trigger/0/type"),
    "fee-as-uint128": ({"Trigger": {"executionFeeLimit": "uint128"}}, "/types/Trigger/4/type"),
    "validations-as-int8": ({"Trigger": {"minValidations": "int8"}}, "/types/Trigger/5/type"),
    "uint7": ({"Config": {"endDate": "uint7"}}, "/types/Config/3/type"),
    "schedule-as-bytes": ({"Config": {"schedule": "bytes"}}, "/types/Config/1/type"),
    "input-uint7": ({"Input": [member("flag", "uint7")]}, "/types/Input/0"),
    "bool-as-string": ({"Input": [member("flag", "string"), member("owner", "address")]}, "/types/Input/0"),
    "address-as-string": ({"Input": [member("flag", "bool"), member("owner", "string")]}, "/types/Input/1"),
    "inputs-turned-round": ({"Input": [member("owner", "address"), member("flag", "bool")]}, "/types/Input/0"),
    "input-twice": ({"Input": [member("flag", "bool")] * 2}, "/types/Input/1"),
    "input-omitted": ({"Input": [member("flag", "bool")]}, "/types/Input"),
    "not-an-array": ({"Input": {"flag": "bool"}}, "/types/Input"),
    "member-a-number": ({"Input": [1]}, "/types/Input/0"),
    "name-a-number": ({"Input": [{"name": 1, "type": "bool"}]}, "/types/Input/0"),
    "member-with-more": ({"Input": [{**member("flag", "bool"), "indexed": True}]}, "/types/Input/0"),
    "name-with-a-comma": ({"Input": [member("flag,uint256 y", "bool")]}, "/types/Input/0"),
    "10^400": ({"Input": 10**400}, "/types/Input"),
}  # fmt: skip


async def test_types_outside_the_closed_table_are_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    inputs = {"flag": "bool", "owner": "address"}
    cid = await deploy(client, Bundle(inputs=inputs))
    given = {"flag": True, "owner": Wallet(4).address}
    async with nothing_stored():
        for row, (changes, pointer) in TYPES.items():
            body = TriggerDraft(cid, inputs=inputs, input=given).signed()
            body["typedData"]["types"] = changed(body["typedData"]["types"], changes)
            with subtests.test(row):
                await check_refused(client, body, "invalid-typed-data", f"/typedData{pointer}")


def changed(types: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of `types` with the changes of a row of `TYPES`."""
    types = copy.deepcopy(types)
    for name, change in changes.items():
        if change is None:
            del types[name]
        elif isinstance(change, dict) and name in {"Trigger", "Config"}:
            types[name] = [{**each, "type": change.get(each["name"], each["type"])} for each in types[name]]
        else:
            types[name] = change
    return types


async def test_a_struct_with_another_set_of_members_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    cid = await deploy(client)
    async with nothing_stored():
        for struct, fault in product(("Trigger", "Config"), ("missing", "twice", "more")):
            body = TriggerDraft(cid).signed()
            types = copy.deepcopy(body["typedData"]["types"])
            last = types[struct].pop()
            types[struct] += {"missing": [], "twice": [last, last], "more": [last, member("x", "uint8")]}[fault]
            body["typedData"]["types"] = types
            pointer = f"/{struct}" if fault == "missing" else f"/{struct}/{len(types[struct]) - 1}/name"
            with subtests.test(struct, fault=fault):
                await check_refused(client, body, "invalid-typed-data", f"/typedData/types{pointer}")


VALUES: dict[str, tuple[dict[str, Any], str, str]] = {
    "extra": ({"extra": 1}, "invalid-body", "/typedData/values"),
    "missing": ({"version": None}, "invalid-body", "/typedData/values/version"),
    "extra-in-config": ({"config": cron(x=1)}, "invalid-typed-data", "/typedData/values/config/x"),
    "extra-in-input": ({"input": {"x": 1}}, "invalid-typed-data", "/typedData/values/input/x"),
    "other-variant": ({"config": once()}, "invalid-typed-data", "/typedData/types/Config/1/name"),
    "schedule-null": ({"config": cron(schedule=None)}, "invalid-typed-data", "/typedData/values/config/schedule"),
    "fee-number": ({"executionFeeLimit": 0}, "invalid-body", "/typedData/values/executionFeeLimit"),
    "fee-exponent": ({"executionFeeLimit": "1e18"}, "invalid-amount", "/typedData/values/executionFeeLimit"),
    "fee-79-digits": ({"executionFeeLimit": "1" * 79}, "invalid-amount", "/typedData/values/executionFeeLimit"),
    "validations-0": ({"minValidations": 0}, "invalid-body", "/typedData/values/minValidations"),
    "validations-256": ({"minValidations": 256}, "invalid-body", "/typedData/values/minValidations"),
    "validations-1.5": ({"minValidations": 1.5}, "invalid-body", "/typedData/values/minValidations"),
    "version": ({"version": "1.0"}, "invalid-version", "/typedData/values/version"),
    "cid": ({"functionCid": "Qm"}, "invalid-cid", "/typedData/values/functionCid"),
}


async def test_values_that_do_not_fit_are_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    cid = await deploy(client)
    async with nothing_stored():
        for row, (changes, code, pointer) in VALUES.items():
            body = TriggerDraft(cid).signed()
            values = {**body["typedData"]["values"], **changes}
            body["typedData"]["values"] = {name: value for name, value in values.items() if value is not None}
            with subtests.test(row):
                await check_refused(client, body, code, pointer)
