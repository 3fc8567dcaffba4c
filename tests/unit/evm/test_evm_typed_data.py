from itertools import pairwise
from typing import Any

import pytest
from eth_utils.crypto import keccak
from hypothesis import given, settings, strategies as st
from typed_data_strategies import typed_data

from each_row import each_row
from eth_signing import encode_typed_data
from muniment.protocol.errors import InvalidTypedData, Refusal
from muniment.protocol.evm.struct_types import NODES_MAX
from muniment.protocol.evm.typed_data import Domain, compile_types, digest

# To make up types and values of them takes thirty milliseconds.
FEWER = settings(max_examples=settings().max_examples // 3)

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
Types = dict[str, list[dict[str, str]]]


def one(word: str) -> Types:
    return {"T": [{"name": "x", "type": word}]}


def pointer_of(error: pytest.ExceptionInfo[InvalidTypedData]) -> str | None:
    return error.value.faults[0].pointer


@pytest.mark.long
@FEWER
@given(typed_data())
def test_digests_are_those_of_eth_account(made: tuple[Types, str, dict[str, Any]]) -> None:
    types, primary, values = made
    domain = Domain(name="Any name", version="7")
    signable = encode_typed_data({"name": "Any name", "version": "7"}, types, values)
    encoder = compile_types(types, primary)

    assert digest(domain, encoder.struct_hash(values)) == keccak(b"\x19" + b"".join(signable))


@given(json, json)
def test_arbitrary_json_is_refused_and_nothing_else_happens(types: Any, values: Any) -> None:
    # Names longer than the strategy makes, so that what it makes never fits.
    nested: Types = {
        "T": [{"name": "list", "type": "Structure[]"}],
        "Structure": [{"name": "a_member", "type": "int8"}],
    }
    with pytest.raises(InvalidTypedData):
        compile_types(types, "Structure")
    with pytest.raises(InvalidTypedData):
        compile_types({"Structure": [{"name": "x", "type": "bool"}, types]}, "Structure")
    with pytest.raises(InvalidTypedData):
        compile_types({"Structure": [{"name": "x", "type": types}]}, "Structure")
    with pytest.raises(InvalidTypedData):
        compile_types(nested, "T").struct_hash({"list": [values]})


@pytest.mark.long
@FEWER
@given(typed_data(), st.data())
def test_a_value_replaced_by_other_json_is_refused_at_its_place_or_fits(
    made: tuple[Types, str, dict[str, Any]], data: st.DataObject
) -> None:
    types, primary, values = made
    if not values:
        return
    name = data.draw(st.sampled_from(sorted(values)))
    encoder = compile_types(types, primary)
    other = {**values, name: data.draw(json)}
    try:
        encoder.struct_hash(other)
    except Refusal as refusal:
        pointer = refusal.faults[0].pointer
        assert pointer is not None
        assert pointer == f"/values/{name}" or pointer.startswith(f"/values/{name}/")


@each_row(
    ("types", "pointer"),
    [
        ([], "/types"),
        ({}, "/types"),
        ({"T": {}}, "/types/T"),
        ({"T": [1]}, "/types/T/0"),
        ({"T": [{"name": "x"}]}, "/types/T/0"),
        ({"T": [{"name": "x", "type": "bool", "more": 1}]}, "/types/T/0"),
        ({"T": [{"name": "x y", "type": "bool"}]}, "/types/T/0/name"),
        ({"T": [{"name": "x\n", "type": "bool"}]}, "/types/T/0/name"),
        ({"T": [{"name": "x", "type": "bool"}] * 2}, "/types/T/1/name"),
        ({"T": [{"name": f"x{n}", "type": "bool"} for n in range(65)]}, "/types/T"),
        (one("uint"), "/types/T/0/type"),
        (one("uint264"), "/types/T/0/type"),
        (one("bytes0"), "/types/T/0/type"),
        (one("bool[0]"), "/types/T/0/type"),
        (one("bool[01]"), "/types/T/0/type"),
        (one("bool[1"), "/types/T/0/type"),
        (one("bool[" + "9" * 5000 + "]"), "/types/T/0/type"),
        (one("bool[99999]"), "/types/T/0/type"),
        (one("bool[200][200]"), "/types/T/0/type"),
        (one("bool[][][][][]"), "/types/T/0/type"),
        (one("T"), "/types/T/0/type"),
        ({**one("bool"), "EIP712Domain": []}, "/types/EIP712Domain"),
        ({**one("bool"), "ufixed128x18": []}, "/types/ufixed128x18"),
        ({**one("bool"), "a/b": []}, "/types"),
        ({**one("bool"), "U": []}, "/types/U"),
        ({**one("U"), "U": [{"name": "t", "type": "T[]"}]}, "/types/U/0/type"),
        ({**one("bool"), **{f"S{n}": [] for n in range(32)}}, "/types"),
    ],
)
def test_definitions_outside_the_rules_are_refused_at_their_place(types: Any, pointer: str) -> None:
    with pytest.raises(InvalidTypedData) as error:
        compile_types(types, "T")

    assert pointer_of(error) == pointer


@each_row("depth", [1, 100, 990, 1_000, 1_010, 5_000, 100_000])
def test_definitions_of_any_depth_are_refused_without_recursion(depth: int) -> None:
    deep: Any = []
    for _ in range(depth):
        deep = [deep]

    with pytest.raises(InvalidTypedData):
        compile_types({"T": deep}, "T")
    with pytest.raises(InvalidTypedData):
        compile_types(deep, "T")


@each_row("types", [object(), {"T": b"\xff", "U": {1, 2}}, {"\ud800": []}, {"T": [{"name": "\ud800"}]}])
def test_definitions_that_are_not_json_are_refused(types: Any) -> None:
    with pytest.raises(InvalidTypedData):
        compile_types(types, "T")


def chain(levels: int, members: int = 1) -> Types:
    """Structs that each hold the next one, `members` times."""
    names = ["T", *(f"S{number}" for number in range(1, levels))]
    types: Types = {name: [{"name": f"m{n}", "type": below} for n in range(members)] for name, below in pairwise(names)}
    return {**types, names[-1]: []}


def test_sixteen_levels_are_taken_and_seventeen_are_not() -> None:
    assert len(compile_types(chain(16), "T").struct_hash(values_of_chain(16))) == 32
    with pytest.raises(InvalidTypedData, match="16 levels"):
        compile_types(chain(17), "T")


def values_of_chain(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"m0": value}
    return value


def test_definitions_that_double_at_every_level_are_refused_by_count_not_by_walking() -> None:
    with pytest.raises(InvalidTypedData, match="values"):
        compile_types(chain(16, members=2), "T")


def test_the_number_of_values_is_limited_through_arrays_too() -> None:
    encoder = compile_types(one("bool[][]"), "T")
    fits = [[True] * 99 for _ in range(NODES_MAX // 100 - 1)]

    assert len(encoder.struct_hash({"x": fits})) == 32
    with pytest.raises(InvalidTypedData, match="20000 values"):
        encoder.struct_hash({"x": [*fits, *fits]})


@each_row(
    ("word", "value", "pointer"),
    [
        ("bool[]", {"x": [True, 1]}, "/values/x/1"),
        ("bool[2]", {"x": [True]}, "/values/x"),
        ("bool[][]", {"x": [[], [None]]}, "/values/x/1/0"),
        ("bool", {}, "/values/x"),
        ("bool", {"y": True}, "/values/x"),
        ("bool", {"x": True, "y": 1}, "/values/y"),
        ("bool", {"x": True, "a/b~": 1}, "/values"),
        ("bool", [], "/values"),
        ("bool", None, "/values"),
    ],
)
def test_values_of_another_shape_are_refused_at_their_place(word: str, value: Any, pointer: str) -> None:
    with pytest.raises(InvalidTypedData) as error:
        compile_types(one(word), "T").struct_hash(value)

    assert pointer_of(error) == pointer


def test_definitions_too_large_to_keep_are_compiled_all_the_same() -> None:
    types: Types = {"T": [{"name": f"{'long' * 50}{n}", "type": "bool"} for n in range(64)]}
    values = {member["name"]: True for member in types["T"]}
    small = compile_types({"T": [{"name": "x", "type": "bool"}]}, "T")

    assert compile_types(types, "T").struct_hash(values) != small.struct_hash({"x": True})
    assert compile_types({"T": [{"name": "x", "type": "bool"}]}, "T") is small
