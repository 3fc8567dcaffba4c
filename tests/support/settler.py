"""Calls to the settlement contracts of tests/vectors/contracts, and a contract that emits any four topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.wire import Record, decode_text

FEES = "(address,uint256)[]"
EVENTS = "(bytes32,bytes)[]"
INTENT = f"(uint8,address,address,bytes32,uint256,bytes,{FEES},{EVENTS},bytes,uint256,bytes[])"
PROPOSAL = "(uint256,bytes,uint256[])"
OPERATIONS_INTENT = f"(address,address,bytes32,uint256,{FEES},bytes,uint256,bytes[],(uint8,address,bytes,{EVENTS})[])"
OPERATIONS_PROPOSAL = "(uint256,bytes[],uint256[])"

Json = Mapping[str, Any]
Shape = TypeVar("Shape", bound=Record)


def read(kind: type[Shape], value: Json) -> Shape:
    """JSON as the service decodes it from a body."""
    return msgspec.convert(value, kind, dec_hook=decode_text)


def members(types: str) -> list[str]:
    """The types of `(a,(b,c)[],d)`, each with its brackets."""
    found, depth, current = [], 0, ""
    for character in types[1:-1]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append(current)
            current = ""
        else:
            current += character
    return [*found, current] if current else found


def is_dynamic(kind: str) -> bool:
    return kind == "bytes" or kind.endswith("[]") or (kind.startswith("(") and any(map(is_dynamic, members(kind))))


def encode_value(kind: str, value: Any) -> bytes:
    """`value` by the Solidity ABI: numbers as int or decimal text, bytes and addresses as `bytes` or 0x text."""
    if kind.endswith("[]"):
        return len(value).to_bytes(32) + encode_values([kind[:-2]] * len(value), value)
    if kind.startswith("("):
        return encode_values(members(kind), value)
    if kind.startswith("uint"):
        return int(value).to_bytes(32)
    raw = value if isinstance(value, bytes) else bytes.fromhex(value[2:])
    if kind == "bytes":
        return len(raw).to_bytes(32) + raw + bytes(-len(raw) % 32)
    return raw.rjust(32, b"\0") if kind == "address" else raw.ljust(32, b"\0")


def encode_values(kinds: Sequence[str], values: Sequence[Any]) -> bytes:
    """A head of values and offsets, then the dynamic parts."""
    encoded = [encode_value(kind, value) for kind, value in zip(kinds, values, strict=True)]
    at = sum(32 if is_dynamic(kind) else len(each) for kind, each in zip(kinds, encoded, strict=True))
    head, tail = b"", b""
    for kind, each in zip(kinds, encoded, strict=True):
        head += (at + len(tail)).to_bytes(32) if is_dynamic(kind) else each
        tail += each if is_dynamic(kind) else b""
    return head + tail


def _call(name: str, kinds: Sequence[str], values: Sequence[Any]) -> bytes:
    return keccak256(f"{name}({','.join(kinds)})".encode())[:4] + encode_values(kinds, values)


def _pairs(given: Sequence[Json], first: str, second: str) -> list[tuple[Any, Any]]:
    return [(each[first], each[second]) for each in given]


def intent_values(intent: Json) -> tuple[Any, ...]:
    return (
        intent["op"], intent["user"], intent["settler"], intent["nonce"], intent["deadline"], intent["data"],
        _pairs(intent["maxFees"], "token", "amount"), _pairs(intent["events"], "topic", "data"), intent["configSig"],
        intent["minValidations"], intent.get("validations", []),
    )  # fmt: skip


def proposal_values(proposal: Json) -> tuple[Any, ...]:
    return proposal["deadline"], proposal["data"], proposal["fees"]


def encode_get_intent_hash(intent: Json) -> bytes:
    """The data of a call of `getIntentHash`, for an intent in the form of the interface."""
    return _call("getIntentHash", [INTENT], [intent_values(intent)])


def encode_get_proposal_hash(proposal: Json, intent: Json, solver: str) -> bytes:
    """The data of a call of `getProposalHash`."""
    values = proposal_values(proposal), intent_values(intent), solver
    return _call("getProposalHash", [PROPOSAL, INTENT, "address"], values)


def encode_fulfil(intent: Json, proposal: Json, output: bytes = b"") -> bytes:
    """The data of a call of MiniSettlerLegacy's `fulfil`; the sender is the solver of the proposal."""
    return _call("fulfil", [INTENT, PROPOSAL, "bytes"], [intent_values(intent), proposal_values(proposal), output])


