"""Bytes as hex text, as in Ethereum's JSON: `0x` and two digits per byte."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final, Self

from muniment.protocol.errors import InvalidHex
from muniment.protocol.wire import ProvedText

_BYTES32: Final = re.compile(r"0x[0-9a-fA-F]{64}")
_HEX: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,64}")


class HexString(ProvedText):
    """Any number of bytes as `0x` and hex digits, lower case. Its length is bounded by the size of the body."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": "^0x([0-9a-fA-F]{2})*$",
        "description": "Bytes as hex: 0x and an even number of digits",
        "examples": ["0xdeadbeef"],
    }
    refuses = InvalidHex

    @classmethod
    def parse(cls, text: str) -> Self:
        """Takes any letter case, gives lower case. Raises `InvalidHex`."""
        if not _HEX.fullmatch(text):
            raise InvalidHex("a hex string is 0x and an even number of hex digits")
        return cls(text.lower())

    @classmethod
    def from_raw(cls, raw: bytes) -> Self:
        """The hex of `raw`."""
        return cls("0x" + raw.hex())

    @property
    def raw(self) -> bytes:
        """The bytes."""
        return bytes.fromhex(self[2:])


class Bytes32(HexString):
    """32 bytes as hex, lower case: a hash, a nonce, a word of the EVM."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": "^0x[0-9a-fA-F]{64}$",
        "description": "32 bytes as hex",
        "examples": ["0x" + "ab" * 32],
    }

    @classmethod
    def parse(cls, text: str) -> Self:
        """Takes any letter case, gives lower case. Raises `InvalidHex`, also for any other length."""
        if not _BYTES32.fullmatch(text):
            raise InvalidHex("expected 0x and 64 hex digits: 32 bytes")
        return cls(text.lower())


def data_of(result: object) -> bytes | None:
    """The bytes of a JSON-RPC result that is hex data, or None."""
    return bytes.fromhex(result[2:]) if isinstance(result, str) and _HEX.fullmatch(result) else None


def quantity_of(result: object) -> int | None:
    """The number of a JSON-RPC result that is a hex quantity, or None; some nodes send leading zeros."""
    return int(result, 16) if isinstance(result, str) and _QUANTITY.fullmatch(result) else None
