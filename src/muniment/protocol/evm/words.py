"""EIP-712 `encodeData` for the atomic types: for each type word a function from a JSON value to 32 bytes, an EVM word.

The functions are strict: they refuse a value that two wallet libraries could encode differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from muniment.protocol.errors import InvalidAddress
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.wire import json_kind

Encode = Callable[[object], bytes]

# The largest integer that a JSON number holds exactly in every client (RFC 8259 section 6, ECMA-262 section 21.1.2.6).
SAFE_INTEGER_MAX: Final = 2**53 - 1

# Decimal without leading zeros, at most the 78 digits of 2^256, or 0x and at most 32 bytes.
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,77}|0x[0-9a-fA-F]{1,64}")
_BYTES: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
_FALSE: Final = bytes(32)
_TRUE: Final = bytes(31) + b"\x01"
_ADDRESS_PADDING: Final = bytes(12)

# CIDs, versions, schedules and many amounts are frequent. An entry takes at most about 400 bytes (characters of four
# bytes each): 2 MB when full.
_TEXTS_KEPT: Final = 4_096
_KEPT_LENGTH_MAX: Final = 64


class Misfit(Exception):
    """A value that does not fit its type. Each level that the error passes adds its name to `path`."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.path: list[str] = []

    @property
    def pointer(self) -> str:
        """The JSON pointer (RFC 6901) to the value. Its names are identifiers, which need no escaping."""
        return "".join("/" + part for part in reversed(self.path))


def _integer(word: str, bits: int, *, signed: bool) -> Encode:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)

    # The range of JSON numbers, which most values are.
    lowest, highest = max(low, -SAFE_INTEGER_MAX), min(high, SAFE_INTEGER_MAX)

    def encode(value: object) -> bytes:
        number = value if type(value) is int and lowest <= value <= highest else read(value)
        return number.to_bytes(32, "big", signed=signed)

    def read(value: object) -> int:
        if type(value) is int:
            number = value
            if not -SAFE_INTEGER_MAX <= number <= SAFE_INTEGER_MAX:
                raise Misfit("a JSON integer is within 2^53 - 1; write a larger one as a decimal string")
        elif isinstance(value, str):
            if not _INTEGER.fullmatch(value):
                raise Misfit(f"{word} as a string is decimal without leading zeros, or 0x and hex digits")
            number = int(value, 0)
        else:
            raise Misfit(f"expected {word}, got {json_kind(value)}")
        if not low <= number <= high:
            raise Misfit(f"out of the range of {word}")
        return number

    return encode


def _fixed_bytes(size: int) -> Encode:
    digits = re.compile(rf"0x[0-9a-fA-F]{{{2 * size}}}")
    padding = bytes(32 - size)

    def encode(value: object) -> bytes:
        if not isinstance(value, str) or not digits.fullmatch(value):
            raise Misfit(f"bytes{size} is 0x and {2 * size} hex digits")
        return bytes.fromhex(value[2:]) + padding

    return encode


def _dynamic_bytes(value: object) -> bytes:
    if not isinstance(value, str) or not _BYTES.fullmatch(value):
        raise Misfit("bytes is 0x and an even number of hex digits")
    return keccak256(bytes.fromhex(value[2:]))


def _string(value: object) -> bytes:
    if not isinstance(value, str):
        raise Misfit(f"expected a string, got {json_kind(value)}")
    return _kept_text(value) if len(value) <= _KEPT_LENGTH_MAX else _text(value)


def _text(value: str) -> bytes:
    if "\0" in value:
        raise Misfit("a string holds no U+0000")
    try:
        return keccak256(value.encode())
    except UnicodeEncodeError:
        raise Misfit("a string holds no lone surrogate") from None


_kept_text = lru_cache(maxsize=_TEXTS_KEPT)(_text)


def _bool(value: object) -> bytes:
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    raise Misfit(f"expected true or false, got {json_kind(value)}")


def _address(value: object) -> bytes:
    if not isinstance(value, str):
        raise Misfit(f"expected an address, got {json_kind(value)}")
    try:
        return _ADDRESS_PADDING + Address.parse(value).raw
    except InvalidAddress as error:
        raise Misfit(error.detail) from None


# Every atomic and dynamic type of EIP-712, in its canonical spelling (not `uint` or `byte`).
WORDS: Final[Mapping[str, Encode]] = MappingProxyType(
    {
        **{f"uint{bits}": _integer(f"uint{bits}", bits, signed=False) for bits in range(8, 257, 8)},
        **{f"int{bits}": _integer(f"int{bits}", bits, signed=True) for bits in range(8, 257, 8)},
        **{f"bytes{size}": _fixed_bytes(size) for size in range(1, 33)},
        "address": _address,
        "bool": _bool,
        "bytes": _dynamic_bytes,
        "string": _string,
    }
)
