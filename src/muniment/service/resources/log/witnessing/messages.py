"""Requests to a witness and its responses, as bytes (c2sp.org/tlog-witness 1.0.0)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from muniment.protocol.log.fields import base64_of, number_of
from muniment.protocol.log.keys import VerifierKey
from muniment.protocol.log.notes import Note, NoteSignature, parse_note

ADD_CHECKPOINT: Final = "/add-checkpoint"
# A line with an Ed25519 cosignature has some 130 bytes, one with ML-DSA-44 some 3,300.
ANSWER_BYTES_MAX: Final = 64 * 1024
# A decimal number below 2^63 and its newline.
_SIZE_BYTES_MAX: Final = 20
# The largest difference between the clock of a witness and ours.
_APART_S_MAX: Final = 900


def request_body(old: int, proof: Sequence[bytes], note: Note) -> bytes:
    """The body of a request to cosign `note`, with the proof from the tree of `old` leaves."""
    lines = [f"old {old}", *map(base64_of, proof), "", ""]
    return "\n".join(lines).encode() + note.data


def checkpoint_path(origin: str) -> str:
    """The path of the last checkpoint that a witness has of the log `origin`."""
    return f"/{hashlib.sha256(origin.encode()).hexdigest()}/checkpoint"


def parse_size(content: bytes) -> int:
    """The size of the tree that a witness has, from an answer of status 409. Raises `ValueError`."""
    digits, newline, rest = content[: _SIZE_BYTES_MAX + 1].partition(b"\n")
    if not newline or rest:
        raise ValueError("the size in the answer of a witness is a decimal number and a newline")
    return number_of(digits.decode("ascii", "replace"), "the size in the answer of a witness")


def parse_cosignature(content: bytes, text: str, key: VerifierKey, now_s: int) -> NoteSignature:
    """The signature by `key` over the text of a checkpoint, from an answer of status 200.

    Ignores lines by other keys, and all but the first by `key`. Raises `ValueError` for a signature that is missing,
    does not verify, or whose time differs from `now_s` (seconds since 1970) by more than 15 minutes.
    """
    note = parse_note(text.encode() + b"\n" + content)
    if note.text != text:
        raise ValueError("the answer has an empty line")
    for each in note.signatures:
        if (each.name, each.key_id) == (key.name, key.key_id):
            break
    else:
        raise ValueError("the answer has no signature by the key of the witness")
    at_s = key.signed_at(text, each.signature)
    if at_s is None:
        raise ValueError("the signature of the witness does not verify")
    if abs(at_s - now_s) > _APART_S_MAX:
        raise ValueError(f"the time of the signature is {abs(at_s - now_s)} s away from ours")
    return each
