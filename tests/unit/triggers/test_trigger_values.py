"""The values that a trigger may have; their hash is the one that wallets sign."""

from copy import deepcopy
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from hypothesis import given, strategies as st
from trigger_strategies import triggers

from each_row import each_row
from eth_signing import encode_typed_data
from muniment.protocol.errors import InvalidTypedData
from muniment.protocol.evm.typed_data import digest
from muniment.protocol.triggers.typed_data import message, registry_domain, trigger_hash, types_for

DOMAIN = registry_domain("Mimic")
INPUTS = {"n": "uint8", "spend": "TokenAmount", "at": "Token", "to": "address"}
TOKEN = {"address": "0x" + "ab" * 20, "chainId": "0xa"}
VALUES: dict[str, Any] = {
    "functionCid": "bafkreibuq5anzv5fvuhiaxoycqfujs47fdsx3bql2ppgt5je77yvardmpa",
    "version": "1.0.0",
    "input": {"n": "0xff", "spend": {"token": TOKEN, "amount": "1.5"}, "at": dict(TOKEN), "to": "0x" + "cd" * 20},
    "config": {
        "type": 1, "chainId": "10", "contract": "0x" + "ef" * 20,
        "topics": [["0x" + "1" * 64], [], ["0x" + "a" * 64, "0x" + "A" * 64]], "delta": "1h", "endDate": 1900127946801,
    },
    "executionFeeLimit": "0",
    "minValidations": 1,
}  # fmt: skip


def replaced(path: str, value: Any) -> dict[str, Any]:
    values = deepcopy(VALUES)
    *parents, last = path.split("/")[1:]
    place: Any = values
    for part in parents:
        place = place[int(part) if isinstance(place, list) else part]
    place[int(last) if isinstance(place, list) else last] = value
    return values


def refused_at(values: Any, types: Any = None) -> str | None:
    with pytest.raises(InvalidTypedData) as error:
        trigger_hash(types or types_for(INPUTS, 1), values, INPUTS)
    return error.value.faults[0].pointer


@given(triggers())
def test_the_digest_is_that_of_eth_account(made: tuple[dict[str, str], dict[str, Any]]) -> None:
    inputs, values = made
    types = types_for(inputs, values["config"]["type"])
    domain = {"name": "Mimic Protocol - Registry", "version": "1"}
    signable = encode_typed_data(domain, types, values)
    struct_hash = trigger_hash(types, values, inputs)

    assert digest(DOMAIN, struct_hash) == keccak(b"\x19" + b"".join(signable))
    assert trigger_hash(types, message(values, inputs), inputs) == struct_hash


@given(triggers(), st.data())
def test_a_member_left_out_or_added_is_refused(
    made: tuple[dict[str, str], dict[str, Any]], data: st.DataObject
) -> None:
    inputs, values = made
    types = types_for(inputs, values["config"]["type"])
    changed = deepcopy(values)
    inner = data.draw(st.sampled_from([changed, changed["config"], changed["input"]]))
    if inner and data.draw(st.booleans()):
        del inner[data.draw(st.sampled_from(sorted(inner)))]
    else:
        inner["a_member_too_many"] = 1

    with pytest.raises(InvalidTypedData):
        trigger_hash(types, changed, inputs)


def test_the_message_shows_every_address_with_its_checksum() -> None:
    shown = message(VALUES, INPUTS)
    token = {**TOKEN, "address": to_checksum_address("0x" + "ab" * 20)}

    assert shown["input"]["to"] == to_checksum_address("0x" + "cd" * 20)
    assert shown["input"]["at"] == token
    assert shown["input"]["spend"] == {"token": token, "amount": "1.5"}
    assert shown["config"]["contract"] == to_checksum_address("0x" + "ef" * 20)
    assert {name: shown[name] for name in shown if name not in {"input", "config"}} == {
        name: VALUES[name] for name in VALUES if name not in {"input", "config"}
    }


