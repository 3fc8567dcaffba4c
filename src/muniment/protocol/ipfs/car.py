"""CARv1 (ipld.io/specs/transport/car/carv1): a sequence of blocks, for downloads and imports.

A file is a header, which is a dag-cbor map of `roots` and `version`, and then sections of CID and block. Each begins
with its length. `muniment.protocol.ipfs.dag.walk` gives the order of the blocks.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import IO, Final

from muniment.protocol.errors import Integrity
from muniment.protocol.ipfs.block import BLOCK_SIZE_MAX, check_block
from muniment.protocol.ipfs.cid import DIGEST_LENGTH_MAX, CidParts, decode_cid_bytes
from muniment.protocol.ipfs.varint import CONTINUES, VARINT_BYTES_MAX, decode_varint, encode_varint

# More roots than any request has. A count up to 23 fits into the first byte of a CBOR array.
ROOTS_MAX: Final = 23
_CID_LENGTH_MAX: Final = 3 * VARINT_BYTES_MAX + 1 + DIGEST_LENGTH_MAX
# The map's keys, and for each root its tag, its length and the CID with its multibase zero.
_HEADER_LENGTH_MAX: Final = 18 + ROOTS_MAX * (5 + _CID_LENGTH_MAX)
_SECTION_LENGTH_MAX: Final = _CID_LENGTH_MAX + BLOCK_SIZE_MAX
# dag-cbor: {"roots": [… and "version": 1}. A CID is tag 42 around its bytes after a zero byte.
_ROOTS: Final = b"\xa2\x65roots"
_VERSION: Final = b"\x67version\x01"
_CID_TAG: Final = b"\xd8\x2a"
_ARRAY: Final = 0x80
_BYTES: Final = 0x40
_BYTES_ONE_LENGTH: Final = 0x58
_SHORT: Final = 24


def car_header(roots: Sequence[CidParts]) -> bytes:
    """The first bytes of a CAR file with these roots, at most `ROOTS_MAX`."""
    if len(roots) > ROOTS_MAX:
        raise ValueError(f"a CAR file has at most {ROOTS_MAX} roots here")
    encoded = b"".join(_CID_TAG + _cbor_bytes(b"\x00" + root.binary) for root in roots)
    header = _ROOTS + bytes((_ARRAY + len(roots),)) + encoded + _VERSION
    return encode_varint(len(header)) + header


def car_section(cid: CidParts, block: bytes) -> bytes:
    """One block of a CAR file."""
    binary = cid.binary
    return encode_varint(len(binary) + len(block)) + binary + block


def read_car(stream: IO[bytes]) -> tuple[tuple[CidParts, ...], Iterator[tuple[CidParts, bytes]]]:
    """The roots of a CAR file, and its blocks, each checked against its CID as it is read.

    Raises `Integrity` for anything but a CARv1 file of sha2-256 blocks: for the header before it returns, for a block
    when it is read.
    """
    header = _read_led(stream, _HEADER_LENGTH_MAX)
    try:
        roots = _decode_header(header or b"")
    except ValueError as error:
        raise Integrity(f"not a CARv1 file: {error}") from error
    return roots, _sections(stream)


def _sections(stream: IO[bytes]) -> Iterator[tuple[CidParts, bytes]]:
    while (section := _read_led(stream, _SECTION_LENGTH_MAX)) is not None:
        try:
            cid, at = decode_cid_bytes(section)
        except ValueError as error:
            raise Integrity(f"a CAR file holds a malformed CID: {error}") from error
        if not cid.is_sha2_256:
            raise Integrity("a CAR file holds a block of another hash than sha2-256")
        block = section[at:]
        if len(block) > BLOCK_SIZE_MAX:
            raise Integrity("a CAR file holds a block that is too large")
        yield cid, check_block(cid.digest, block)


def _read_led(stream: IO[bytes], limit: int) -> bytes | None:
    """The bytes after the next length; None at the regular end of the file."""
    lead = b""
    while not lead or lead[-1] & CONTINUES:
        byte = stream.read(1)
        if not byte and not lead:
            return None
        if not byte or len(lead) == VARINT_BYTES_MAX:
            raise Integrity("a CAR file is cut short")
        lead += byte
    try:
        length, _ = decode_varint(lead)
    except ValueError as error:
        raise Integrity(f"a CAR file is malformed: {error}") from error
    if not 0 < length <= limit:
        raise Integrity(f"a CAR file holds a section of {length} bytes")
    return _read_exactly(stream, length)


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    gathered = io.BytesIO()
    while (missing := length - gathered.tell()) > 0:
        piece = stream.read(missing)
        if not piece:
            raise Integrity("a CAR file is cut short")
        gathered.write(piece)
    return gathered.getvalue()


def _decode_header(header: bytes) -> tuple[CidParts, ...]:
    start = len(_ROOTS)
    count = header[start] - _ARRAY if header.startswith(_ROOTS) and len(header) > start else -1
    if not 0 <= count <= ROOTS_MAX:
        raise ValueError("its header is not a map of roots and version")
    roots: list[CidParts] = []
    at = start + 1
    for _ in range(count):
        body, at = _cbor_cid(header, at)
        root, end = decode_cid_bytes(body)
        if end != len(body):
            raise ValueError("something follows the CID of a root")
        roots.append(root)
    if header[at:] != _VERSION:
        raise ValueError("its version is not 1")
    return tuple(roots)


def _cbor_cid(header: bytes, at: int) -> tuple[bytes, int]:
    """The binary CID in the tagged byte string at `at`, and the position after it."""
    tag_end = at + len(_CID_TAG)
    if header[at:tag_end] != _CID_TAG or len(header) < tag_end + 2:
        raise ValueError("a root is not a CID")
    length, start = header[tag_end] - _BYTES, tag_end + 1
    if header[tag_end] == _BYTES_ONE_LENGTH:
        length, start = header[start], start + 1
    body = header[start : start + max(length, 0)]
    if header[tag_end:start] + body != _cbor_bytes(body) or len(body) != length or not body.startswith(b"\x00"):
        raise ValueError("a root is not a CID")
    return body[1:], start + length


def _cbor_bytes(data: bytes) -> bytes:
    """A CBOR byte string (RFC 8949 section 3.1, major type 2) of fewer than 256 bytes."""
    length = len(data)
    head = bytes((_BYTES + length,)) if length < _SHORT else bytes((_BYTES_ONE_LENGTH, length))
    return head + data
