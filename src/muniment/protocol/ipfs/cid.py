"""Content identifiers (github.com/multiformats/cid), read strictly: each identifier has one spelling.

There are two steps. `decode_cid` accepts any well-formed CIDv0, and CIDv1 in lower-case base32, of every codec and
hash. `Cid.parse` then accepts only CIDs of content that this service can hold: sha2-256 of a dag-pb node or raw block.
"""

from __future__ import annotations

import re
from base64 import b32encode
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

from muniment.protocol.errors import InvalidCid
from muniment.protocol.ipfs.varint import decode_varint, encode_varint
from muniment.protocol.wire import ProvedText

# Codes of the multicodec table (github.com/multiformats/multicodec).
RAW: Final = 0x55
DAG_PB: Final = 0x70
SHA2_256: Final = 0x12
IDENTITY: Final = 0x00

SHA2_256_LENGTH: Final = 32
# The longest digest that Kubo accepts, hash or identity (boxo/verifcid, DefaultMaxDigestSize).
DIGEST_LENGTH_MAX: Final = 128
# The text of a CIDv1 of such a digest: 1 byte version, 9 codec, 9 hash code, 2 length, 128 digest in base32.
CID_LENGTH_MAX: Final = 240
# Of a character (RFC 4648).
_BASE32_BITS: Final = 5
# Few functions are in use, and each trigger names its function several times. Under 2 MB.
_CIDS_KEPT: Final = 4_096

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_VALUE: Final = {letter: value for value, letter in enumerate(_BASE58)}
_V0_LENGTH: Final = 34
_V0_PREFIX: Final = bytes((SHA2_256, SHA2_256_LENGTH))
_V0_TEXT: Final = re.compile(f"Qm[{_BASE58}]{{44}}")
_V1_TEXT: Final = re.compile("b[a-z2-7]+")
# From the base32 digits of RFC 4648 to the digits of `int(text, 32)`.
_TO_INT_DIGITS: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz234567", "0123456789abcdefghijklmnopqrstuv")

# Of the 58 base32 characters of a sha2-256 CIDv1, the first ones are its prefix, and the last has two spare bits.
_V1_TAIL: Final = "[a-h][a-z2-7]{50}[aeimquy4]"
# The third of the 46 characters of a CIDv0 is between N and f, because its bytes begin with 12 20.
_V0_PATTERN: Final = "Qm[NP-Za-f][1-9A-HJ-NP-Za-km-z]{43}"


@dataclass(frozen=True, slots=True)
class CidParts:
    """The parts of a CID. `digest` is the output of the hash, or the content itself for the identity hash."""

    version: int
    codec: int
    hash_code: int
    digest: bytes

    @property
    def binary(self) -> bytes:
        """The bytes in links and CAR files: for a CIDv0, only the multihash."""
        if self.version == 0:
            return _V0_PREFIX + self.digest
        return b"\x01" + encode_varint(self.codec) + self.multihash

    @property
    def multihash(self) -> bytes:
        """Hash code, length and digest (github.com/multiformats/multihash)."""
        return encode_varint(self.hash_code) + encode_varint(len(self.digest)) + self.digest

    @property
    def text(self) -> str:
        """The canonical spelling: base58btc for a CIDv0, `b` and lower-case base32 for a CIDv1."""
        if self.version == 0:
            return _base58(self.binary)
        return "b" + b32encode(self.binary).decode("ascii").rstrip("=").lower()

    @property
    def is_sha2_256(self) -> bool:
        """Whether this is an untruncated sha2-256."""
        return self.hash_code == SHA2_256 and len(self.digest) == SHA2_256_LENGTH