# A value that the encoder would take for the caller's own types, and that is refused before.
@each_row(
    ("path", "value"),
    [
        ("/executionFeeLimit", 1),
        ("/executionFeeLimit", "0x10"),
        ("/executionFeeLimit", "1e18"),
        ("/executionFeeLimit", "-1"),
        ("/executionFeeLimit", "1" * 79),
        ("/executionFeeLimit", "1.5"),
        ("/minValidations", "1"),
        ("/minValidations", "0x1"),
        ("/minValidations", 0),
        ("/minValidations", 256),
        ("/minValidations", 1.5),
        ("/minValidations", True),
        ("/config/type", "1"),
        ("/config/type", "0x1"),
        ("/config/type", True),
        ("/config/type", 3),
        ("/config/type", -1),
        ("/config/type", []),
        ("/config/type", {}),
        ("/config/chainId", "0xa"),
        ("/config/chainId", -1),
        ("/config/chainId", 1.0),
        ("/config/chainId", "01"),
        ("/config/endDate", "0x0"),
        ("/config/endDate", 2**53),
        ("/config/endDate", True),
        ("/config/endDate", None),
        ("/config/contract", "vitalik.eth"),
        ("/config/contract", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"),
        ("/config/contract", None),
        ("/config/topics", "0x"),
        ("/config/topics/1", None),
        ("/config/topics/2/1", "0x" + "1" * 62),
        ("/config/topics/2/1", "any text"),
        ("/config/topics/2/1", "0x" + "1" * 64 + "\n"),
    ],
)
@each_row("spelling", ["sign-params", "text"])
def test_values_are_narrower_than_their_types(path: str, value: Any, spelling: str) -> None:
    types = types_for(INPUTS, 1)
    if spelling == "text":
        text = {
            "executionFeeLimit": "string",
            "minValidations": "uint256",
            "contract": "string",
            "topics": "string[][]",
        }
        for members in (types["Trigger"], types["Config"]):
            members[:] = [{**m, "type": text.get(m["name"], m["type"])} for m in members]
    trigger_hash(types, VALUES, INPUTS)

    assert refused_at(replaced(path, value), types) == "/values" + path


@each_row("amount", ["", ".5", "1.", "1,5", "-1", "+1", "1e3", "0x1", " 1", "1\n", "١", 1, 1.5, None])
def test_an_amount_of_tokens_is_plain_decimal(amount: Any) -> None:
    assert refused_at(replaced("/input/spend/amount", amount)) == "/values/input/spend/amount"


@each_row("amount", ["0", "1", "007", "1.50", "0.0"])
def test_decimal_amounts_of_tokens_are_taken(amount: str) -> None:
    trigger_hash(types_for(INPUTS, 1), replaced("/input/spend/amount", amount), INPUTS)


@each_row(
    ("path", "value"),
    [
        ("/input/n", 256),
        ("/input/n", -1),
        ("/input/n", 1.5),
        ("/input/n", True),
        ("/input/n", 10**400),
        ("/input/to", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"),
        ("/input/at", None),
        ("/input/at/address", "0x"),
        ("/input/at/chainId", "ten"),
        ("/input/spend", "1.5"),
        ("/input/spend/token", []),
        ("/version", "a\0b"),
        ("/version", "\ud800"),
        ("/version", None),
        ("/config", None),
        ("/config", []),
        ("/input", None),
        ("/input", []),
    ],
)
def test_a_value_of_another_type_is_refused_at_its_place(path: str, value: Any) -> None:
    assert refused_at(replaced(path, value)) == "/values" + path


@each_row("chain", [True, 1.0, None, [], {}, "0x", 2**53])
def test_a_token_that_differs_from_an_accepted_one_is_refused_at_the_difference(chain: Any) -> None:
    taken = trigger_hash(types_for(INPUTS, 1), replaced("/input/at/chainId", 1), INPUTS)

    assert refused_at(replaced("/input/at/chainId", chain)) == "/values/input/at/chainId"
    assert trigger_hash(types_for(INPUTS, 1), replaced("/input/at/chainId", "0x1"), INPUTS) == taken


@each_row(
    ("token", "pointer"),
    [
        ({"address": TOKEN["address"]}, "/chainId"),
        ({"address": TOKEN["address"], "chain": 1}, "/chainId"),
        ({**TOKEN, "symbol": "T"}, "/symbol"),
        ([TOKEN["address"], 1], ""),
        ("it", ""),
    ],
)
def test_a_token_of_another_shape_is_refused_at_its_place(token: Any, pointer: str) -> None:
    assert refused_at(replaced("/input/at", token)) == f"/values/input/at{pointer}"
    assert refused_at(replaced("/input/spend/token", token)) == f"/values/input/spend/token{pointer}"


@each_row("name", ["__proto__", "extra", "Input"])
def test_an_input_that_the_manifest_does_not_name_is_refused(name: str) -> None:
    assert refused_at(replaced(f"/input/{name}", 1)) == f"/values/input/{name}"


def test_a_deep_value_is_refused_without_recursion() -> None:
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]

    assert refused_at(replaced("/input/n", deep)) == "/values/input/n"
    assert refused_at(replaced("/config/topics", deep)) == "/values/config/topics/0/0"


@each_row("values", [None, [], "x", 1, {}])
def test_values_are_an_object_with_a_config(values: Any) -> None:
    assert refused_at(values) in {"/values", "/values/config"}
