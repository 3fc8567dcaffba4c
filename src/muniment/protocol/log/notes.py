"""Signed notes: a text, and lines with signatures by named keys (c2sp.org/signed-note 1.0.0).

Verifier keys, and the keys that sign, are of two kinds (also c2sp.org/tlog-cosignature).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from muniment.protocol.log import ed25519
from muniment.protocol.log.fields import SIZE_MAX, base64_of, bytes_of, check_name

# Supported signature types (signed-note, section "Signature types").
ED25519: Final = 0x01
COSIGNATURE: Final = 0x04
_KINDS: Final = frozenset({ED25519, COSIGNATURE})

_ID_BYTES: Final = 4
_TIME_BYTES: Final = 8
# A verifier key is a name, 8 hex digits and 44 characters of base64. Names are like URLs.
_TEXT_LENGTH_MAX: Final = 1000
# The `info` of HKDF for the two keys of a log.
_ABOUT: Final = {ED25519: b"muniment log checkpoint", COSIGNATURE: b"muniment log time"}


class VerifierKey(msgspec.Struct, frozen=True):
    """A public key that verifies signatures of one type under one name."""

    name: str
    kind: int
    public_key: bytes

    @property
    def key_id(self) -> bytes:
        """The four bytes that a signature names with `name` (signed-note, section "Signatures")."""
        message = self.name.encode() + b"\n" + bytes((self.kind,)) + self.public_key
        return hashlib.sha256(message).digest()[:_ID_BYTES]

    @property
    def text(self) -> str:
        """The vkey: `name+key id+type and key`."""
        return f"{self.name}+{self.key_id.hex()}+{base64_of(bytes((self.kind,)) + self.public_key)}"

    def signed_at(self, text: str, signature: bytes) -> int | None:
        """The time of a signature over a note's text, in seconds since 1970; 0 for a type that has no time.

        None if the key did not sign this. Raises `ed25519.LibraryMissing`.
        """
        if self.kind == ED25519:
            return 0 if ed25519.is_signed(self.public_key, text.encode(), signature) else None
        at_s = int.from_bytes(signature[:_TIME_BYTES])
        if len(signature) != _TIME_BYTES + ed25519.SIGNATURE_BYTES or at_s > SIZE_MAX:
            return None
        message = _timed(text, at_s)
        return at_s if ed25519.is_signed(self.public_key, message, signature[_TIME_BYTES:]) else None


class SigningKey(msgspec.Struct, frozen=True):
    """A private key, and the verifier key of its signatures. Its `repr` does not show the private key."""

    verifier: VerifierKey
    private_key: bytes

    def __repr__(self) -> str:
        return f"SigningKey({self.verifier.text!r})"

    def sign(self, text: str, at_s: int) -> bytes:
        """The signature over a note's text. `at_s` is the time, in seconds since 1970, of a timestamped cosignature."""
        if self.verifier.kind == ED25519:
            return ed25519.sign(self.private_key, text.encode())
        return at_s.to_bytes(_TIME_BYTES) + ed25519.sign(self.private_key, _timed(text, at_s))


def parse_verifier_key(text: str) -> VerifierKey:
    """The verifier key of a vkey text. Raises `ValueError`, also for unsupported types."""
    if len(text) > _TEXT_LENGTH_MAX:
        raise ValueError(f"a verifier key has at most {_TEXT_LENGTH_MAX} characters")
    name, _, rest = text.partition("+")
    key_id, plus, encoded = rest.partition("+")
    if not plus:
        raise ValueError("a verifier key is NAME+ID+KEY")
    content = bytes_of(encoded, "the last part of a verifier key")
    if not content or content[0] not in _KINDS:
        raise ValueError("the verifier key is of another type than Ed25519 (1) and timestamped Ed25519 (4)")
    if len(content) != 1 + ed25519.KEY_BYTES:
        raise ValueError("an Ed25519 key has 32 bytes")
    key = VerifierKey(check_name(name), content[0], content[1:])
    if key.text != text:
        raise ValueError(f"the id {key_id[:16]} of the verifier key is not that of its name and key")
    return key


def signing_key(name: str, kind: int, private_key: bytes) -> SigningKey:
    """The key that signs under `name`. Raises `ValueError`, and `ed25519.LibraryMissing`."""
    return SigningKey(VerifierKey(check_name(name), kind, ed25519.public_key_of(private_key)), private_key)


