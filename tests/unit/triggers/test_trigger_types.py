"""Which types a caller may sign: the closed table."""

from typing import Any

import pytest
from eth_utils.crypto import keccak
from hypothesis import given, strategies as st
from trigger_strategies import triggers

from each_row import each_row
from eth_signing import encode_typed_data
from muniment.protocol.errors import InvalidTypedData
from muniment.protocol.evm.typed_data import compile_types, digest
from muniment.protocol.triggers.typed_data import (
    CRON,
    EVENT,
    ONCE,
    Types,
    check_types,
    registry_domain,
    trigger_hash,
    types_for,
)

INPUTS = {"x": "uint", "owner": "address", "spend": "TokenAmount"}


def refused_at(types: Any, inputs: dict[str, str] = INPUTS, config_type: int = CRON) -> str | None:
    with pytest.raises(InvalidTypedData) as error:
        check_types(types, inputs, config_type)
    return error.value.faults[0].pointer


def altered(struct: str, members: list[dict[str, str]], config_type: int = CRON) -> Types:
    return {**types_for(INPUTS, config_type), struct: members}


def retyped(struct: str, name: str, word: str, config_type: int = CRON) -> Types:
    members = types_for(INPUTS, config_type)[struct]
    return altered(struct, [{**m, "type": word} if m["name"] == name else m for m in members], config_type)


def pairs(members: list[dict[str, str]]) -> str:
    return ", ".join(f"{member['type']} {member['name']}" for member in members)


def test_the_types_to_sign_are_those_of_the_contract_in_its_order() -> None:
    types = types_for(INPUTS, CRON)

    assert list(types) == ["Trigger", "Input", "Config", "Token", "TokenAmount"]
    assert pairs(types["Trigger"]) == (
        "string functionCid, string version, Input input, Config config, "
        "uint256 executionFeeLimit, uint8 minValidations"
    )
    assert pairs(types["Input"]) == "uint256 x, address owner, TokenAmount spend"
    assert pairs(types["Token"]) == "address address, uint256 chainId"
    assert pairs(types["TokenAmount"]) == "Token token, string amount"


@each_row(
    ("config_type", "config"),
    [
        (CRON, "uint8 type, string schedule, string delta, uint256 endDate"),
        (EVENT, "uint8 type, uint256 chainId, address contract, bytes32[][] topics, string delta, uint256 endDate"),
        (ONCE, "uint8 type, uint256 startDate, string delta, uint256 endDate"),
    ],
)
def test_each_variant_has_its_config(config_type: int, config: str) -> None:
    assert pairs(types_for({}, config_type)["Config"]) == config


@each_row(
    ("inputs", "structs"),
    [({}, []), ({"a": "Token"}, ["Token"]), ({"a": "TokenAmount", "b": "int"}, ["Token", "TokenAmount"])],
)
def test_token_structs_are_there_exactly_when_used(inputs: dict[str, str], structs: list[str]) -> None:
    assert list(types_for(inputs, ONCE)) == ["Trigger", "Input", "Config", *structs]


@each_row("config_type", [CRON, EVENT, ONCE])
def test_the_types_of_sign_params_pass(config_type: int) -> None:
    check_types(types_for(INPUTS, config_type), INPUTS, config_type)


@each_row(
    ("config_type", "struct", "name", "word"),
    [
        (CRON, "Trigger", "executionFeeLimit", "string"),
        (CRON, "Trigger", "minValidations", "uint256"),
        (CRON, "Config", "type", "uint256"),
        (CRON, "Config", "endDate", "uint64"),
        (EVENT, "Config", "chainId", "uint24"),
        (EVENT, "Config", "contract", "string"),
        (EVENT, "Config", "topics", "string[][]"),
        (ONCE, "Config", "startDate", "uint48"),
    ],
)
def test_spellings_in_the_table_pass(config_type: int, struct: str, name: str, word: str) -> None:
    check_types(retyped(struct, name, word, config_type), INPUTS, config_type)


def test_once_may_leave_its_start_out() -> None:
    members = [m for m in types_for(INPUTS, ONCE)["Config"] if m["name"] != "startDate"]

    check_types(altered("Config", members, ONCE), INPUTS, ONCE)


@each_row("struct", ["Trigger", "Config"])
def test_members_identified_by_name_have_any_order(struct: str) -> None:
    check_types(altered(struct, types_for(INPUTS, EVENT)[struct][::-1], EVENT), INPUTS, EVENT)


# Another word of the closed table for each member that has one; every value fits it.
OTHER_WORDS = {
    "executionFeeLimit": "string", "minValidations": "uint32", "type": "uint16", "contract": "string",
    "topics": "string[][]",
}  # fmt: skip