def operations_intent_values(intent: Json) -> tuple[Any, ...]:
    operations = [
        (each["opType"], each["user"], each["data"], _pairs(each["events"], "topic", "data"))
        for each in intent["operations"]
    ]
    return (
        intent["feePayer"], intent["settler"], intent["nonce"], intent["deadline"],
        _pairs(intent["maxFees"], "token", "amount"), intent["triggerSig"], intent["minValidations"],
        intent.get("validations", []), operations,
    )  # fmt: skip


def operations_proposal_values(proposal: Json) -> tuple[Any, ...]:
    return proposal["deadline"], proposal["datas"], proposal["fees"]


def encode_get_operations_intent_hash(intent: Json) -> bytes:
    """The data of a call of `getIntentHash`, for an intent that has operations."""
    return _call("getIntentHash", [OPERATIONS_INTENT], [operations_intent_values(intent)])


def encode_get_operations_proposal_hash(proposal: Json, intent: Json, solver: str) -> bytes:
    """The data of a call of `getProposalHash`, for a proposal to an intent that has operations."""
    values = operations_proposal_values(proposal), operations_intent_values(intent), solver
    return _call("getProposalHash", [OPERATIONS_PROPOSAL, OPERATIONS_INTENT, "address"], values)


def encode_fulfil_operations(intent: Json, proposal: Json, outputs: Sequence[bytes]) -> bytes:
    """The data of a call of MiniSettlerOps' `fulfil`, for an intent that has operations; an output for each."""
    return _call(
        "fulfil",
        [OPERATIONS_INTENT, OPERATIONS_PROPOSAL, "bytes[]"],
        [operations_intent_values(intent), operations_proposal_values(proposal), outputs],
    )


def operation_executed_data(intent_hash: bytes, operation: Sequence[Any], proposal: Sequence[Any]) -> bytes:
    """The data of an `OperationExecuted` with this intent hash: the first operation, no output, no data."""
    kinds = [f"(uint8,address,bytes,{EVENTS})", OPERATIONS_PROPOSAL, "bytes32", "uint256", "bytes", "bytes"]
    return encode_values(kinds, [operation, proposal, intent_hash, 0, b"", b""])


# What a LogEmitter runs: LOG4 of what it is called with, four topics of 32 bytes and then the data.
#
#   6080 36 03      PUSH 128, CALLDATASIZE, SUB      length = size of the call - 128
#   80 6080 6000    DUP1, PUSH 128, PUSH 0
#   37              CALLDATACOPY                     memory[0 : length] = call[128 : ]
#   6060 35 6040 35 PUSH 96, CALLDATALOAD, PUSH 64, CALLDATALOAD
#   6020 35 6000 35 PUSH 32, CALLDATALOAD, PUSH 0, CALLDATALOAD      the topics, the fourth first
#   84 6000 a4      DUP5, PUSH 0, LOG4               of memory[0 : length]
#   00              STOP
LOG_EMITTER_CODE = bytes.fromhex("6080 36 03 80 6080 6000 37 6060 35 6040 35 6020 35 6000 35 84 6000 a4 00")
# Creation code: copy those 27 bytes (1b), which begin after these 11 (0b), to memory, and return them.
#
#   601b 80 600b 6000 39    PUSH 27, DUP1, PUSH 11, PUSH 0, CODECOPY
#   6000 f3                 PUSH 0, RETURN
LOG_EMITTER = bytes.fromhex("601b 80 600b 6000 39 6000 f3") + LOG_EMITTER_CODE


def encode_emit(topics: Sequence[Bytes32], data: bytes) -> bytes:
    """The data of a call of a LogEmitter, with exactly four topics."""
    assert len(topics) == 4
    return b"".join(topic.raw for topic in topics) + data
