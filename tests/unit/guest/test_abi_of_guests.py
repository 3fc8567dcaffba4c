"""The ABI of guests against eth-abi, whose values are not texts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from eth_abi.abi import encode as reference

from each_row import each_row
from muniment.guest import limits
from muniment.guest.abi import Abi
from muniment.guest.outcomes import Stop

ADDRESS = "0x" + "ab" * 20
WORD = "0x" + "0f" * 32


def _param(kind: str, value: Any) -> dict[str, str]:
    return {"abiType": kind, "value": value if isinstance(value, str) else json.dumps(value)}


def encoded(*params: tuple[str, Any]) -> str:
    return Abi().encode(json.dumps([_param(kind, value) for kind, value in params]))


def decoded(kind: str, data: bytes | str) -> str:
    value = data if isinstance(data, str) else f"0x{data.hex()}"
    return Abi().decode(json.dumps({"abiType": kind, "value": value}))


def _uints(*numbers: int) -> list[dict[str, str]]:
    return [_param("uint256", str(number)) for number in numbers]


def _pair(number: int, *texts: str) -> list[dict[str, str]]:
    """The members of a tuple (uint256, (string)[])."""
    parts = [_param("()", [_param("string", f"0x{text.encode().hex()}")]) for text in texts]
    return [*_uints(number), _param("()[]", parts)]


@each_row(
    ("params", "types", "values"),
    [
        ([], [], []),
        ([("uint256", "5"), ("int8", "-20"), ("uint", "7")], ["uint256", "int8", "uint256"], [5, -20, 7]),
        ([("address", ADDRESS), ("bool", "0x01"),
        ("bool", "0x00")], ["address", "bool", "bool"], [ADDRESS, True, False]),
        ([("string", "0xc3b1"), ("bytes", "0x0102"),
        ("bytes", "0x")], ["string", "bytes", "bytes"], ["ñ", b"\1\2", b""]),
        ([("bytes8", "0x0102"), ("bytes32", WORD)], ["bytes8", "bytes32"], [b"\1\2", b"\x0f" * 32]),
        ([("string", "ff")], ["bytes"], [b"\xff"]),
        ([("uint256[]", _uints(1, 2))], ["uint256[]"], [[1, 2]]),
        ([("uint256[]", [])], ["uint256[]"], [[]]),
        ([("uint256[2]", _uints(1, 2))], ["uint256[2]"], [[1, 2]]),
        ([("uint256[2][]", [_param("uint256[2]", _uints(1, 2))] * 2)], ["uint256[2][]"], [[[1, 2]] * 2]),
        ([("()", _uints(1)), ("(uint256)", _uints(2))], ["(uint256)", "(uint256)"], [(1,), (2,)]),
        ([("()", [*_uints(1), _param("string", "0x41")])], ["(uint256,string)"], [(1, "A")]),
        # An empty array does not tell its type: another item of the array does, or nobody needs to know.
        ([("()[]", [_param("()", _pair(1)), _param("()", _pair(2, "A"))])], ["(uint256,(string)[])[]"],
         [[(1, []), (2, [("A",)])]]),
        ([("()[]", [_param("()", _pair(1, "A")), _param("()", _pair(2))])], ["(uint256,(string)[])[]"],
         [[(1, [("A",)]), (2, [])]]),
        ([("()[]", [])], ["(uint256)[]"], [[]]),
        ([("string[]", []), ("string[][]", [_param("string[]", [])])], ["string[]", "string[][]"], [[], [[]]]),
    ],
)  # fmt: skip
def test_values_are_encoded_as_the_contract_abi_says(params: Any, types: list[str], values: list[Any]) -> None:
    assert encoded(*params) == reference(types, values).hex()


@each_row(
    "param",
    [
        ("uint256", ""), ("uint256", "x"), ("uint256", "1.5"), ("uint256", "0x1"), ("uint256", "-1"), ("uint8", "256"),
        ("uint256", str(2**256)), ("int8", "128"), ("bool", "true"), ("bool", "0x02"), ("bool", "0x"),
        ("address", "0x"),
        ("address", WORD), ("bytes", "0x1"), ("bytes", "xy"), ("bytes4", "0x0102030405"), ("string", "hello"),
        ("uint7", "1"), ("uint264", "1"), ("bytes33", "0x"), ("bytes0", "0x"), ("uint08", "1"), ("", "1"),
        ("tuple", "1"),
        ("uint256[2]", _uints(1)), ("uint256[0]", []), ("uint256[]", "x"), ("uint256[]", "{}"), ("uint256[]", "[1]"),
        ("uint256[", "[]"), ("uint256]", "[]"), ("uint256[-1]", "[]"), ("()", "[]"), ("(uint256)", "[]"),
        ("uint8[]", _uints(1)), ("(uint256,uint256)", _uints(1)), ("(uint256", _uints(1)), ("uint256[] ", []),
        ("uint256[]", [*_uints(1), _param("bool", "0x01")]), ("function", "0x"), ("fixed128x18", "1"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_of_its_type_is_refused(param: tuple[str, Any]) -> None:
    with pytest.raises(Stop) as caught:
        encoded(param)
    assert caught.value.reason == "bad-argument"


@each_row("text", ["", "{}", "null", "[1]", '[{"abiType":"uint8"}]', '[{"abiType":1,"value":"1"}]'])
def test_what_is_no_list_of_values_is_refused(text: str) -> None:
    with pytest.raises(Stop) as caught:
        Abi().encode(text)
    assert caught.value.reason == "bad-argument"


EVENT = "(uint256,bytes32,uint256,address,bytes32[],bytes)"


@each_row(
    ("kind", "value", "text"),
    [
        ("uint256", 2**256 - 1, str(2**256 - 1)), ("int256", -5, "-5"), ("bool", True, "0x01"), ("bool", False, "0x00"),
        ("address", ADDRESS.upper().replace("X", "x"), ADDRESS), ("bytes4", b"\1\2\3\4", "0x01020304"),
        ("bytes", b"", "0x"), ("string", "ñ 🐍", "ñ 🐍"), ("uint256[]", [], "[]"), ("uint256[]", [1, 2], '["1","2"]'),
        ("string[]", ['"', ""], '["\\"",""]'), ("uint8[2][]", [[1, 2]], '["[\\"1\\",\\"2\\"]"]'),
        ("(uint256,bool)", (7, True), '["7","0x01"]'), ("(uint256)[]", [(7,)], '["[\\"7\\"]"]'),
        ("(uint8,bytes,(bool,string[]))", (1, b"", (False, ["b"])),
         '["1","0x","[\\"0x00\\",\\"[\\\\\\"b\\\\\\"]\\"]"]'),
    ],
)  # fmt: skip
def test_data_are_decoded_as_texts(kind: str, value: Any, text: str) -> None:
    assert decoded(kind, reference([kind], [value])) == text


def test_a_string_that_is_not_utf_8_is_decoded_all_the_same() -> None:
    assert decoded("string", reference(["bytes"], [b"a\xff"])) == "a\ufffd"


@each_row(
    ("kind", "values"),
    [
        ("(uint256,string)", (1, "a")), ("(uint256,string)", (32, "x" * 32)), ("(uint256,string)", (64, "x" * 32)),
        ("(string)", ("",)), ("(bytes,bytes)", (b"\0" * 31 + b"\x20", b"")), ("(uint256,uint256[])", (32, [1, 2, 3])),
        # Without its offset it could be read as (64, "") with one, which would be encoded otherwise.
        ("(uint256,bytes)", (32, bytes(64))),
        (EVENT, (1, b"\1" * 32, 2, ADDRESS, [b"\2" * 32], b"x")), ("((string),uint8)", (("a",), 1)),
    ],
)  # fmt: skip
def test_a_tuple_is_read_with_its_offset_and_without(kind: str, values: tuple[Any, ...]) -> None:
    with_offset = decoded(kind, reference([kind], [values]))
    members = re.sub(r"^\(|\)$", "", kind)
    parts = ["(string)", "uint8"] if members == "(string),uint8" else members.split(",")
    assert decoded(kind, reference(parts, values)) == with_offset


@each_row(
    ("kind", "data"),
    [
        ("uint256", ""), ("uint256", "0x"), ("uint256", "00" * 31), ("uint256", "0x0"), ("uint256", "x"),
        ("uint256[]", f"{32:064x}{2:064x}{1:064x}"), ("uint256[]", f"{32:064x}{2**255:064x}"),
        ("uint256[]", f"{2**256 - 1:064x}"), ("bytes", f"{32:064x}{1000:064x}"), ("bytes", f"{32:064x}{2:064x}ff"),
        ("bytes", f"{32:064x}"), ("bytes", f"{32:064x}{2**255:064x}"), ("uint8", "ff" * 32),
        ("bool", f"{2:064x}"), ("(uint256,string)", f"{32:064x}"), ("uint256[1000]", "00" * 64),
        ("uint256[99999][99999]", "00" * 64), ("()", "00" * 32), ("()[]", "00" * 32), ("(uint256,)", "00" * 32),
    ],
)  # fmt: skip
def test_data_that_are_short_or_lead_nowhere_are_refused(kind: str, data: str) -> None:
    with pytest.raises(Stop) as caught:
        decoded(kind, data)
    assert caught.value.reason == "bad-argument"


@each_row("padding", ["", "00" * 30, "ff" * 30])
def test_bytes_need_no_padding(padding: str) -> None:
    assert decoded("bytes", f"{32:064x}{2:064x}abcd{padding}") == "0xabcd"


DIRTY = "ff" * 12 + ADDRESS[2:]


@each_row(
    ("kind", "data", "text"),
    [
        ("address", DIRTY, ADDRESS), ("bytes4", "01020304" + "ff" * 28, "0x01020304"),
        ("bytes31", "ab" * 32, "0x" + "ab" * 31),
        ("(address,uint256)", f"{DIRTY}{7:064x}", f'["{ADDRESS}","7"]'), ("address[1]", DIRTY, f'["{ADDRESS}"]'),
        ("address[]", f"{32:064x}{1:064x}{DIRTY}", f'["{ADDRESS}"]'),
        ("(address,string)", f"{DIRTY}{64:064x}{1:064x}41{'ff' * 31}", f'["{ADDRESS}","A"]'),
        # It can be read as with its offset too, which would be encoded less like it.
        ("(uint256,bytes4,string)", f"{32:064x}01020304{'ff' * 28}{96:064x}{64:064x}{'41' * 64}",
         f'["32","0x01020304","{"A" * 64}"]'),
    ],
)  # fmt: skip
def test_padding_of_addresses_and_fixed_bytes_is_cut(kind: str, data: str, text: str) -> None:
    assert decoded(kind, data) == text


def test_types_nest_eight_deep() -> None:
    def nested(depth: int) -> str:
        return "(" * depth + "uint256" + ")" * depth

    assert decoded(nested(limits.ABI_DEPTH_MAX), "00" * 31 + "05").count("[") == limits.ABI_DEPTH_MAX
    for kind in (nested(limits.ABI_DEPTH_MAX + 1), "uint256" + "[]" * (limits.ABI_DEPTH_MAX + 1)):
        with pytest.raises(Stop) as caught:
            decoded(kind, "00" * 64)
        assert caught.value.reason == "limit-abi"


def test_values_nest_eight_deep() -> None:
    value: Any = _uints(1)
    for _ in range(limits.ABI_DEPTH_MAX + 1):
        value = [_param("()", value)]
    with pytest.raises(Stop) as caught:
        Abi().encode(json.dumps(value))
    assert caught.value.reason == "limit-abi"


def test_a_type_has_a_limited_length() -> None:
    with pytest.raises(Stop) as caught:
        decoded(f"({','.join(['uint256'] * 1000)})", "00" * 32)
    assert caught.value.reason == "limit-abi"
