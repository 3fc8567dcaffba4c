"""EVM addresses with their EIP-55 checksum."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

from muniment.errors import InvalidAddress
from muniment.evm.hashing import keccak256
from muniment.wire import ProvedText

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
# Addresses come in small sets: the wallets and tokens in use. An entry takes about 200 bytes, all of them 3 MB.
_CHECKSUMS_KEPT: Final = 16_384


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
        """EIP-55 from digits of one letter case, or from EIP-55.

        Raises `InvalidAddress`; for a wrong mixed-case checksum too, since that is a typing error.
        """
        if not _ADDRESS.fullmatch(text):
            raise InvalidAddress("an address is 0x and 40 hex digits")
        digits = text[2:]
        lower = digits.lower()
        checksummed = _checksummed(lower)
        if text != checksummed and digits != lower and digits != digits.upper():
            raise InvalidAddress("the address has a wrong EIP-55 checksum")
        return cls(checksummed)

    @classmethod
    def from_raw(cls, raw: bytes) -> Self:
        """The address of 20 bytes."""
        return cls(_checksummed(raw.hex()))

    @property
    def raw(self) -> bytes:
        """The 20 bytes."""
        return bytes.fromhex(self[2:])


@lru_cache(maxsize=_CHECKSUMS_KEPT)
def _checksummed(lower: str) -> str:
    """EIP-55: a letter is upper case where the digit of the hash of the lower-case text is 8 or more."""
    pattern = keccak256(lower.encode("ascii")).hex()
    return "0x" + "".join(c.upper() if digit >= "8" else c for c, digit in zip(lower, pattern, strict=False))
