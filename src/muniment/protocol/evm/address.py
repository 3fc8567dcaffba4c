"""EVM addresses with their EIP-55 checksum."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

from muniment.protocol.errors import InvalidAddress
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.wire import ProvedText

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
# The wallets and tokens in use are few. An entry takes about 250 bytes, a full cache 4 MB.
_CHECKSUMS_KEPT: Final = 16_384
# Addresses by the text that they were parsed from: entries of the same size, a full cache 1 MB.
_SPELLINGS_KEPT: Final = 4_096

# Two translation tables; the AND of their results gives the letter cases of all 40 characters in one step. They set the
# bit in which upper and lower case differ: one for the digits 8 to f of the hash, the other for letters of the address.
_CASE_BIT: Final = 0x20
_IF_HIGH: Final = bytes(_CASE_BIT if chr(byte) in "89abcdef" else 0 for byte in range(256))
_IF_LETTER: Final = bytes(_CASE_BIT if chr(byte) in "abcdef" else 0 for byte in range(256))
_DIGITS: Final = 40


class Address(ProvedText):
    """20 bytes as `0x` and 40 hex digits whose letter case is the checksum of EIP-55."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": "^0x[0-9a-fA-F]{40}$",
        "description": "An EVM address: all lower case, all upper case or with its EIP-55 checksum",
        "examples": ["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"],
    }
    refuses = InvalidAddress

    @classmethod
    def parse(cls, text: str) -> Self:
        """Takes digits of one letter case, or with the EIP-55 checksum.

        Raises `InvalidAddress`, also for a wrong checksum, because that is most likely a typing error.
        """
        return cls(_checked(text))

    @classmethod
    def from_raw(cls, raw: bytes) -> Self:
        """The address of 20 bytes."""
        return cls(_checksummed(raw.hex()))

    @property
    def raw(self) -> bytes:
        """The 20 bytes."""
        return bytes.fromhex(self[2:])


@lru_cache(maxsize=_SPELLINGS_KEPT)
def _checked(text: str) -> str:
    """`text` with its checksum. Refusals are not cached, so every cached text has 42 characters."""
    if not _ADDRESS.fullmatch(text):
        raise InvalidAddress("an address is 0x and 40 hex digits")
    digits = text[2:]
    lower = digits.lower()
    checksummed = _checksummed(lower)
    if text != checksummed and digits != lower and digits != digits.upper():
        raise InvalidAddress("the address has a wrong EIP-55 checksum")
    return checksummed


@lru_cache(maxsize=_CHECKSUMS_KEPT)
def _checksummed(lower: str) -> str:
    """EIP-55: a letter is upper case if the same digit of the hash of the lower-case text is 8 or more."""
    text = lower.encode("ascii")
    high = keccak256(text).hex().encode("ascii")[:_DIGITS].translate(_IF_HIGH)
    flips = int.from_bytes(high) & int.from_bytes(text.translate(_IF_LETTER))
    return "0x" + (int.from_bytes(text) ^ flips).to_bytes(_DIGITS).decode("ascii")
