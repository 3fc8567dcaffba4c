"""Vectors (v128) in the types of a module's imports and exported functions.

The library by which those types are read has no v128, and ends the process at one. Sections are those of the
WebAssembly core specification 2.0, chapter 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TYPES: Final = 1
_IMPORTS: Final = 2
_FUNCTIONS: Final = 3
_EXPORTS: Final = 7
_V128: Final = 0x7B
# Kinds of imports and exports; the fourth is a memory.
_FUNCTION: Final = 0
_TABLE: Final = 1
_GLOBAL: Final = 3


def u32(wasm: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 of a valid module, and where it ends."""
    value = shift = 0
    while True:
        byte = wasm[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - no byte follows
            return value, at


def has_vectors(wasm: bytes, places: Mapping[int, int]) -> bool:
    """Whether an import or an exported function of a valid module has v128. `places` are the starts of its sections.

    What is not imported or exported may have it.
    """
    return _Walk(wasm, places).finds_vectors()


class _Walk:
    """One walk over the sections that tell those types; `_at` is its position."""

    def __init__(self, wasm: bytes, places: Mapping[int, int]) -> None:
        self._wasm = wasm
        self._places = places
        self._at = 0

    def finds_vectors(self) -> bool:
        types = [self._type() for _ in range(self._count(_TYPES))]
        imports = [self._import(types) for _ in range(self._count(_IMPORTS))]
        if any(has_vector for _, has_vector in imports):
            return True
        if not any(types):
            return False
        functions = [has_vector for kind, has_vector in imports if kind == _FUNCTION]
        functions += [types[self._u32()] for _ in range(self._count(_FUNCTIONS))]
        return any(self._export(functions) for _ in range(self._count(_EXPORTS)))

    def _count(self, section: int) -> int:
        """Go to a section; the number of items in it."""
        if section not in self._places:
            return 0
        self._at = self._places[section]
        return self._u32()

    def _type(self) -> bool:
        self._at += 1  # the tag of a function type
        params, results = self._bytes(), self._bytes()
        return _V128 in params + results

    def _import(self, types: list[bool]) -> tuple[int, bool]:
        """The kind of an import, and whether it has a vector."""
        for _ in ("module", "name"):
            self._bytes()
        kind = self._byte()
        if kind == _FUNCTION:
            return kind, types[self._u32()]
        if kind == _GLOBAL:
            kind_of_value, _ = self._byte(), self._byte()  # and whether it is mutable
            return kind, kind_of_value == _V128
        if kind == _TABLE:
            self._byte()  # the kind of its entries
        for _ in range(1 + self._byte()):  # with a maximum there are two limits
            self._u32()
        return kind, False

    def _export(self, functions: list[bool]) -> bool:
        self._bytes()
        kind, index = self._byte(), self._u32()
        return kind == _FUNCTION and functions[index]

    def _bytes(self) -> bytes:
        """A vector of bytes."""
        count = self._u32()
        self._at += count
        return self._wasm[self._at - count : self._at]

    def _byte(self) -> int:
        self._at += 1
        return self._wasm[self._at - 1]

    def _u32(self) -> int:
        value, self._at = u32(self._wasm, self._at)
        return value
