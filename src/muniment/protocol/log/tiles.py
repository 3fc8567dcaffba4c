"""Tiles and bundles of entries: the pieces in which a log is stored and served (c2sp.org/tlog-tiles 0.1.0).

Entries that are appended to a tree make tiles, a bundle and a root.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from muniment.protocol.log.fields import HASH_BYTES, SIZE_MAX
from muniment.protocol.log.tree import Node, StoredHash, complete_hash, leaf_hash, root_hash

# A tile spans eight levels of the tree: 256 hashes.
HEIGHT: Final = 8
WIDTH: Final = 1 << HEIGHT
# The level of a bundle of entries, which lies below the hashes of its leaves.
ENTRIES: Final = -1
# Entries have a length of 16 bits.
ENTRY_BYTES_MAX: Final = 0xFFFF
BUNDLE_BYTES_MAX: Final = WIDTH * (2 + ENTRY_BYTES_MAX)
# Tiles of level 7 have hashes of level 56: the tree of 2^63 leaves has 128 of these. No level above is ever filled.
_LEVEL_MAX: Final = 7
_LENGTH_BYTES: Final = 2
# Of a compressed bundle, unpacked together: some twenty entries.
_PACKED_PIECE_BYTES: Final = 4 * 1024
# `wbits` of zlib for the format of gzip (RFC 1952).
_GZIP: Final = 31
# Most of an entry is hex digits of hashes and signatures. Of a bundle of 110 KB, level 1 leaves 40 KB and takes 3 µs
# for each entry; level 9 leaves 38 KB and takes 9 µs.
_GZIP_LEVEL: Final = 1

# Seven groups of digits: a number below 2^63 has at most 19 digits.
PATH_PATTERN: Final = r"(entries|0|[1-9][0-9]?)/((?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?"
_PATH: Final = re.compile(PATH_PATTERN, re.ASCII)


class Tile(NamedTuple):
    """A tile, or a bundle where `level` is `ENTRIES`: its number `n` within the level, and how much of it there is."""

    level: int
    n: int
    width: int = WIDTH

    @property
    def path(self) -> str:
        """The path below `tile/`: `0/x001/x234/067.p/44`."""
        digits = str(self.n)
        digits = digits.zfill(-(-len(digits) // 3) * 3)
        parts = [digits[at : at + 3] for at in range(0, len(digits), 3)]
        level = "entries" if self.level == ENTRIES else str(self.level)
        partial = "" if self.width == WIDTH else f".p/{self.width}"
        return f"{level}/{'/'.join(['x' + part for part in parts[:-1]] + parts[-1:])}{partial}"

    @property
    def full(self) -> Tile:
        """The full tile of which this is the beginning."""
        return Tile(self.level, self.n)


def parse_path(path: str) -> Tile:
    """The tile with this path, which begins with its level. Each tile has one path. Raises `ValueError`."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise ValueError("a tile has a path such as 0/x001/234 or entries/067.p/44")
    level, n, width = match.groups()
    tile = Tile(
        ENTRIES if level == "entries" else int(level), int(n.replace("x", "").replace("/", "")), int(width or WIDTH)
    )
    if tile.path != path or tile.width > WIDTH:  # leading groups of zeros, or a partial tile of 256 and more
        raise ValueError("a tile has one path only, without leading x000 and with a partial width below 256")
    if tile.level > _LEVEL_MAX or tile.n << (HEIGHT * (max(tile.level, 0) + 1)) > SIZE_MAX:
        raise ValueError("a tile lies beyond the largest tree, which has 2^63 - 1 leaves")
    return tile


def width_at(level: int, n: int, size: int) -> int:
    """How many hashes, or entries, tile `n` of this level has in the tree of `size` leaves: 0 to 256."""
    return min(max((size >> (HEIGHT * max(level, 0))) - n * WIDTH, 0), WIDTH)


def tile_with(node: Node) -> tuple[int, int]:
    """The level and the number of the tile with the hash of a node, or with the hashes from which it is computed."""
    level = node.level // HEIGHT
    return level, node.n >> (HEIGHT - node.level % HEIGHT)


def tiles_for(nodes: Iterable[Node], size: int) -> list[Tile]:
    """The tiles with the hashes of these nodes, as the tree of `size` leaves has them, in their order."""
    return [Tile(level, n, width_at(level, n, size)) for level, n in sorted({tile_with(node) for node in nodes})]


def hashes_from(tile: Callable[[int, int], bytes]) -> StoredHash:
    """The hashes of nodes from tiles, which `tile` gives by level and number.

    The returned function raises `ValueError` for a tile that lacks the node.
    """

    def stored(node: Node) -> bytes:
        level, n = tile_with(node)
        count = 1 << node.level % HEIGHT
        start = (node.n * count) % WIDTH
        data = tile(level, n)[HASH_BYTES * start : HASH_BYTES * (start + count)]
        if len(data) != HASH_BYTES * count:
            raise ValueError(f"tile {Tile(level, n).path} is too short")
        return complete_hash(split_hashes(data))

    return stored


