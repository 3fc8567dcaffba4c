"""Decoding of untrusted data by the Solidity contract ABI, version 2, and encoding.

Types are small values: `UINT256`, `ADDRESS`, `BYTES`, `ListOf(...)`, `TupleOf(...)`. Every offset and length must stay
within the data. An honest encoder writes each byte of content once, but hostile offsets may point to one place again
and again. So the decoder refuses to read more bytes in total than the data has, which makes its work linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from muniment.protocol.evm.address import Address

_WORD: Final = 32


@dataclass(frozen=True, slots=True)
class Uint:
    """An unsigned integer of `bits`, read as `int`."""

    bits: int


@dataclass(frozen=True, slots=True)
class Word:
    """`bytes32`, read as 32 `bytes`."""


@dataclass(frozen=True, slots=True)
class Account:
    """`address`, read as `Address`."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """`bytes`, read as `bytes`. The padding of the last word is ignored, as in Solidity."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """`T[]`, read as a list."""

    item: Type


@dataclass(frozen=True, slots=True)
class TupleOf:
    """A struct, read as a tuple in the order of its members."""

    members: tuple[Type, ...]


Type: TypeAlias = Uint | Word | Account | Bytes | ListOf | TupleOf
UINT8: Final = Uint(8)
UINT256: Final = Uint(256)
BYTES32: Final = Word()
ADDRESS: Final = Account()
BYTES: Final = Bytes()


def decode(types: Sequence[Type], data: bytes) -> tuple[Any, ...]:
    """The values of `types` at the start of `data`, encoded like arguments or the data of an event.

    Bytes that no value refers to are ignored, as in Solidity. Raises only `ValueError`: for an offset outside of
    `data`, a number or an address beyond its range, and more content than `data` has bytes.
    """
    return _Reader(data).members(tuple(types), 0)


def encode(types: Sequence[Type], values: Sequence[Any]) -> bytes:
    """`values` of these types, encoded like arguments; `decode` has them back.

    Raises `OverflowError` for a number beyond its word. Values of other kinds are faults of the caller.
    """
    heads, tails = list[bytes](), list[bytes]()
    at = sum(map(_head_size, types))
    for kind, value in zip(types, values, strict=True):
        content = _encoded(kind, value)
        if _is_dynamic(kind):
            heads.append(at.to_bytes(_WORD))
            tails.append(content)
            at += len(content)
        else:
            heads.append(content)
    return b"".join((*heads, *tails))


def _encoded(kind: Type, value: Any) -> bytes:
    match kind:
        case Uint(bits):
            return int(value).to_bytes(bits // 8).rjust(_WORD, b"\0")
        case Word():
            return value
        case Account():
            return value.raw.rjust(_WORD, b"\0")
        case Bytes():
            return len(value).to_bytes(_WORD) + value + bytes(-len(value) % _WORD)
        case ListOf(item):
            return len(value).to_bytes(_WORD) + encode([item] * len(value), value)
        case TupleOf(members):
            return encode(members, value)


class _Reader:
    __slots__ = ("_data", "_left")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = len(data)

    def members(self, types: tuple[Type, ...], base: int) -> tuple[Any, ...]:
        """Values whose head is at `base`; their offsets count from there."""
        values: list[Any] = []
        at = base
        for kind in types:
            values.append(self._value(kind, at, base))
            at += _head_size(kind)
        return tuple(values)

    def _value(self, kind: Type, at: int, base: int) -> Any:
        if _is_dynamic(kind):
            at = base + self._number(at)
        match kind:
            case Uint(bits):
                number = self._number(at)
                if number >> bits:
                    raise ValueError(f"not a uint{bits} at byte {at}")
                return number
            case Word():
                return self._take(at, _WORD)
            case Account():
                word = self._take(at, _WORD)
                if any(word[:12]):
                    raise ValueError(f"not an address at byte {at}")
                return Address.from_raw(word[12:])
            case Bytes():
                return self._take(at + _WORD, self._number(at))
            case ListOf(item):
                return self._list(item, at)
            case TupleOf(members):
                return self.members(members, at)

    def _list(self, item: Type, at: int) -> list[Any]:
        count, base, size = self._number(at), at + _WORD, _head_size(item)
        # No struct is empty, so each item takes at least a word: too large a count fails at the end of the data.
        return [self._value(item, base + n * size, base) for n in range(count)]

    def _number(self, at: int) -> int:
        return int.from_bytes(self._take(at, _WORD))

    def _take(self, at: int, size: int) -> bytes:
        """The bytes at `at`, which is never negative, because offsets are unsigned."""
        if at + size > len(self._data):
            raise ValueError(f"{size} bytes at byte {at} are not within the data")
        self._left -= size
        if self._left < 0:
            raise ValueError("offsets lead to the same bytes again")
        return self._data[at : at + size]


def _is_dynamic(kind: Type) -> bool:
    match kind:
        case Bytes() | ListOf():
            return True
        case TupleOf(members):
            return any(_is_dynamic(member) for member in members)
        case _:
            return False


def _head_size(kind: Type) -> int:
    """The bytes of a value in the head: the value itself, or the offset of a dynamic one."""
    if isinstance(kind, TupleOf) and not _is_dynamic(kind):
        return sum(_head_size(member) for member in kind.members)
    return _WORD
