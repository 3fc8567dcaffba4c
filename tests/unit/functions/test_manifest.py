"""The rules of manifest.json."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from each_row import each_row
from muniment.protocol.errors import InvalidManifest
from muniment.protocol.functions.rules import read_manifest
from muniment.protocol.wire import SemVer

BUNDLES = Path(__file__).parents[2] / "vectors" / "bundles"
GOOD: dict[str, Any] = {"version": "1.0.0", "name": "Hello", "description": "Logs one line", "inputs": {}}


def written(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def refused(data: bytes) -> list[tuple[str | None, str]]:
    with pytest.raises(InvalidManifest) as caught:
        read_manifest(data)
    return [(fault.pointer, fault.detail) for fault in caught.value.faults]


def test_reads_the_sample_bundles() -> None:
    manifests = {path.parent.name: read_manifest(path.read_bytes()) for path in BUNDLES.glob("*/manifest.json")}
    assert {name: manifest.name for name, manifest in manifests.items()} == {
        "own-big": "Big",
        "own-hello": "Hello",
        "own-threshold": "Threshold",
    }
    threshold = manifests["own-threshold"]
    assert (threshold.version, threshold.description) == ("0.3.1", "Transfers when a balance passes a limit")
    assert isinstance(threshold.version, SemVer)
    assert list(threshold.inputs.items()) == [("chainId", "uint32"), ("limit", "uint256")]


def test_keeps_the_order_of_the_inputs() -> None:
    names = ["z", "a", "_1", "$", "m", "Z9"]
    assert list(read_manifest(written(inputs=dict.fromkeys(names, "bool"))).inputs) == names


def test_takes_an_input_as_a_word_or_as_an_object() -> None:
    inputs = {
        "a": "address",
        "b": {"type": "Token"},
        "c": {"description": "How much", "type": "TokenAmount", "more": 1},
    }
    assert dict(read_manifest(written(inputs=inputs)).inputs) == {"a": "address", "b": "Token", "c": "TokenAmount"}


TYPES = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in ("", 8, 16, 32, 64, 128, 256)),
    *("bool", "address", "string", "Token", "TokenAmount", "bytes"),
    *(f"bytes{size}" for size in range(1, 33)),
]


@each_row("word", TYPES)
def test_takes_each_type_word(word: str) -> None:
    assert read_manifest(written(inputs={"x": word})).inputs["x"] == word


@each_row(
    "word",
    [
        *("", "uint7", "uint512", "int08", "uint 8", "uint256\n", " bool", "Bool", "token", "bytes0", "bytes33"),
        *("bytes01", "uint256[]", "string[2]", "Input", "tuple", "uint٨", "Token ", "x" * 1000),
        *(8, None, ["bool"], True, {}, {"description": "x"}),
    ],
)
def test_refuses_other_types_with_a_pointer(word: Any) -> None:
    [(pointer, detail)] = refused(written(inputs={"x": word}))
    assert pointer == ("/inputs/x/type" if isinstance(word, dict) else "/inputs/x")
    assert len(detail) < 100
    [(pointer, _)] = refused(written(inputs={"ok": "bool", "x": {"type": word}}))
    assert pointer == "/inputs/x/type"


@each_row("name", ["", "1", "a-b", "a b", "x,uint256 y", "__proto__", "é", "a\n", "a/~b", "\0", "a" * 100 + "!"])
def test_refuses_other_input_names_with_a_pointer(name: str) -> None:
    [(pointer, detail)] = refused(written(inputs={"ok": "bool", name: "bool"}))
    assert pointer == ("/inputs" if len(name) > 100 else "/inputs/" + name.replace("~", "~0").replace("/", "~1"))
    assert len(detail) < 200


def test_takes_64_inputs_and_refuses_65() -> None:
    inputs = {f"x{i}": "bool" for i in range(65)}
    assert [pointer for pointer, _ in refused(written(inputs=inputs))] == ["/inputs"]
    inputs.popitem()
    assert len(read_manifest(written(inputs=inputs)).inputs) == 64


@each_row(
    ("member", "value"),
    [
        ("name", ""), ("name", "x" * 101), ("name", 1), ("name", None), ("name", "a\0b"),
        ("description", ""), ("description", "x" * 1001), ("description", ["x"]), ("description", "\0"),
        ("version", "1.0"), ("version", "01.0.0"), ("version", "v1.0.0"), ("version", 1), ("version", ""),
        ("version", "1.0.0\n"), ("version", "1.0." + "1" * 300),
        ("inputs", []), ("inputs", None), ("inputs", "bool"),
        ("metadata", []), ("metadata", None), ("metadata", "x"), ("abis", []), ("abis", None),
    ],
)  # fmt: skip
def test_refuses_a_wrong_member_with_a_pointer(member: str, value: Any) -> None:
    assert [pointer for pointer, _ in refused(written(**{member: value}))] == [f"/{member}"]


def test_counts_characters_not_bytes() -> None:
    manifest = read_manifest(written(name="😀" * 100, description="é" * 1000))
    assert (len(manifest.name), len(manifest.description)) == (100, 1000)


def test_an_abi_is_a_string() -> None:
    read_manifest(written(abis={"ERC20": "./abis/ERC20.json"}))
    assert refused(written(abis={"ERC20": "x", "My/ABI": []})) == [("/abis/My~1ABI", "is a string, not an array")]


def test_a_description_of_an_input_is_a_string() -> None:
    assert refused(written(inputs={"x": {"type": "bool", "description": 1}})) == [
        ("/inputs/x/description", "is a string")
    ]


def test_ignores_other_members() -> None:
    assert read_manifest(written(license="MIT", __proto__={"name": 1})).name == "Hello"


def test_names_every_member_that_is_wrong() -> None:
    assert refused(b'{"name":"","inputs":3,"metadata":1}') == [
        ("/name", "has 1 to 100 characters, not 0"),
        ("/version", "is missing"),
        ("/description", "is missing"),
        ("/inputs", "is an object, not an integer"),
        ("/metadata", "is an object, not an integer"),
    ]


@each_row(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"[]", "a JSON object, not an array"),
        (b"null", "a JSON object, not null"),
        (b"\xef\xbb\xbf" + written(), "byte order mark"),
        (written().decode().encode("utf-16"), "not UTF-8"),
        (b'{"name":"\xff"}', "not UTF-8"),
        (written()[:-1] + b',"name":"Hello"}', 'two members named "name"'),
        (written(inputs={"a": "bool"}).replace(b'"bool"', b'"bool","a":"bool"'), 'two members named "a"'),
        (written(metadata={"x": float("nan")}), "NaN"),
        (written(metadata={"x": "\ud800"}), "surrogate"),
        (written()[:-1] + b',"metadata":' + b'{"a":' * 99 + b"1" + b"}" * 100, "deeper"),
        (b"[" * 100_000, "deeper"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_refuses_other_json_as_a_whole(data: bytes, why: str) -> None:
    [(pointer, detail)] = refused(data)
    assert pointer == ""
    assert why in detail


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(TYPES)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
members = st.fixed_dictionaries({}, optional=dict.fromkeys([*GOOD, "abis", "metadata"], values))


@settings(deadline=None)
@given(members.map(lambda changes: written(**changes)) | values.map(json.dumps).map(str.encode) | st.binary())
def test_anything_is_read_or_refused_as_a_manifest(data: bytes) -> None:
    try:
        manifest = read_manifest(data)
    except InvalidManifest as refusal:
        shown = [refusal.detail, *(fault.pointer for fault in refusal.faults)]
        json.dumps(shown, ensure_ascii=False).encode()
    else:
        assert 1 <= len(manifest.name) <= 100
        assert set(manifest.inputs.values()) <= set(TYPES)
