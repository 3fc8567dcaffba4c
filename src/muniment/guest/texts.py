"""Texts in the memory of a module, as AssemblyScript keeps strings.

A pointer is to UTF-16LE; its length in bytes (u32) is at pointer - 4, its class (u32, 2 for a string) at pointer - 8.
The module wrote all of it, so every number is checked before it is used.
"""

from __future__ import annotations

from typing import Final, Protocol

from muniment.guest.limits import TEXT_LENGTH_MAX
from muniment.guest.outcomes import Stop

_STRING: Final = 2
_HEADER_BYTES: Final = 8
_UNIT_BYTES: Final = 2
_U32_MASK: Final = 0xFFFF_FFFF


class Memory(Protocol):
    """The memory of a running module, and its allocator."""

    def size(self) -> int:
        """Its bytes now."""
        ...

    def read(self, start: int, end: int) -> bytes:
        """A copy of bytes that are within it."""
        ...

    def write(self, start: int, data: bytes) -> None:
        """Write bytes where they are within it."""
        ...

    def allocate(self, size: int, kind: int) -> int:
        """What the module's `__new` returns: a pointer, or nonsense. Raises `Stop`."""
        ...


def read_text(memory: Memory, pointer: int, what: str, length_max: int | None = None) -> str:
    """The text at `pointer`; half a surrogate pair becomes U+FFFD. Raises `Stop` with `what` it should have been.

    A text longer than `length_max` units is cut there; without it, one longer than `TEXT_LENGTH_MAX` ends the run.
    """
    start = pointer & _U32_MASK
    if start < _HEADER_BYTES or start > memory.size():
        raise Stop("bad-text", f"{what} is at {start}, outside of the memory")
    header = memory.read(start - _HEADER_BYTES, start)
    kind, size = int.from_bytes(header[:4], "little"), int.from_bytes(header[4:], "little")
    if kind != _STRING:
        raise Stop("bad-text", f"{what} is an object of class {kind}, not a string")
    if size % _UNIT_BYTES or start + size > memory.size():
        raise Stop("bad-text", f"{what} has {size} bytes at {start}: odd, or beyond the memory")
    length = size // _UNIT_BYTES
    if length_max is None and length > TEXT_LENGTH_MAX:
        raise Stop("limit-text", f"{what} has {length} characters; {TEXT_LENGTH_MAX} are taken")
    taken = length if length_max is None else min(length, length_max)
    return memory.read(start, start + taken * _UNIT_BYTES).decode("utf-16-le", "replace")


def write_text(memory: Memory, text: str, what: str) -> int:
    """A pointer to `text` in an object that the module's `__new` has made. Raises `Stop`."""
    data = text.encode("utf-16-le", "replace")
    if len(data) > TEXT_LENGTH_MAX * _UNIT_BYTES:
        raise Stop("limit-text", f"{what} has {len(data) // _UNIT_BYTES} characters; {TEXT_LENGTH_MAX} are given")
    pointer = memory.allocate(len(data), _STRING)
    start = pointer & _U32_MASK
    if start < _HEADER_BYTES or start + len(data) > memory.size():
        raise Stop("bad-text", f"__new returned {start} for {len(data)} bytes, outside of the memory")
    header = memory.read(start - _HEADER_BYTES, start)
    if header != _STRING.to_bytes(4, "little") + len(data).to_bytes(4, "little"):
        raise Stop("bad-text", f"__new returned {start}, where no string of {len(data)} bytes begins")
    memory.write(start, data)
    return pointer
