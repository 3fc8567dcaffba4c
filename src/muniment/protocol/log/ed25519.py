"""Ed25519 signatures (RFC 8032) by the library `cryptography`, which a bare installation does not have.

The extras `server` and `tlog` have it. It is imported when a signature is made or checked, so that the formats of the
log can be read without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_MISSING: Final = "signatures of the transparency log need one more library: pip install 'muniment[tlog]'"


class LibraryMissing(Exception):
    """The library is not installed. The message has the command that installs it."""


def public_key_of(private_key: bytes) -> bytes:
    """The public key, 32 bytes, of a private key of 32 bytes. Raises `LibraryMissing`."""
    return _private(private_key).public_key().public_bytes_raw()


def sign(private_key: bytes, message: bytes) -> bytes:
    """The signature, 64 bytes, with a private key of 32 bytes. Raises `LibraryMissing`."""
    return _private(private_key).sign(message)


def is_signed(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the key signed the message. False also for bytes that are no key or no signature.

    Raises `LibraryMissing`.
    """
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - the extra may be missing
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - as above
    except ImportError:
        raise LibraryMissing(_MISSING) from None
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _private(private_key: bytes) -> Ed25519PrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - the extra may be missing
    except ImportError:
        raise LibraryMissing(_MISSING) from None
    return Ed25519PrivateKey.from_private_bytes(private_key)