def split_hashes(data: bytes) -> list[bytes]:
    """The hashes of a tile. Raises `ValueError` for a length that no tile has."""
    if len(data) % HASH_BYTES or len(data) > HASH_BYTES * WIDTH:
        raise ValueError("a tile has 1 to 256 hashes of 32 bytes")
    return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]


def full_tile_hash(data: bytes) -> bytes:
    """The hash of a full tile, which stands in the tile of the level above. Raises `ValueError`."""
    if len(data) != HASH_BYTES * WIDTH:
        raise ValueError("a full tile has 256 hashes of 32 bytes")
    return complete_hash(split_hashes(data))


def join_entries(entries: Iterable[bytes]) -> bytes:
    """A bundle: each entry after its length of 16 bits, big-endian. Raises `ValueError` for too long an entry."""
    parts = list[bytes]()
    for entry in entries:
        if len(entry) > ENTRY_BYTES_MAX:
            raise ValueError(f"an entry has at most {ENTRY_BYTES_MAX} bytes")
        parts += [len(entry).to_bytes(_LENGTH_BYTES), entry]
    return b"".join(parts)


def unpacked(bundle: bytes) -> bytes:
    """The bytes of a bundle that is compressed by gzip, and is no larger than a bundle can be. Raises `ValueError`."""
    stream = zlib.decompressobj(_GZIP)
    try:
        data = stream.decompress(bundle, BUNDLE_BYTES_MAX)
    except zlib.error:
        raise ValueError("a bundle of entries is damaged") from None
    if not stream.eof or stream.unused_data:
        raise ValueError("a bundle of entries is damaged, or too large")
    return data


def first_entries(bundle: bytes, width: int) -> bytes:
    """The first `width` entries of a bundle that is compressed by gzip, as a bundle. It is unpacked no further.

    Raises `ValueError`.
    """
    stream, data, at, left = zlib.decompressobj(_GZIP), bytearray(), 0, width
    for start in range(0, len(bundle), _PACKED_PIECE_BYTES):
        try:
            data += stream.decompress(bundle[start : start + _PACKED_PIECE_BYTES])
        except zlib.error:
            raise ValueError("a bundle of entries is damaged") from None
        while left and len(data) >= at + _LENGTH_BYTES:
            end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES])
            if len(data) < end:
                break
            at, left = end, left - 1
        if not left:
            return bytes(data[:at])
    raise ValueError("a bundle of entries is cut short")


def split_entries(bundle: bytes, width: int = WIDTH) -> Sequence[bytes]:
    """The entries of a bundle that has exactly `width` of them. Raises `ValueError`."""
    entries, at = list[bytes](), 0
    while at < len(bundle) and len(entries) < width:
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(bundle[at:start])
        if at > len(bundle) or start > len(bundle):
            raise ValueError("a bundle of entries is cut short")
        entries.append(bundle[start:at])
    if len(entries) != width or at != len(bundle):
        raise ValueError(f"a bundle does not have {width} entries")
    return entries


class StoredTile(NamedTuple):
    """A stored tile or bundle. Bundles (compressed) and tiles of level 0 are stored when they are full."""

    level: int
    n: int
    data: bytes


class Edge(msgspec.Struct, frozen=True):
    """The part of a tree that the next entries change: the entries after its last full bundle, and the partial tiles.

    `tiles` has the last tile of each level from 1 on that has a hash and is not full.
    """

    size: int
    tail: tuple[bytes, ...]
    tiles: dict[int, bytes]

    @property
    def room(self) -> int:
        """Entries that fit into the current bundle: a batch ends with it."""
        return WIDTH - len(self.tail)

    @property
    def root(self) -> bytes:
        """The root of the tree. Raises `KeyError` or `ValueError` for an edge that lacks a tile or a hash."""
        leaves = b"".join(map(leaf_hash, self.tail))
        return root_hash(self.size, hashes_from(lambda level, _: self.tiles[level] if level else leaves))


class Grown(NamedTuple):
    """A tree after new entries, and the tiles to store: new ones and those with more hashes."""

    edge: Edge
    tiles: list[StoredTile]


EMPTY = Edge(0, (), {})


def grow(edge: Edge, entries: list[bytes]) -> Grown:
    """The tree with `entries` appended to `edge`. Raises `ValueError` for more than `edge.room` of them."""
    if len(entries) > edge.room:
        raise ValueError("a batch ends with its bundle")
    size, tail, tiles = edge.size + len(entries), (*edge.tail, *entries), dict(edge.tiles)
    if len(tail) < WIDTH:
        return Grown(Edge(size, tail, tiles), [])
    n, level = size // WIDTH - 1, 0
    full = b"".join(map(leaf_hash, tail))
    changed = [StoredTile(ENTRIES, n, gzip.compress(join_entries(tail), _GZIP_LEVEL, mtime=0)), StoredTile(0, n, full)]
    while True:
        level, place = level + 1, n % WIDTH
        grown = tiles.pop(level, b"") + full_tile_hash(full)
        changed.append(StoredTile(level, n // WIDTH, grown))
        if place < WIDTH - 1:
            tiles[level] = grown
            return Grown(Edge(size, (), tiles), changed)
        n, full = n // WIDTH, grown