def keys_of_log(origin: str, secret: bytes) -> tuple[SigningKey, SigningKey]:
    """The two keys of a log, which HKDF-SHA256 (RFC 5869) derives from a secret of 32 bytes.

    The first signs checkpoints, the second their times: the log's own timestamped cosignature. Raises `ValueError` for
    an origin that is no name of a key.
    """
    return (_derived(origin, ED25519, secret), _derived(origin, COSIGNATURE, secret))


def _derived(origin: str, kind: int, secret: bytes) -> SigningKey:
    extracted = hmac.digest(bytes(hashlib.sha256().digest_size), secret, "sha256")
    return signing_key(origin, kind, hmac.digest(extracted, _ABOUT[kind] + b"\x01", "sha256"))


def _timed(text: str, at_s: int) -> bytes:
    """The signed message of a timestamped cosignature (tlog-cosignature, section "Ed25519 signed message")."""
    return f"cosignature/v1\ntime {at_s}\n{text}".encode()


# The limits of golang.org/x/mod/sumdb/note. A note with 16 signatures after quantum computers has some 110 kB.
NOTE_BYTES_MAX: Final = 1_000_000
SIGNATURES_MAX: Final = 100
_DASH: Final = "\u2014 "
# ASCII control characters but the newline.
_FORBIDDEN: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")


class NoteSignature(NamedTuple):
    """A line with a signature: the name and the id of a key, and what the key made."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def line(self) -> str:
        """The line, with its newline."""
        return f"{_DASH}{self.name} {base64_of(self.key_id + self.signature)}\n"


class Note(NamedTuple):
    """A text, which ends in a newline, and its unverified signatures."""

    text: str
    signatures: tuple[NoteSignature, ...]

    @property
    def data(self) -> bytes:
        """The note as it is sent."""
        return f"{self.text}\n{''.join(each.line for each in self.signatures)}".encode()


def parse_note(data: bytes) -> Note:
    """The note in `data`, without verification. Raises `ValueError`."""
    if len(data) > NOTE_BYTES_MAX:
        raise ValueError(f"a note has at most {NOTE_BYTES_MAX} bytes")
    try:
        whole = data.decode()
    except UnicodeDecodeError:
        raise ValueError("a note is UTF-8") from None
    if _FORBIDDEN.search(whole):
        raise ValueError("a note has no control characters but newlines")
    split = whole.rfind("\n\n") + 1
    text, lines = whole[:split], whole[split + 1 :]
    if not split or not lines.endswith("\n"):
        raise ValueError("a note is a text, an empty line, and lines of signatures, each with its newline")
    if lines.count("\n") > SIGNATURES_MAX:
        raise ValueError(f"a note has at most {SIGNATURES_MAX} signatures")
    return Note(text, tuple(_parse_line(line) for line in lines[:-1].split("\n")))


def sign_note(text: str, keys: Iterable[SigningKey], at_s: int) -> Note:
    """The note with signatures by these keys, made at `at_s` seconds since 1970. Raises `ValueError` for the text."""
    if not text.endswith("\n") or _FORBIDDEN.search(text):
        raise ValueError("the text of a note ends in a newline and has no other control characters")
    signatures = [NoteSignature(key.verifier.name, key.verifier.key_id, key.sign(text, at_s)) for key in keys]
    return Note(text, tuple(signatures))


def verified(note: Note, keys: Iterable[VerifierKey]) -> Mapping[VerifierKey, int]:
    """The keys among `keys` that signed the note, each with the time of its signature (`VerifierKey.signed_at`).

    Ignores signatures by other keys, and all but the first by each key. Raises `ValueError` if a signature by one of
    `keys` does not verify. The result may be empty.
    """
    known = dict[tuple[str, bytes], VerifierKey]()
    for key in keys:
        if known.setdefault((key.name, key.key_id), key) != key:
            raise ValueError(f"two keys of {key.name} have the same id")
    found = dict[VerifierKey, int]()
    for each in note.signatures:
        key = known.get((each.name, each.key_id))
        if key is None or key in found:
            continue
        at_s = key.signed_at(note.text, each.signature)
        if at_s is None:
            raise ValueError(f"the signature of {key.name} does not verify")
        found[key] = at_s
    return found


def _parse_line(line: str) -> NoteSignature:
    name, space, encoded = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH) or not space:
        raise ValueError("a line with a signature is a dash, the name of a key, and base64")
    content = bytes_of(encoded, "a signature")
    if len(content) <= _ID_BYTES:
        raise ValueError("a signature is four bytes that name the key, and more")
    return NoteSignature(check_name(name), content[:_ID_BYTES], content[_ID_BYTES:])
