"""The decoders of the transparency log, for `decoders.DECODERS`."""

from __future__ import annotations

from collections.abc import Callable

from decoder import FIELD, KIB, PLAIN, Decoder
from muniment.protocol.log.checkpoints import parse_checkpoint, parse_proof
from muniment.protocol.log.entries import parse_entry
from muniment.protocol.log.fields import time_ms_of
from muniment.protocol.log.notes import COSIGNATURE, VerifierKey, parse_note, parse_verifier_key
from muniment.protocol.log.policy import parse_policy
from muniment.protocol.log.tiles import parse_path, split_entries
from muniment.service.resources.log.witnesses import parse_cosignature, parse_size

_CHECKPOINT = b"a\n1\n" + b"A" * 43 + b"=\n"
_SIGNED = b"\n\xe2\x80\x94 a AAAAAAA=\n"
_PROOF = b"c2sp.org/tlog-proof@v1\n"
_WITNESS = VerifierKey("a", COSIGNATURE, bytes(32))
_SIG, _ADDRESS = b"0x" + b"1" * 128 + b"1b\n", b"0x" + b"1" * 40 + b"\n"


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


TLOG_DECODERS = (
    Decoder(
        "a signed note",
        parse_note,
        (
            "log.parse_note itself", "log.parse_note split", "log._parse_line itself", "log._FORBIDDEN compile",
            "log.bytes_of b64decode", "log._NOT_IN_NAMES compile",
        ),
        frames=(
            (b"", _SIGNED), (_CHECKPOINT, _SIGNED), (_CHECKPOINT + b"\n\xe2\x80\x94 ", b"\n"),
            (_CHECKPOINT + b"\n\xe2\x80\x94 a ", b"\n"), (_CHECKPOINT + b"\n\xe2\x80\x94 ", b" AAAAAAA=\n"),
        ),
    ),
    Decoder(
        "a checkpoint",
        _text(parse_checkpoint),
        (
            "log.parse_checkpoint itself", "log.parse_checkpoint split", "log._CONTROL compile",
            "log._DECIMAL compile",
        ),
        frames=((b"", b"\n"), (_CHECKPOINT, b"\n"), (b"a\n", _CHECKPOINT), (b"a\n1\n", b"\n")),
    ),
    Decoder(
        "a proof that an entry is in the log",
        parse_proof,
        ("log.parse_proof itself", "log.parse_proof split"),
        frames=(
            (_PROOF, b"\n\n" + _CHECKPOINT + _SIGNED), (_PROOF + b"extra ", b"\n\n"),
            (_PROOF + b"index 1\n", b"\n\n"),
        ),
    ),
    Decoder(
        "an entry of the log",
        parse_entry,
        ("log.parse_entry itself", "log.parse_entry split", "log._TIME compile", "log.time_ms_of fromisoformat"),
        size=64 * KIB - 1,
        frames=(
            *PLAIN, (b"muniment/taken-over/v1\n", b"\n"), (b"muniment/close/v1\n", b"\n"),
            (b"muniment/deactivation/v1\n" + _SIG + _ADDRESS + b"2026-11-20T19:48:00.123Z\na\n", b"\n"),
        ),
    ),
    Decoder("a bundle of entries", split_entries),
    Decoder("the size that a witness has", parse_size, ("log.parse_size itself",), size=64 * KIB),
    Decoder(
        "the cosignature of a witness",
        lambda data: parse_cosignature(data, _CHECKPOINT.decode(), _WITNESS, 0),
        ("log.parse_cosignature itself",),
        size=64 * KIB,
        frames=((b"", b""), (b"", _SIGNED[1:]), (_SIGNED[1:], b""), (b"\xe2\x80\x94 a ", b"\n"), (b"", b"\n\n")),
    ),
    Decoder(
        "the path of a tile",
        _text(parse_path),
        ("log.parse_path itself", "log._PATH compile"),
        size=FIELD,
        frames=(*PLAIN, (b"0/x", b""), (b"0/x001/", b"/001")),
    ),
    Decoder("a time", _text(lambda text: time_ms_of(text, "it")), size=FIELD, frames=(*PLAIN, (b"2026-11-20T", b"Z"))),
    Decoder(
        "a verifier key",
        _text(parse_verifier_key),
        ("log.parse_verifier_key itself",),
        size=FIELD,
        frames=(*PLAIN, (b"a+00000000+", b"")),
    ),
    Decoder(
        "a file of trusted witnesses",
        parse_policy,
        ("log.parse_policy itself", "log.parse_policy split", "log._Reading.read split"),
        frames=(*PLAIN, (b"group a 1 ", b""), (b"quorum ", b""), (b"witness ", b""), (b"log ", b"")),
        is_on_loop=False,  # commands and the start of the service read it
    ),
)  # fmt: skip
