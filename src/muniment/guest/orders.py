"""Orders to the launcher and its reports: a letter, the number of a child, and how an ended one ended."""

from __future__ import annotations

import struct
from typing import Final

# Status is that of wait4(2), memory the most that the child had, in KiB (macOS: bytes).
_ORDER: Final = struct.Struct("!cIiQ")
ORDER_BYTES: Final = _ORDER.size
FORK: Final = b"f"
KILL: Final = b"k"
ENDED: Final = b"e"
# The status of a child that could not be forked.
NOT_FORKED: Final = -1


def order(letter: bytes, number: int, status: int = 0, memory: int = 0) -> bytes:
    """An order to the launcher, or its report."""
    return _ORDER.pack(letter, number, status, memory)


def read_order(data: bytes) -> tuple[bytes, int, int, int]:
    """Letter, number, status and memory of an order or a report."""
    return _ORDER.unpack(data)
