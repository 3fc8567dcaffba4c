"""Appends entries to a tree, and computes the tiles, the bundle and the root."""

from __future__ import annotations

import gzip
from typing import NamedTuple

import msgspec

from muniment.protocol.log.tiles import ENTRIES, WIDTH, full_tile_hash, hashes_from, join_entries
from muniment.protocol.log.tree import leaf_hash, root_hash


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
    changed = [StoredTile(ENTRIES, n, gzip.compress(join_entries(tail), mtime=0)), StoredTile(0, n, full)]
    while True:
        level, place = level + 1, n % WIDTH
        grown = tiles.pop(level, b"") + full_tile_hash(full)
        changed.append(StoredTile(level, n // WIDTH, grown))
        if place < WIDTH - 1:
            tiles[level] = grown
            return Grown(Edge(size, (), tiles), changed)
        n, full = n // WIDTH, grown
