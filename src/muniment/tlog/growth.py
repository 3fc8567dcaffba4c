"""How a tree grows: new entries, and the tiles, the bundle and the root that they make."""

from __future__ import annotations

import gzip
from typing import NamedTuple

import msgspec

from muniment.tlog.tiles import ENTRIES, WIDTH, full_tile_hash, hashes_from, join_entries
from muniment.tlog.tree import leaf_hash, root_hash


class StoredTile(NamedTuple):
    """A tile or a bundle as it is stored: bundles are full and compressed, and so are tiles of level 0 full."""

    level: int
    n: int
    data: bytes


class Edge(msgspec.Struct, frozen=True):
    """What the next entries need of a tree: the entries behind its last full bundle, and the tiles that are not full.

    `tiles` has the last tile of each level from 1 on that has a hash and is not full.
    """

    size: int
    tail: tuple[bytes, ...]
    tiles: dict[int, bytes]

    @property
    def room(self) -> int:
        """How many entries fit into the bundle: a batch ends with it."""
        return WIDTH - len(self.tail)

    @property
    def root(self) -> bytes:
        """The root of the tree. Raises `KeyError` or `ValueError` for an edge that lacks a tile or a hash."""
        leaves = b"".join(map(leaf_hash, self.tail))
        return root_hash(self.size, hashes_from(lambda level, _: self.tiles[level] if level else leaves))


class Grown(NamedTuple):
    """A tree after new entries, and what is to be stored: `tiles` are new, or have more hashes than before."""

    edge: Edge
    tiles: list[StoredTile]


EMPTY = Edge(0, (), {})


def grow(edge: Edge, entries: list[bytes]) -> Grown:
    """The tree with `entries` behind `edge`. Raises `ValueError` for more than `edge.room` of them."""
    if len(entries) > edge.room:
        raise ValueError("a batch ends with its bundle")
    size, tail, tiles = edge.size + len(entries), (*edge.tail, *entries), dict(edge.tiles)
    if len(tail) < WIDTH:
        return Grown(Edge(size, tail, tiles), [])
    n, level = size // WIDTH - 1, 0
    full = b"".join(map(leaf_hash, tail))
    changed = [StoredTile(ENTRIES, n, gzip.compress(join_entries(tail), mtime=0)), StoredTile(0, n, full)]
    while True:
        level, place = level + 1, n % WIDTH
        grown = tiles.pop(level, b"") + full_tile_hash(full)
        changed.append(StoredTile(level, n // WIDTH, grown))
        if place < WIDTH - 1:
            tiles[level] = grown
            return Grown(Edge(size, (), tiles), changed)
        n, full = n // WIDTH, grown