@pytest.mark.long
@given(triggers(), st.data())
def test_every_order_and_spelling_is_hashed_as_its_own_types(
    made: tuple[dict[str, str], dict[str, Any]], data: st.DataObject
) -> None:
    inputs, values = made
    types = types_for(inputs, values["config"]["type"])
    for struct in ("Trigger", "Config"):
        members = data.draw(st.permutations(types[struct]))
        others = data.draw(st.sets(st.sampled_from(sorted(OTHER_WORDS))))
        types[struct] = [{**m, "type": OTHER_WORDS[m["name"]]} if m["name"] in others else m for m in members]
    struct_hash = trigger_hash(types, values, inputs)
    signable = encode_typed_data({"name": "Mimic Protocol - Registry", "version": "1"}, types, values)

    assert digest(registry_domain("Mimic"), struct_hash) == keccak(b"\x19" + b"".join(signable))
    assert struct_hash == compile_types(types, "Trigger").struct_hash(values)


@each_row("name", ["x y", "x\n", "é", ""])
def test_an_input_must_be_named_with_an_identifier(name: str) -> None:
    inputs = {name: "bool"}
    with pytest.raises(InvalidTypedData) as error:
        trigger_hash(types_for(inputs, ONCE), {"config": {"type": ONCE}}, inputs)
    assert error.value.faults[0].pointer == "/types/Input/0/name"


@each_row("struct", ["Input", "Token", "TokenAmount"])
def test_inputs_and_tokens_have_one_order(struct: str) -> None:
    assert refused_at(altered(struct, types_for(INPUTS, CRON)[struct][::-1])) == f"/types/{struct}/0"


@each_row(
    ("config_type", "struct", "name", "word", "index"),
    [
        (CRON, "Trigger", "functionCid", "bytes", 0),
        (CRON, "Trigger", "input", "Input[]", 2),
        (CRON, "Trigger", "input", "Config", 2),
        (CRON, "Trigger", "config", "Input", 3),
        (CRON, "Trigger", "executionFeeLimit", "uint128", 4),
        (CRON, "Trigger", "minValidations", "string", 5),
        (CRON, "Trigger", "minValidations", "uint7", 5),
        (CRON, "Trigger", "minValidations", "int8", 5),
        (CRON, "Config", "schedule", "bytes", 1),
        (CRON, "Config", "delta", "uint256", 2),
        (CRON, "Config", "endDate", "string", 3),
        (CRON, "Config", "endDate", "uint", 3),
        (EVENT, "Config", "contract", "bytes20", 2),
        (EVENT, "Config", "topics", "bytes[][]", 3),
        (EVENT, "Config", "topics", "bytes32[4][]", 3),
    ],
)
def test_spellings_outside_the_table_are_refused(
    config_type: int, struct: str, name: str, word: str, index: int
) -> None:
    types = retyped(struct, name, word, config_type)

    assert refused_at(types, config_type=config_type) == f"/types/{struct}/{index}/type"


@each_row(
    ("name", "word", "index"),
    [("x", "uint", 0), ("x", "uint8", 0), ("owner", "string", 1), ("spend", "TokenAmount[]", 2)],
)
def test_an_input_has_the_manifests_type(name: str, word: str, index: int) -> None:
    assert refused_at(retyped("Input", name, word)) == f"/types/Input/{index}"


@each_row("struct", ["Trigger", "Input", "Config", "Token", "TokenAmount"])
def test_a_struct_or_a_member_left_out_is_refused(struct: str) -> None:
    types = types_for(INPUTS, CRON)

    assert refused_at({name: types[name] for name in types if name != struct}) == "/types"
    assert refused_at({**types, struct: types[struct][:-1]}) == f"/types/{struct}"


@each_row("struct", ["Trigger", "Input", "Config", "Token", "TokenAmount"])
def test_one_member_more_or_twice_is_refused(struct: str) -> None:
    members = types_for(INPUTS, CRON)[struct]
    place = f"/types/{struct}/{len(members)}"

    for more in ({"name": "more", "type": "bool"}, members[0]):
        pointer = refused_at(altered(struct, [*members, more]))
        assert pointer is not None
        assert pointer.removesuffix("/name") == place


@each_row("more", ["EIP712Domain", "Unused", "uint256", "", "a/b", "Trigger2"])
def test_one_struct_more_is_refused(more: str) -> None:
    assert refused_at({**types_for(INPUTS, CRON), more: []}) == "/types"


def test_token_structs_that_no_input_uses_are_refused() -> None:
    assert refused_at(types_for({"a": "Token"}, CRON), {}) == "/types"
    assert refused_at(types_for({"a": "TokenAmount"}, CRON), {"a": "Token"}) == "/types"


@each_row(
    "member", [None, 1, [], "x", {"name": "x"}, {"name": "x", "type": 1}, {"name": "x", "type": "uint256", "more": 1}]
)
def test_a_member_is_name_and_type_and_nothing_else(member: Any) -> None:
    types = {**types_for({"x": "uint"}, CRON), "Input": [member]}

    assert refused_at(types, {"x": "uint"}) == "/types/Input/0"


@each_row("types", [None, [], "x", 1, True, {}])
def test_types_are_an_object(types: Any) -> None:
    assert refused_at(types) == "/types"


@each_row("struct", [None, {}, "x", {"x": "uint256"}])
def test_a_struct_is_an_array(struct: Any) -> None:
    assert refused_at({**types_for(INPUTS, CRON), "Input": struct}) == "/types/Input"
