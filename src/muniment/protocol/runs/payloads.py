"""The payloads of triggers: what made a run due, in the Solidity contract ABI, and back. Pure.

| type of trigger | payload |
|---|---|
| 0 cron | `(uint256)`: the tick, in milliseconds since 1970 |
| 1 event | `(uint256 chainId, bytes32 blockHash, uint256 index, address contract, bytes32[] topics, bytes data)` |
| 2 once | `(uint256)`: the start date where it is not 0, else the time of registration, in milliseconds since 1970 |

Values are encoded like arguments of a call, without an offset before them. Source: Solidity, "Contract ABI
Specification". The payload of type 2 is a definition of this project.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from muniment.protocol.evm.abi import ADDRESS, BYTES, BYTES32, UINT256, ListOf, decode
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.triggers.typed_data import EVENT
from muniment.protocol.wire import TIMESTAMP_MS_MAX

# The topics of a log (Yellow Paper, section 4.4.1).
_TOPICS_MAX: Final = 4
_WORD: Final = 32
_EVENT_HEAD_WORDS: Final = 6
_EVENT_TYPES: Final = (UINT256, BYTES32, UINT256, ADDRESS, ListOf(BYTES32), BYTES)


class EventPayload(Struct, frozen=True):
    """A log that made a run due; `index` is its position among the logs of its block."""

    chain_id: int
    block_hash: Bytes32
    index: int
    contract: Address
    topics: tuple[Bytes32, ...]
    data: HexString


def time_payload(time_ms: int) -> bytes:
    """The payload of a cron or once trigger for a time in milliseconds since 1970, 32 bytes."""
    return _number(time_ms)


def event_payload(event: EventPayload) -> bytes:
    """The payload of an event trigger."""
    topics = _number(len(event.topics)) + b"".join(topic.raw for topic in event.topics)
    data = event.data.raw
    return b"".join(
        (
            _number(event.chain_id),
            event.block_hash.raw,
            _number(event.index),
            bytes(12) + event.contract.raw,
            _number(_WORD * _EVENT_HEAD_WORDS),
            _number(_WORD * _EVENT_HEAD_WORDS + len(topics)),
            topics,
            _number(len(data)),
            data,
            bytes(-len(data) % _WORD),
        )
    )


def read_payload(trigger_type: int, payload: bytes) -> int | EventPayload:
    """The time in milliseconds since 1970 of a cron or once trigger, or the log of an event trigger.

    Raises only `ValueError`: for bytes that `time_payload` and `event_payload` would not write, so that nothing due has
    two payloads.
    """
    return _read_event(payload) if trigger_type == EVENT else _read_time(payload)


def _read_time(payload: bytes) -> int:
    if len(payload) != _WORD:
        raise ValueError("the payload of this type of trigger is one uint256, 32 bytes")
    time_ms = int.from_bytes(payload)
    if time_ms > TIMESTAMP_MS_MAX:
        raise ValueError(f"the payload is a time in milliseconds since 1970, at most {TIMESTAMP_MS_MAX}")
    return time_ms


def _read_event(payload: bytes) -> EventPayload:
    chain_id, block_hash, index, contract, topics, data = decode(_EVENT_TYPES, payload)
    if len(topics) > _TOPICS_MAX:
        raise ValueError(f"a log has at most {_TOPICS_MAX} topics")
    event = EventPayload(
        chain_id,
        Bytes32.from_raw(block_hash),
        index,
        contract,
        tuple(Bytes32.from_raw(topic) for topic in topics),
        HexString.from_raw(data),
    )
    if event_payload(event) != payload:
        raise ValueError("the payload has other bytes than an encoder writes: offsets, padding or a rest")
    return event


def _number(value: int) -> bytes:
    return value.to_bytes(_WORD)
