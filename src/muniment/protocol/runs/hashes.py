"""The hash of a run, and the hash of the evidence for it. Pure.

The hash of a run is made of what every honest relayer finds, so that they agree on it. The evidence is made of what a
relayer read; it may differ where nodes differ in what does not decide the result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

import msgspec

from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.reasons import RESULT_BYTES, RunResult
from muniment.protocol.runs.types import NewRun, Run, RunBlock, RunContext, RunInput, TriggerType
from muniment.protocol.wire import encode_text

_VERSION: Final = b"muniment/run/v1\n"


def execution_hash(
    signature: Signature,
    trigger_type: TriggerType,
    payload: bytes,
    result: RunResult,
    intent_hashes: Sequence[bytes] = (),
) -> bytes:
    r"""The hash of a run, 32 bytes.

    `keccak256("muniment/run/v1\n" ‖ signature of the trigger, 65 bytes ‖ its type, 1 byte ‖ keccak256(payload) ‖
    result, 1 byte ‖ hashes of the intents in their order)`.
    """
    return keccak256(
        b"".join(
            (
                _VERSION,
                signature.raw,
                bytes((trigger_type,)),
                keccak256(payload),
                bytes((RESULT_BYTES[result],)),
                *intent_hashes,
            )
        )
    )


def hash_of(run: NewRun | Run) -> bytes:
    """The hash of a run with these members, 32 bytes, whatever its member `hash` says."""
    outputs = [each.hash.raw for each in run.outputs]
    return execution_hash(run.trigger_sig, run.trigger_type, run.trigger_data.raw, run.result, outputs)


def evidence(context: RunContext, inputs: Sequence[RunInput], blocks: Sequence[RunBlock]) -> bytes:
    """The SHA-256 of what a run was given, 32 bytes: of the canonical JSON of `{context, inputs, blocks}`."""
    return hashlib.sha256(canonical_json({"context": context, "inputs": inputs, "blocks": blocks})).digest()


def canonical_json(value: object) -> bytes:
    """`value` in the JSON Canonicalization Scheme (RFC 8785).

    For records, texts, booleans, integers up to 2^53 and objects with ASCII names alone. There Python sorts names as
    section 3.2.3 does, by UTF-16 units, and escapes texts as section 3.2.2.2 does.
    """
    plain = msgspec.to_builtins(value, enc_hook=encode_text)
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
