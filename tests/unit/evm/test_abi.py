from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from muniment.protocol.evm.abi import (
    ADDRESS,
    BYTES,
    BYTES32,
    UINT8,
    UINT256,
    ListOf,
    TupleOf,
    Type,
    Uint,
    decode,
    encode,
)
from muniment.protocol.evm.address import Address
from settler import encode_values


def word(number: int) -> bytes:
    return number.to_bytes(32)


_LEAVES: st.SearchStrategy[Type] = st.sampled_from([UINT8, Uint(64), UINT256, BYTES32, ADDRESS, BYTES])
TYPES: st.SearchStrategy[Type] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        inner.map(ListOf), st.lists(inner, min_size=1, max_size=4).map(lambda members: TupleOf(tuple(members)))
    ),
    max_leaves=8,
)


def name_of(kind: Type) -> str:
    """As Solidity writes the type, for the encoder of the tests."""
    match kind:
        case Uint(bits):
            return f"uint{bits}"
        case ListOf(item):
            return name_of(item) + "[]"
        case TupleOf(members):
            return f"({','.join(map(name_of, members))})"
        case _:
            return {BYTES32: "bytes32", ADDRESS: "address", BYTES: "bytes"}[kind]


def values_of(kind: Type) -> st.SearchStrategy[Any]:
    match kind:
        case Uint(bits):
            return st.integers(0, 2**bits - 1)
        case ListOf(item):
            return st.lists(values_of(item), max_size=3)
        case TupleOf(members):
            return st.tuples(*map(values_of, members))
        case _:
            sizes = {BYTES32: (32, 32), ADDRESS: (20, 20), BYTES: (0, 70)}[kind]
            raw = st.binary(min_size=sizes[0], max_size=sizes[1])
            return raw.map(Address.from_raw) if kind == ADDRESS else raw


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[list[Type], list[Any]]:
    kinds = draw(st.lists(TYPES, min_size=1, max_size=4))
    return kinds, [draw(values_of(kind)) for kind in kinds]


@given(typed_values())
def test_encoded_values_are_decoded(given_values: tuple[list[Type], list[Any]]) -> None:
    kinds, values = given_values

    data = encode_values([name_of(kind) for kind in kinds], values)
    assert decode(kinds, data) == tuple(values)
    assert encode(kinds, values) == data


@given(st.lists(TYPES, min_size=1, max_size=4), st.binary(max_size=400))
def test_random_bytes_are_decoded_or_a_value_error(kinds: list[Type], data: bytes) -> None:
    with suppress(ValueError):
        decode(kinds, data)


@given(typed_values(), st.data())
def test_damaged_bytes_are_decoded_or_a_value_error(given_values: tuple[list[Type], list[Any]], draws: Any) -> None:
    kinds, values = given_values
    data = bytearray(encode_values([name_of(kind) for kind in kinds], values))
    for _ in range(draws.draw(st.integers(1, 4))):
        if data:
            data[draws.draw(st.integers(0, len(data) - 1))] = draws.draw(st.integers(0, 255))

    with suppress(ValueError):
        decode(kinds, bytes(data[: draws.draw(st.integers(0, len(data)))]))


@given(typed_values())
def test_each_cut_is_a_value_error_unless_only_padding_is_cut(given_values: tuple[list[Type], list[Any]]) -> None:
    kinds, values = given_values
    data = encode_values([name_of(kind) for kind in kinds], values)

    for size in {0, len(data) // 2, len(data) - 32} & set(range(len(data))):
        with pytest.raises(ValueError, match="data"):
            decode(kinds, data[:size])


@each_row(
    ("kinds", "data"),
    [
        pytest.param([UINT256], bytes(31), id="half a word"),
        pytest.param([UINT8], word(256), id="uint8 of 256"),
        pytest.param([Uint(64)], word(2**64), id="uint64 of 2^64"),
        pytest.param([ADDRESS], word(2**160), id="address of 21 bytes"),
        pytest.param([BYTES], word(2**256 - 1), id="offset of 2^256 - 1"),
        pytest.param([BYTES], word(32), id="offset to the end"),
        pytest.param([BYTES], word(32) + word(1), id="length past the end"),
        pytest.param([BYTES], word(32) + word(2**256 - 1) + bytes(32), id="length of 2^256 - 1"),
        pytest.param([ListOf(UINT256)], word(32) + word(2**255) + bytes(64), id="list of 2^255"),
        pytest.param([ListOf(UINT256)], word(32) + word(3) + bytes(64), id="list of three with two"),
        pytest.param([ListOf(BYTES)], word(32) + word(1) + word(2**256 - 32), id="offset that would wrap around"),
    ],
)
def test_a_value_beyond_its_range_or_the_data_is_a_value_error(kinds: list[Type], data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a|within"):
        decode(kinds, data)


@each_row(("kind", "largest"), [(UINT8, 255), (Uint(64), 2**64 - 1), (UINT256, 2**256 - 1)])
def test_the_largest_number_of_a_type_is_read(kind: Type, largest: int) -> None:
    assert decode([kind], word(largest)) == (largest,)


def test_bytes_that_no_value_refers_to_are_ignored() -> None:
    assert decode([BYTES], word(64) + b"\xff" * 32 + word(2) + b"ab") == (b"ab",)


def test_offsets_that_lead_to_the_same_content_again_are_refused() -> None:
    # A thousand offsets to one text of 32 KB would be 32 MB; nested lists of them, without end.
    count = 1_000
    data = word(32) + word(count) + word(32 * count) * count + word(32_000) + bytes(32_000)

    with pytest.raises(ValueError, match="again"):
        decode([ListOf(BYTES)], data)


def test_lists_that_hold_themselves_are_refused() -> None:
    # Each level has 8 items, and each item's offset leads back to the head: 8^5 lists for 320 bytes.
    kind: Type = UINT256
    for _ in range(5):
        kind = ListOf(kind)

    with pytest.raises(ValueError, match=r"again|within"):
        decode([kind], word(32) + word(8) + word(0) * 8)
