"""POST /triggers: accepted spellings of clients, refusals, and vectors that wallets' libraries made."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal

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


@pytest.mark.parametrize(("config", "types"), SPELLINGS.values(), ids=SPELLINGS)
async def test_types_as_clients_spell_them_are_taken_and_shown_as_given(
    client: httpx2.AsyncClient, config: dict[str, Any], types: dict[str, Any]
) -> None:
    cid = await deploy(client)
    body = TriggerDraft(cid, config=config, types=types, fee_limit="12").signed()
    response = await client.post("/triggers", json=body)
    assert response.status_code == 200, response.text
    trigger = (await client.get(f"/triggers/{body['sig']}")).json()
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
    trigger = (await client.post("/triggers", json=body)).json()
    assert trigger["signer"] == Wallet().address
    assert trigger["functionCid"] == body["typedData"]["values"]["functionCid"]


async def check_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], body: Any, code: str, pointer: str
) -> None:
    """Refused in bounded time, and not because of the signature."""
    with calls_within(CALLS_MAX):
        async with nothing_stored():
            response = await client.post(
                "/triggers", content=json.dumps(body), headers={"content-type": "application/json"}
            )
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


@pytest.mark.parametrize(("changes", "pointer"), TYPES.values(), ids=TYPES)
async def test_types_outside_the_closed_table_are_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], changes: dict[str, Any], pointer: str
) -> None:
    inputs = {"flag": "bool", "owner": "address"}
    cid = await deploy(client, Bundle(inputs=inputs))
    given = {"flag": True, "owner": Wallet(4).address}
    body = TriggerDraft(cid, inputs=inputs, input=given).signed()
    types: dict[str, Any] = copy.deepcopy(body["typedData"]["types"])
    for name, change in changes.items():
        if change is None:
            del types[name]
        elif isinstance(change, dict) and name in {"Trigger", "Config"}:
            types[name] = [{**each, "type": change.get(each["name"], each["type"])} for each in types[name]]
        else:
            types[name] = change
    body["typedData"]["types"] = types
    await check_refused(client, nothing_stored, body, "invalid-typed-data", f"/typedData{pointer}")


@pytest.mark.parametrize("struct", ["Trigger", "Config"])
@pytest.mark.parametrize("fault", ["missing", "twice", "more"])
async def test_a_struct_with_another_set_of_members_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], struct: str, fault: str
) -> None:
    body = TriggerDraft(await deploy(client)).signed()
    types = copy.deepcopy(body["typedData"]["types"])
    last = types[struct].pop()
    types[struct] += {"missing": [], "twice": [last, last], "more": [last, member("x", "uint8")]}[fault]
    body["typedData"]["types"] = types
    count = len(types[struct])
    pointer = {"missing": f"/{struct}", "twice": f"/{struct}/{count - 1}/name", "more": f"/{struct}/{count - 1}/name"}
    await check_refused(client, nothing_stored, body, "invalid-typed-data", f"/typedData/types{pointer[fault]}")


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


@pytest.mark.parametrize(("changes", "code", "pointer"), VALUES.values(), ids=VALUES)
async def test_values_that_do_not_fit_are_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], changes: dict[str, Any], code: str, pointer: str
) -> None:
    body = TriggerDraft(await deploy(client)).signed()
    values = {**body["typedData"]["values"], **changes}
    body["typedData"]["values"] = {name: value for name, value in values.items() if value is not None}
    await check_refused(client, nothing_stored, body, code, pointer)
