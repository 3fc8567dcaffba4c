"""Strict verification of a signed trigger against the bare curve operation in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
from btclib_secp256k1 import ffi, lib
from btclib_secp256k1.context import ctx
from btclib_secp256k1.keys import serialize

from muniment.protocol.errors import SignatureMismatch
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.typed_data import digest
from muniment.protocol.triggers.rules import consent, signed_consent
from muniment.protocol.triggers.types import NewTrigger
from muniment.protocol.wire import decode_text
from samples import DOMAIN, INPUTS, forged, signed_triggers, with_types_of_their_own, with_values_of_their_own

TRIGGERS = 2_000
# Their 18,000 addresses are more than are remembered, their texts, tokens and amounts several times as many.
UNLIKE_TRIGGERS = 6_000
ROUNDS = 9
VERIFY, NEW_TYPES, RECOVERY = "verify", "verify, types never seen", "bare recovery"
NEW_VALUES = "verify, values never seen"


def measure() -> dict[str, list[float]]:
    """Microseconds for one verification, and for one bare recovery, by round; they take turns.

    In `NEW_TYPES` no two triggers have the same types, and there are more of them than encoders are kept. In
    `NEW_VALUES` all but the function differs, and there is more of it than is remembered from round to round.
    """
    given, unlike = _decoded(signed_triggers(range(TRIGGERS))), _decoded(with_types_of_their_own(TRIGGERS))
    unlike_values = _decoded(with_values_of_their_own(UNLIKE_TRIGGERS))
    recover, inputs = bare_recovery(given)
    _check(given, recover, inputs)
    micros: dict[str, list[float]] = {VERIFY: [], NEW_TYPES: [], NEW_VALUES: [], RECOVERY: []}
    for _ in range(ROUNDS):
        micros[RECOVERY].append(_microseconds(recover, inputs))
        micros[VERIFY].append(_microseconds(lambda new: signed_consent(new, INPUTS, DOMAIN), given))
        micros[NEW_TYPES].append(_microseconds(lambda new: signed_consent(new, INPUTS, DOMAIN), unlike))
        micros[NEW_VALUES].append(_microseconds(lambda new: signed_consent(new, INPUTS, DOMAIN), unlike_values))
    return micros


def _decoded(bodies: list[bytes]) -> list[NewTrigger]:
    return [msgspec.json.decode(body, type=NewTrigger, dec_hook=decode_text) for body in bodies]


def bare_recovery(given: list[NewTrigger]) -> tuple[Callable[[Any], None], list[tuple[bytes, int, bytes]]]:
    """libsecp256k1's recovery with nothing around it: parse r, s and v, recover the point. Its inputs are ready."""
    signature, point = ffi.new("secp256k1_ecdsa_recoverable_signature *"), ffi.new("secp256k1_pubkey *")

    def recover(item: tuple[bytes, int, bytes]) -> None:
        compact, recovery_id, hashed = item
        lib.secp256k1_ecdsa_recoverable_signature_parse_compact(ctx, signature, compact, recovery_id)
        lib.secp256k1_ecdsa_recover(ctx, point, signature, hashed)

    def recovered(item: tuple[bytes, int, bytes]) -> bytes:
        recover(item)
        return keccak256(serialize(point, compressed=False)[1:])[12:]

    inputs = [
        (
            new.sig.raw[:64],
            new.sig.raw[64] - 27,
            consent(new.typed_data.types, new.typed_data.values, INPUTS, DOMAIN).digest,
        )
        for new in given
    ]
    for new, item in zip(given, inputs, strict=True):
        assert recovered(item) == new.signer.raw
    return recover, inputs


def _check(given: list[NewTrigger], recover: Callable[[Any], Any], inputs: list[Any]) -> None:
    """Both do their work, and a forged signature is refused."""
    for new, (_, _, hashed) in zip(given, inputs, strict=True):
        found = signed_consent(new, INPUTS, DOMAIN)
        assert found.digest == hashed == digest(DOMAIN, found.struct_hash)
    recover(inputs[0])
    wrong = msgspec.json.decode(forged(), type=NewTrigger, dec_hook=decode_text)
    try:
        signed_consent(wrong, INPUTS, DOMAIN)
    except SignatureMismatch:
        return
    raise AssertionError("a forged signature was accepted")


def _microseconds(work: Callable[[Any], object], items: list[Any]) -> float:
    started = time.process_time_ns()
    for item in items:
        work(item)
    return (time.process_time_ns() - started) / 1_000 / len(items)
