"""The hash of a run, by the words of its definition, and canonical JSON, by another implementation."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import rfc8785
import sha3
from hypothesis import given, strategies as st

from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.hashes import canonical_json, evidence, execution_hash
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.runs.reasons import RunResult
from muniment.protocol.runs.types import NewRun, Run, RunBlock, RunContext
from muniment.protocol.triggers.types import SIG
from muniment.protocol.wire import decode_text, encode

SIGNATURE = Signature.parse(SIG)
TICK = time_payload(1_795_204_080_000)
VECTOR = "31bf1cf0905054965bcd936d50b73847fd39e60561356a94d0014e11730750e8"
RESULTS: tuple[RunResult, ...] = ("intents", "nothing", "stopped", "missed", "skipped", "incomplete")


def keccak(data: bytes) -> bytes:
    return sha3.keccak_256(data).digest()


def test_the_hash_is_that_of_its_definition() -> None:
    for number, result in enumerate(RESULTS):
        expected = keccak(
            b"muniment/run/v1\n"
            + bytes.fromhex(SIG[2:])
            + b"\0"
            + keccak(TICK)
            + bytes([number])
            + b"\1" * 32
            + b"\2" * 32
        )
        assert execution_hash(SIGNATURE, 0, TICK, result, [b"\1" * 32, b"\2" * 32]) == expected


def test_the_hash_does_not_change_between_releases() -> None:
    assert execution_hash(SIGNATURE, 2, TICK, "nothing").hex() == VECTOR


def test_each_part_changes_the_hash() -> None:
    first, second = b"\1" * 32, b"\2" * 32
    other = Signature.parse("0x" + "2" * 128 + "1b")
    hashes = {
        execution_hash(SIGNATURE, 0, TICK, "intents", [first, second]),
        execution_hash(SIGNATURE, 0, TICK, "intents", [second, first]),
        execution_hash(SIGNATURE, 0, TICK, "intents", [first]),
        execution_hash(SIGNATURE, 0, TICK, "nothing"),
        execution_hash(SIGNATURE, 0, TICK, "stopped"),
        execution_hash(SIGNATURE, 2, TICK, "nothing"),
        execution_hash(other, 0, TICK, "nothing"),
        execution_hash(SIGNATURE, 0, time_payload(1), "nothing"),
    }
    assert len(hashes) == 8


def test_the_evidence_is_that_of_the_answer_as_it_is_read() -> None:
    """Whoever reads a run computes its evidence from the members of the answer, without our types."""
    run = msgspec.convert(Run.example, Run, dec_hook=decode_text)
    shown: dict[str, Any] = msgspec.json.decode(encode(run))
    given = {name: shown[name] for name in ("context", "inputs", "blocks")}
    new = msgspec.convert(NewRun.example, NewRun, dec_hook=decode_text)
    assert evidence(new.context, new.inputs, new.blocks) == hashlib.sha256(rfc8785.dumps(given)).digest()


def test_the_evidence_of_nothing_is_that_of_the_defaults() -> None:
    text = b'{"blocks":[],"context":{"consensusThreshold":1,"settlers":[]},"inputs":[]}'
    assert evidence(RunContext(), [], []) == hashlib.sha256(text).digest()


def test_a_member_that_is_not_given_is_left_out() -> None:
    block = msgspec.convert(RunBlock.example, RunBlock, dec_hook=decode_text)
    assert b"quiet" not in canonical_json(block)
    assert b'"quiet":true' in canonical_json(msgspec.structs.replace(block, quiet=True))


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
names = st.from_regex(r"\A[A-Za-z][A-Za-z0-9]{0,10}\Z")
values = st.recursive(
    st.booleans() | st.integers(0, 2**53 - 1) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(names, inner),
    max_leaves=20,
)


@given(values)
def test_canonical_json_is_that_of_another_implementation(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)