class Cid(ProvedText):
    """A CID of content that this service can hold (sha2-256, dag-pb or raw), in the client's spelling."""

    __slots__ = ()

    codecs: ClassVar[tuple[int, ...]] = (DAG_PB, RAW)
    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": f"^({_V0_PATTERN}|baf(ybei|krei){_V1_TAIL})$",
        "maxLength": 59,
        "description": "A content identifier (CID): CIDv0, or CIDv1 in lower-case base32; sha2-256, dag-pb or raw",
        "examples": ["QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ"],
    }
    refuses = InvalidCid

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidCid` for a malformed CID, and for one of another codec or hash."""
        parts = decode_cid(text)
        if not parts.is_sha2_256:
            raise InvalidCid("a CID here must use sha2-256, not truncated")
        if parts.codec not in cls.codecs:
            names = " or ".join({DAG_PB: "dag-pb", RAW: "raw"}[codec] for codec in cls.codecs)
            raise InvalidCid(f"a CID here must use the codec {names}, not {parts.codec:#x}")
        return cls(text)

    @property
    def parts(self) -> CidParts:
        """The parts of this CID."""
        return decode_cid(self)

    @property
    def version(self) -> int:
        """0 or 1."""
        return 0 if self.startswith("Q") else 1

    @property
    def codec(self) -> int:
        """`DAG_PB` or `RAW`. Look-ups use it with `digest`, so that both CID versions find the same block."""
        return self.parts.codec

    @property
    def digest(self) -> bytes:
        """The 32 bytes of sha2-256: the key of the block."""
        return self.parts.digest


class BundleCid(Cid):
    """The CID of a bundle, which is a UnixFS directory and so dag-pb."""

    __slots__ = ()

    codecs: ClassVar[tuple[int, ...]] = (DAG_PB,)
    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": f"^({_V0_PATTERN}|bafybei{_V1_TAIL})$",
        "maxLength": 59,
        "description": "The content identifier (CID) of a bundle: CIDv0, or CIDv1 dag-pb in lower-case base32",
        "examples": ["QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ"],
    }
    refuses = InvalidCid


def cid_v0(digest: bytes) -> Cid:
    """The CIDv0 of the dag-pb node with this sha2-256 digest."""
    return Cid(CidParts(0, DAG_PB, SHA2_256, digest).text)


def cid_v1(codec: int, digest: bytes) -> Cid:
    """The CIDv1 of the block with this codec, `DAG_PB` or `RAW`, and this sha2-256 digest."""
    return Cid(CidParts(1, codec, SHA2_256, digest).text)


def decode_cid(text: str) -> CidParts:
    """Any well-formed CIDv0, or CIDv1 in lower-case base32; raises `InvalidCid` for every other text."""
    if len(text) > CID_LENGTH_MAX:
        raise InvalidCid(f"a CID has at most {CID_LENGTH_MAX} characters")
    return _decoded(text)


@lru_cache(maxsize=_CIDS_KEPT)
def _decoded(text: str) -> CidParts:
    try:
        if _V0_TEXT.fullmatch(text):
            return _whole(_base58_bytes(text), version=0)
        if _V1_TEXT.fullmatch(text):
            return _whole(_base32_bytes(text[1:]), version=1)
    except ValueError as error:
        raise InvalidCid(f"not a CID: {error}") from error
    raise InvalidCid("neither a CIDv0 (Qm…, 46 characters) nor a CIDv1 in lower-case base32 (b…)")


def decode_cid_bytes(data: bytes, at: int = 0) -> tuple[CidParts, int]:
    """The binary CID that starts at `at`, and the position after it; raises `ValueError`."""
    if data.startswith(_V0_PREFIX, at):
        end = at + _V0_LENGTH
        if len(data) < end:
            raise ValueError("the digest is cut short")
        return CidParts(0, DAG_PB, SHA2_256, data[at + 2 : end]), end
    version, at = decode_varint(data, at)
    if version != 1:
        raise ValueError(f"there is no CID version {version} of this form")
    codec, at = decode_varint(data, at)
    hash_code, at = decode_varint(data, at)
    length, at = decode_varint(data, at)
    if length > DIGEST_LENGTH_MAX:
        raise ValueError(f"a digest has at most {DIGEST_LENGTH_MAX} bytes")
    if len(data) < at + length:
        raise ValueError("the digest is cut short")
    return CidParts(1, codec, hash_code, data[at : at + length]), at + length


def _whole(binary: bytes, version: int) -> CidParts:
    parts, end = decode_cid_bytes(binary)
    if end != len(binary):
        raise ValueError("something follows the digest")
    if parts.version != version:
        raise ValueError("a CIDv0 carries no multibase prefix")
    return parts


def _base58(binary: bytes) -> str:
    # Each leading zero byte would need a `1`; a CIDv0 has none, because it starts with 12.
    number, letters = int.from_bytes(binary, "big"), list[str]()
    while number:
        number, rest = divmod(number, 58)
        letters.append(_BASE58[rest])
    return "".join(reversed(letters))


def _base58_bytes(text: str) -> bytes:
    number = 0
    for letter in text:
        number = number * 58 + _BASE58_VALUE[letter]
    return number.to_bytes(_V0_LENGTH, "big")  # 46 base58 digits are below 2^270


def _base32_bytes(text: str) -> bytes:
    length, spare = divmod(_BASE32_BITS * len(text), 8)
    number = int(text.translate(_TO_INT_DIGITS), 32)
    if spare >= _BASE32_BITS or number & ((1 << spare) - 1):  # a superfluous digit, or bits of no byte
        raise ValueError("the last base32 characters are not canonical (RFC 4648 section 3.5)")
    return (number >> spare).to_bytes(length, "big")
