"""dag-pb (ipld.io/specs/codecs/dag-pb): nodes with named links, of which files and directories consist.

The CID depends on the order of fields: all links (field 2) come before the data (field 1), and a link has its name and
its size even when they are empty or 0. A plain protobuf serialiser gets both wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from muniment.protocol.errors import Integrity
from muniment.protocol.ipfs.cid import CidParts, decode_cid_bytes
from muniment.protocol.ipfs.varint import decode_varint, encode_varint

# Protobuf tags: field number and wire type (0: a varint, 2: bytes with their length).
_NODE_LINKS: Final = 0x12
_NODE_DATA: Final = 0x0A
_LINK_HASH: Final = 0x0A
_LINK_NAME: Final = 0x12
_LINK_TSIZE: Final = 0x18
_WIRE_TYPE: Final = 0x07
_VARINT: Final = 0
_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another block. `tsize` is the total size in bytes of its blocks; repeated blocks count each time."""

    cid: CidParts
    tsize: int
    name: bytes = b""


@dataclass(frozen=True, slots=True)
class Node:
    """A dag-pb node; `data` is None if the field is absent."""

    links: tuple[Link, ...]
    data: bytes | None


def encode_node(links: Iterable[Link], data: bytes) -> bytes:
    """The bytes of a node with these links in this order."""
    parts: list[bytes] = []
    for link in links:
        body = _encode_link(link)
        parts += (b"\x12", encode_varint(len(body)), body)
    parts += (b"\x0a", encode_varint(len(data)), data)
    return b"".join(parts)


def decode_node(block: bytes) -> Node:
    """Read a node strictly; raises `Integrity` for all other bytes, also for fields out of order."""
    try:
        return _decode_node(block)
    except ValueError as error:
        raise Integrity(f"a stored block is not a dag-pb node: {error}") from error


def decode_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message as (tag, value); raises `ValueError` when it is malformed."""
    at = 0
    while at < len(message):
        tag, at = decode_varint(message, at)
        value, at = decode_varint(message, at)
        if tag & _WIRE_TYPE == _VARINT:
            yield tag, value
        elif tag & _WIRE_TYPE == _BYTES:
            start, at = at, at + value
            if at > len(message):
                raise ValueError("a field is cut short")
            yield tag, message[start:at]
        else:
            raise ValueError("a field has a wire type that is not used here")


def _encode_link(link: Link) -> bytes:
    binary = link.cid.binary
    return b"".join((
        b"\x0a", encode_varint(len(binary)), binary,
        b"\x12", encode_varint(len(link.name)), link.name,
        b"\x18", encode_varint(link.tsize),
    ))  # fmt: skip


def _decode_node(block: bytes) -> Node:
    links: list[Link] = []
    data: bytes | None = None
    for tag, value in decode_fields(block):
        if data is not None:
            raise ValueError("a field follows the data")
        if tag == _NODE_LINKS and isinstance(value, bytes):
            links.append(_decode_link(value))
        elif tag == _NODE_DATA and isinstance(value, bytes):
            data = value
        else:
            raise ValueError(f"a node has no field with the tag {tag:#x}")
    return Node(tuple(links), data)


def _decode_link(message: bytes) -> Link:
    cid: CidParts | None = None
    name, tsize, last = b"", 0, 0
    for tag, value in decode_fields(message):
        if tag <= last:
            raise ValueError("the fields of a link are repeated or out of order")
        last = tag
        if tag == _LINK_HASH and isinstance(value, bytes):
            cid, end = decode_cid_bytes(value)
            if end != len(value):
                raise ValueError("something follows the CID of a link")
        elif tag == _LINK_NAME and isinstance(value, bytes):
            name = value
        elif tag == _LINK_TSIZE and isinstance(value, int):
            tsize = value
        else:
            raise ValueError(f"a link has no field with the tag {tag:#x}")
    if cid is None:
        raise ValueError("a link has no CID")
    return Link(cid, tsize, name)
