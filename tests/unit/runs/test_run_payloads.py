"""The payloads of triggers, compared with another implementation of the contract ABI."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given, strategies as st

from each_row import each_row
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.runs.payloads import EventPayload, event_payload, read_payload, time_payload
from muniment.protocol.wire import TIMESTAMP_MS_MAX

EVENT = ("uint256", "bytes32", "uint256", "address", "bytes32[]", "bytes")
words = st.binary(min_size=32, max_size=32)
numbers = st.integers(0, 2**256 - 1)
events = st.tuples(
    numbers, words, numbers, st.binary(min_size=20, max_size=20), st.lists(words, max_size=4), st.binary(max_size=100)
)


def event_of(values: tuple[Any, ...]) -> EventPayload:
    chain_id, block_hash, index, contract, topics, data = values
    return EventPayload(
        chain_id, Bytes32.from_raw(block_hash), index, Address.from_raw(contract),
        tuple(Bytes32.from_raw(topic) for topic in topics), HexString.from_raw(data),
    )  # fmt: skip


@given(events)
def test_an_event_is_written_as_others_write_it_and_read_back(values: tuple[Any, ...]) -> None:
    payload = event_payload(event_of(values))
    assert payload == encode(EVENT, (*values[:3], "0x" + values[3].hex(), *values[4:]))
    assert read_payload(1, payload) == event_of(values)


@given(st.integers(0, TIMESTAMP_MS_MAX), st.sampled_from([0, 2]))
def test_a_time_is_written_as_others_write_it_and_read_back(time_ms: int, trigger_type: int) -> None:
    payload = time_payload(time_ms)
    assert payload == encode(("uint256",), (time_ms,))
    assert read_payload(trigger_type, payload) == time_ms


@each_row("size", [0, 31, 33, 64])
def test_a_time_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        read_payload(0, bytes(size))


def test_a_time_that_no_clock_shows_is_refused() -> None:
    with pytest.raises(ValueError, match="milliseconds"):
        read_payload(0, time_payload(TIMESTAMP_MS_MAX + 1))


ONE = event_payload(event_of((8453, bytes(32), 1, bytes(20), [bytes(32)], b"\x01")))


@each_row(
    "payload",
    [
        ONE + bytes(32),  # a rest
        ONE[:-1] + b"\x01",  # padding that is not zero
        ONE[:-32],  # data that are not there
        encode(("(uint256,bytes32,uint256,address,bytes32[],bytes)",), ((1, bytes(32), 1, bytes(20), [], b""),)),
        encode(EVENT, (1, bytes(32), 1, "0x" + "00" * 20, [bytes(32)] * 5, b"")),  # five topics
        ONE[:96] + b"\xff" + ONE[97:],  # more than an address
        b"",
    ],
    ids=["rest", "padding", "short", "offset before", "topics", "address", "empty"],
)
def test_an_event_has_one_payload(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_payload(1, payload)
