"""Logs of settlement contracts, well-formed and malformed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from muniment.operate.watch.events import (
    INTENT_EXECUTED,
    OPERATION_EXECUTED,
    PROPOSAL_EXECUTED,
    PROPOSAL_EXECUTED_ALONE,
    TOPICS,
    SettlerEvent,
    event_in,
)
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import Bytes32
from settler import INTENT, encode_values, intent_values, operation_executed_data

VECTORS = Path(__file__).parents[2] / "vectors/evm"
LEGACY, OPERATIONS = json.loads((VECTORS / "settler_logs.json").read_text())["executions"]
INTENT_LOG, _, PROPOSAL_LOG = LEGACY["logs"]
OPERATION_LOG, _, PROPOSAL_ALONE_LOG = OPERATIONS["logs"]


def test_the_topics_are_those_of_the_published_interface() -> None:
    assert TOPICS == (
        "0xee2c98c99b683f71058b8744fea294a411482f07d55c98b392917e9286f22f13",
        "0x120985525cfb78f6c03f96986f9687f49caf81e29350d21fa052e8c0df211ebb",
        "0xb09e51e3f4dd06d21b6df6ec765fb1155b36c6c9b700e07e6a7b1a944c06d8d3",
        "0x7b1bcf1ccf901a11589afff5504d59fd0a53780eed2a952adade0348985139e0",
    )
    assert TOPICS == (INTENT_EXECUTED, PROPOSAL_EXECUTED, OPERATION_EXECUTED, PROPOSAL_EXECUTED_ALONE)


@each_row(
    ("execution", "kinds"),
    [
        pytest.param(LEGACY, ["intent", "intent", "proposal"], id="legacy"),
        pytest.param(OPERATIONS, ["operation", "operation", "proposal"], id="operations"),
    ],
)
def test_every_log_of_a_real_execution_is_its_event(execution: dict[str, Any], kinds: list[Any]) -> None:
    events = [event_in(log) for log in execution["logs"]]

    assert events == [
        SettlerEvent(
            kind=kind,
            subject=Bytes32(execution["proposalHash" if kind == "proposal" else "intentHash"]).raw,
            settler=Address(execution["settler"]),
            block_number=int(execution["blockNumber"], 16),
            block_hash=Bytes32(log["blockHash"]).raw,
            transaction_hash=Bytes32(execution["transactionHash"]).raw,
            log_index=index,
        )
        for kind, log, index in zip(kinds, execution["logs"], [1, 2, 4], strict=True)
    ]


def test_a_log_is_read_in_any_letter_case_and_without_optional_members() -> None:
    log = {name: value for name, value in PROPOSAL_LOG.items() if name not in {"removed", "blockTimestamp"}}
    upper = {name: "0x" + log[name][2:].upper() for name in ("address", "blockHash", "transactionHash")}

    assert event_in({**log, **upper}) == event_in(PROPOSAL_LOG) is not None


def without(log: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in log.items() if key != name}


NEEDED = ("address", "topics", "data", "blockNumber", "blockHash", "transactionHash", "logIndex")
HOSTILE: list[Any] = [
    *[pytest.param(without(PROPOSAL_LOG, name), id=f"no {name}") for name in NEEDED],
    *[pytest.param({**PROPOSAL_LOG, name: None}, id=f"null {name}") for name in NEEDED],
    *[pytest.param({**PROPOSAL_LOG, name: 7}, id=f"number for {name}") for name in NEEDED],
    *[pytest.param({**PROPOSAL_LOG, "blockNumber": text}, id=f"block {text[:20]}") for text in (
        "", "0x", "12", "-0x1", "0x1_0", "0x٣", "0xg", "0x20000000000000", "0x" + "f" * 64, "0x" + "1" * 1_000,
    )],
    pytest.param({**PROPOSAL_LOG, "logIndex": "0x20000000000000"}, id="log index of 2^53"),
    pytest.param({**PROPOSAL_LOG, "removed": True}, id="removed"),
    pytest.param({**PROPOSAL_LOG, "removed": "false"}, id="removed is text"),
    pytest.param({**PROPOSAL_LOG, "address": "0x12"}, id="short address"),
    pytest.param({**PROPOSAL_LOG, "blockHash": "0x" + "0" * 62}, id="31 bytes of block hash"),
    pytest.param({**PROPOSAL_LOG, "data": "0x0"}, id="half a byte of data"),
    pytest.param({**PROPOSAL_LOG, "topics": []}, id="no topics"),
    pytest.param({**PROPOSAL_LOG, "topics": PROPOSAL_LOG["topics"][:1]}, id="proposal of 1 topic"),
    pytest.param({**PROPOSAL_LOG, "topics": [*PROPOSAL_LOG["topics"], "0x" + "00" * 32]}, id="proposal of 3 topics"),
    pytest.param({**PROPOSAL_LOG, "topics": [PROPOSAL_EXECUTED, None]}, id="null topic"),
    pytest.param({**PROPOSAL_LOG, "topics": ["0x" + "12" * 32, "0x" + "34" * 32]}, id="another event"),
    pytest.param({**INTENT_LOG, "topics": INTENT_LOG["topics"][:3]}, id="intent with three topics"),
    pytest.param({**INTENT_LOG, "topics": INTENT_LOG["topics"] * 2}, id="eight topics"),
    pytest.param({**INTENT_LOG, "data": "0x"}, id="intent without data"),
    pytest.param({**INTENT_LOG, "data": "0x" + "ff" * 2_000}, id="offsets out of the data"),
    pytest.param({**INTENT_LOG, "data": INTENT_LOG["data"][:2_000]}, id="intent cut short"),
    pytest.param({**INTENT_LOG, "address": "0x" + "12" * 20}, id="intent for another settler"),
    pytest.param({**OPERATION_LOG, "data": OPERATION_LOG["data"][: 2 + 64 * 6 - 2]}, id="operation cut short"),
    pytest.param({**OPERATION_LOG, "topics": OPERATION_LOG["topics"][:1]}, id="operation with one topic"),
    *[pytest.param(log, id=repr(log)) for log in (None, True, 1, "0x", [], {}, [PROPOSAL_LOG])],
]  # fmt: skip


@each_row("log", HOSTILE)
def test_a_malformed_or_irrelevant_log_gives_no_fact(log: Any) -> None:
    assert event_in(log) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=70) | st.sampled_from(TOPICS),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(NEEDED), inner, max_size=7),
    max_leaves=10,
)


@pytest.mark.long
@given(
    st.sampled_from([INTENT_LOG, OPERATION_LOG, PROPOSAL_ALONE_LOG]), st.dictionaries(st.sampled_from(NEEDED), VALUES)
)
def test_nothing_in_a_log_raises(log: dict[str, Any], changes: dict[str, Any]) -> None:
    assert isinstance(event_in({**log, **changes}), SettlerEvent | None)


@given(st.lists(st.tuples(st.integers(0, 1_800), st.integers(0, 255)), min_size=1, max_size=5))
def test_no_damage_to_the_data_of_an_intent_raises(damage: list[tuple[int, int]]) -> None:
    data = bytearray.fromhex(INTENT_LOG["data"][2:])
    for at, value in damage:
        data[at] = value

    assert isinstance(event_in({**INTENT_LOG, "data": "0x" + data.hex()}), SettlerEvent | None)


def test_an_intent_of_many_fees_and_events_is_read() -> None:
    # Ten times what a request may hold, and what a block's gas pays for.
    many = 2_560
    intent = {
        **LEGACY["intent"],
        "maxFees": [{"token": "0x" + "01" * 20, "amount": n} for n in range(many)],
        "events": [{"topic": "0x" + "02" * 32, "data": bytes(n % 40)} for n in range(many)],
    }
    data = encode_values([INTENT, "uint256"], [intent_values(intent), 0])

    assert event_in({**INTENT_LOG, "data": "0x" + data.hex()}) is not None


def test_offsets_that_repeat_the_same_text_give_no_fact() -> None:
    # The validations of an intent are the eleventh member; each offset leads to the same 64 KB.
    count, text = 1_000, bytes(65_536)
    intent = {**LEGACY["intent"], "validations": []}
    data = bytearray(encode_values([INTENT, "uint256"], [intent_values(intent), 0]))
    head = 64
    data[head + 10 * 32 : head + 11 * 32] = (len(data) - head).to_bytes(32)
    data += count.to_bytes(32) + (32 * count).to_bytes(32) * count + len(text).to_bytes(32) + text

    assert event_in({**INTENT_LOG, "data": "0x" + data.hex()}) is None
    # One such offset is an honest list of one.
    assert event_in({**INTENT_LOG, "data": "0x" + data.hex().replace(count.to_bytes(32).hex(), (1).to_bytes(32).hex())})


def test_the_hash_of_an_operation_is_read_where_the_event_has_it() -> None:
    chosen = keccak256(b"chosen")
    data = operation_executed_data(chosen, (2, LEGACY["solver"], bytes(99), [(bytes(32), b"x")]), (5, [b"a", b""], [1]))

    event = event_in({**OPERATION_LOG, "data": "0x" + data.hex()})

    assert event is not None
    assert (event.kind, event.subject) == ("operation", chosen)
