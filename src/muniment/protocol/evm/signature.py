"""ECDSA signatures over secp256k1 in one canonical form, and the recovery of their signers.

A signature identifies a consent, and other spellings (n - s in place of s, v counted from 0, upper-case digits) would
be other identities. So only one spelling is stored.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

from btclib_secp256k1 import keys, recovery

from muniment.protocol.errors import InvalidSignature
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.wire import ProvedText

_BYTES: Final = 65
# The order n of secp256k1 (SEC 2, section 2.4.1) and n/2 (the limit of s in EIP-2), big-endian: byte strings of equal
# length compare like their numbers.
_ZERO: Final = bytes(32)
_ORDER: Final = bytes.fromhex("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141")
_HALF_ORDER: Final = bytes.fromhex("7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0")
# v counts the parity of R from 27 (Yellow Paper, appendix F); some hardware wallets count from 0.
_V: Final = {27: "1b", 28: "1c", 0: "1b", 1: "1c"}
# Whether R has an odd y. An x of R at n or above has ids 2 and 3, which v cannot express and no search can find.
_RECOVERY_ID: Final = {"1b": 0, "1c": 1}


class Signature(ProvedText):
    """r, s and v in 65 bytes as lower-case hex, 0 < r < n, 0 < s ≤ n/2, v 27 or 28."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": "^0x[0-9a-fA-F]{130}$",
        "description": "An ECDSA signature of 65 bytes r, s, v with low s and v 27 or 28 (0 or 1 are lifted)",
        "examples": ["0x" + "1" * 128 + "1b"],
    }
    refuses = InvalidSignature

    @classmethod
    def parse(cls, text: str) -> Self:
        """The canonical form: lower case, and v 27 or 28 in place of 0 or 1.

        Raises `InvalidSignature` for any other length or v, for r or s outside their range, and for a high s.
        """
        try:
            raw = bytes.fromhex(text[2:]) if len(text) == 2 + 2 * _BYTES and text.startswith("0x") else b""
        except ValueError:
            raw = b""
        if len(raw) != _BYTES:  # `fromhex` skips spaces, which leaves fewer bytes
            raise InvalidSignature("a signature is 0x and 130 hex digits: r, s and v")
        v = _V.get(raw[64])
        if v is None:
            raise InvalidSignature("the last byte of a signature, v, is 27 or 28")
        if not _ZERO < raw[:32] < _ORDER:
            raise InvalidSignature("r of a signature is above 0 and below the order of the curve")
        if not _ZERO < raw[32:64] <= _HALF_ORDER:
            raise InvalidSignature("s of a signature is above 0 and at most half the order of the curve (low s)")
        return cls(f"0x{raw[:64].hex()}{v}")

    @property
    def raw(self) -> bytes:
        """The 65 bytes r, s, v."""
        return bytes.fromhex(self[2:])


def recover(digest: bytes, signature: Signature) -> Address | None:
    """The address whose key signed the 32-byte `digest` (SEC 1, section 4.1.6), or None.

    None: no point of the curve has r as its x, or the key would be the point at infinity.
    """
    raw = _recover(digest, signature)
    return None if raw is None else Address.from_raw(raw)


def is_by(signer: Address, digest: bytes, signature: Signature) -> bool:
    """Whether the key of `signer` signed the 32-byte `digest`."""
    return _recover(digest, signature) == signer.raw


def _recover(digest: bytes, signature: Signature) -> bytes | None:
    try:
        key = recovery.recover(digest, bytes.fromhex(signature[2:130]), _RECOVERY_ID[signature[130:]], compressed=False)
    except ValueError:
        return None
    return _raw_address_of(key)


def address_of_key(private_key: bytes) -> Address:
    """The address of a 32-byte private key. Raises `ValueError`, without the key, for an invalid key."""
    return Address.from_raw(_raw_address_of(keys.pubkey_from_prvkey(private_key, compressed=False)))


def sign(digest: bytes, private_key: bytes) -> Signature:
    """The canonical signature of the 32-byte `digest` with a 32-byte key: deterministic (RFC 6979), low s.

    The signer is recovered from the result first, since a faulty computation could reveal the key. Raises
    `ValueError`, without the key, for an invalid key.
    """
    compact, recovery_id = recovery.sign(digest, private_key)
    return Signature.parse(f"0x{compact.hex()}{27 + recovery_id:02x}")


def personal_digest(message: bytes) -> bytes:
    """The digest that `personal_sign` signs for `message`: EIP-191, version 0x45."""
    return keccak256(b"\x19Ethereum Signed Message:\n%d" % len(message) + message)


def _raw_address_of(key: bytes) -> bytes:
    """The address of a public key of 65 bytes: 4, x and y."""
    return keccak256(key[1:])[12:]
