"""Values that careless encoders read in some way, and that are refused here."""

import contextlib
import tracemalloc
from typing import Any

import pytest
from eth_utils.crypto import keccak
from hypothesis import given, strategies as st
from typed_data_strategies import texts

from each_row import each_row
from muniment.protocol.evm.words import SAFE_INTEGER_MAX, WORDS, Misfit


@each_row(
    ("word", "value", "encoded"),
    [
        ("uint8", 255, 255),
        ("uint8", "255", 255),
        ("uint8", "0xfF", 255),
        ("uint8", "0x00ff", 255),
        ("uint8", 0, 0),
        ("uint8", "0", 0),
        ("int8", -128, 2**256 - 128),
        ("int8", "-128", 2**256 - 128),
        ("uint256", SAFE_INTEGER_MAX, SAFE_INTEGER_MAX),
        ("uint256", str(2**256 - 1), 2**256 - 1),
        ("uint256", "0x" + "f" * 64, 2**256 - 1),
        ("bool", True, 1),
        ("bool", False, 0),
        ("address", "0x" + "0" * 38 + "FF", 255),
        ("bytes1", "0xfF", 255 << 248),
    ],
)
def test_a_value_has_one_word(word: str, value: Any, encoded: int) -> None:
    assert WORDS[word](value) == encoded.to_bytes(32, "big")


NO_UINT8: list[Any] = [
    256, -1, SAFE_INTEGER_MAX + 1, 10**5000, True, False, None, 1.0, [], {},
    "256", "-1", "-0", "01", "+1", "1_0", " 1", "1 ", "1\n", "1.0", "1e1", "٧", "７", "", "-", "0x", "0X1",
    "-0x1", "0x1g", "0b1", "0o1", "1" * 79, "9" * 5000, "0x" + "0" * 65, "\ud800",
]  # fmt: skip


def test_a_value_outside_uint8_is_refused() -> None:
    for value in NO_UINT8:
        with pytest.raises(Misfit):
            WORDS["uint8"](value)


@each_row("value", [128, -129, "128", "-129", -SAFE_INTEGER_MAX - 1])
def test_a_value_outside_int8_is_refused(value: Any) -> None:
    with pytest.raises(Misfit):
        WORDS["int8"](value)


@each_row(
    ("word", "values"),
    [
        ("bool", [0, 1, "true", "", None, [], 1.0]),
        ("address", [None, 1, "", "0x", "0x" + "1" * 39, "1" * 40, "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"]),
        ("bytes", [None, 1, "", "0", "0x0", "0xzz", "text", "0x00\n", "0x 0", []]),
        ("bytes2", ["0x", "0x00", "0x000000", "0x0000\n", "0000", 0, None]),
        ("string", [None, 1, True, [], {}, "a\0b", "\ud800", b"x"]),
    ],
)
def test_a_value_of_another_type_is_refused(word: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(Misfit):
            WORDS[word](value)


def test_only_canonical_type_words_exist() -> None:
    assert len(WORDS) == 32 + 32 + 32 + 4
    assert {"uint", "int", "byte", "bytes0", "bytes33", "uint0", "uint7", "uint264", "function"}.isdisjoint(WORDS)


@given(st.lists(texts | st.sampled_from(["a", "a" * 64, "a" * 65, "é" * 64])))
def test_a_repeated_text_has_the_same_hash(listed: list[str]) -> None:
    for text in listed + listed:
        assert WORDS["string"](text) == keccak(text.encode())


@each_row("word", ["string", "address", "uint256"])
def test_long_texts_are_not_cached(word: str) -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            with contextlib.suppress(Misfit):
                WORDS[word](f"{number:0100000}")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000
