"""Unsigned varints (github.com/multiformats/unsigned-varint), as CIDs, protobuf messages and CAR files use them.

Only the shortest encoding of a number is accepted, with at most nine bytes (63 bits): each number has one spelling.
"""

from __future__ import annotations

from typing import Final

# unsigned-varint, section "Practical maximum of 9 bytes (for security)".
VARINT_BYTES_MAX: Final = 9
# The bit of a byte that announces another byte.
CONTINUES: Final = 0x80


def encode_varint(number: int) -> bytes:
    """`number`, which is not negative, with seven bits per byte, lowest first."""
    if not number >> 7:
        return bytes((number,))
    encoded = bytearray()
    while number >> 7:
        encoded.append(number & 0x7F | CONTINUES)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def decode_varint(data: bytes, at: int = 0) -> tuple[int, int]:
    """The number that starts at `at`, and the position after it.

    Raises `ValueError` if it is cut short, longer than nine bytes, or not in its shortest form.
    """
    number = 0
    for index, byte in enumerate(data[at : at + VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * index)
        if not byte & CONTINUES:
            if byte == 0 and index > 0:
                raise ValueError("a varint is not in its shortest form")
            return number, at + index + 1
    raise ValueError("a varint is cut short or too long")
