"""The keys of signed notes: verifier keys, and the keys that sign (c2sp.org/signed-note, c2sp.org/tlog-cosignature)."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

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
