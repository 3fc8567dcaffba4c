"""The decoders of the transparency log, for `decoders.DECODERS`."""

from __future__ import annotations

from collections.abc import Callable

from decoder import FIELD, KIB, PLAIN, Decoder
from muniment.tlog.checkpoints import parse_checkpoint
from muniment.tlog.entries import parse_entry
from muniment.tlog.fields import time_ms_of
from muniment.tlog.keys import COSIGNATURE, VerifierKey, parse_verifier_key
from muniment.tlog.notes import parse_note
from muniment.tlog.policy import parse_policy
from muniment.tlog.proofs import parse_proof
from muniment.tlog.tiles import parse_path, split_entries
from muniment.tlog.witnessing.messages import parse_cosignature, parse_size

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
            "tlog.parse_note itself", "tlog.parse_note split", "tlog._parse_line itself", "tlog._FORBIDDEN compile",
            "tlog.bytes_of b64decode", "tlog._NOT_IN_NAMES compile",
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
            "tlog.parse_checkpoint itself", "tlog.parse_checkpoint split", "tlog._CONTROL compile",
            "tlog._DECIMAL compile",
        ),
        frames=((b"", b"\n"), (_CHECKPOINT, b"\n"), (b"a\n", _CHECKPOINT), (b"a\n1\n", b"\n")),
    ),
    Decoder(
        "a proof that an entry is in the log",
        parse_proof,
        ("tlog.parse_proof itself", "tlog.parse_proof split"),
        frames=(
            (_PROOF, b"\n\n" + _CHECKPOINT + _SIGNED), (_PROOF + b"extra ", b"\n\n"),
            (_PROOF + b"index 1\n", b"\n\n"),
        ),
    ),
    Decoder(
        "an entry of the log",
        parse_entry,
        ("tlog.parse_entry itself", "tlog.parse_entry split", "tlog._TIME compile", "tlog.time_ms_of fromisoformat"),
        size=64 * KIB - 1,
        frames=(
            *PLAIN, (b"muniment/taken-over/v1\n", b"\n"), (b"muniment/close/v1\n", b"\n"),
            (b"muniment/deactivation/v1\n" + _SIG + _ADDRESS + b"2026-11-20T19:48:00.123Z\na\n", b"\n"),
        ),
    ),
    Decoder("a bundle of entries", split_entries),
    Decoder("the size that a witness has", parse_size, ("tlog.parse_size itself",), size=64 * KIB),
    Decoder(
        "the cosignature of a witness",
        lambda data: parse_cosignature(data, _CHECKPOINT.decode(), _WITNESS, 0),
        ("tlog.parse_cosignature itself",),
        size=64 * KIB,
        frames=((b"", b""), (b"", _SIGNED[1:]), (_SIGNED[1:], b""), (b"\xe2\x80\x94 a ", b"\n"), (b"", b"\n\n")),
    ),
    Decoder(
        "the path of a tile",
        _text(parse_path),
        ("tlog.parse_path itself", "tlog._PATH compile"),
        size=FIELD,
        frames=(*PLAIN, (b"0/x", b""), (b"0/x001/", b"/001")),
    ),
    Decoder("a time", _text(lambda text: time_ms_of(text, "it")), size=FIELD, frames=(*PLAIN, (b"2026-11-20T", b"Z"))),
    Decoder(
        "a verifier key",
        _text(parse_verifier_key),
        ("tlog.parse_verifier_key itself",),
        size=FIELD,
        frames=(*PLAIN, (b"a+00000000+", b"")),
    ),
    Decoder(
        "a file of trusted witnesses",
        parse_policy,
        ("tlog.parse_policy itself", "tlog.parse_policy split", "tlog._Reading.read split"),
        frames=(*PLAIN, (b"group a 1 ", b""), (b"quorum ", b""), (b"witness ", b""), (b"log ", b"")),
        is_on_loop=False,  # commands and the start of the service read it
    ),
)  # fmt: skip
