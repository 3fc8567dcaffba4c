"""How a stored tree grows, batch by batch: the tiles and the root are those of the whole tree."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, strategies as st
from test_tiles import tiles_of
from tlog_trees import entries, naive_root

from each_row import each_row
from muniment.protocol.log.tiles import EMPTY, ENTRIES, WIDTH, Edge, grow, split_entries
from muniment.protocol.log.tree import EMPTY_ROOT


def grown(leaves: list[bytes], sizes: list[int]) -> tuple[Edge, dict[tuple[int, int], bytes]]:
    """The edge and the stored tiles after batches of these sizes, cut at the ends of bundles."""
    edge, stored = EMPTY, dict[tuple[int, int], bytes]()
    while edge.size < len(leaves):
        size = min(sizes[edge.size % len(sizes)], edge.room, len(leaves) - edge.size)
        edge, tiles = grow(edge, leaves[edge.size : edge.size + size])
        stored |= {(tile.level, tile.n): tile.data for tile in tiles}
    return edge, stored


def check(leaves: list[bytes], edge: Edge, stored: dict[tuple[int, int], bytes]) -> None:
    due = {at: data for at, data in tiles_of(leaves).items() if at[0] or len(data) == 32 * WIDTH}
    assert {at: data for at, data in stored.items() if at[0] != ENTRIES} == due
    bundles = [data for (level, _), data in sorted(stored.items()) if level == ENTRIES]
    full = [entry for bundle in bundles for entry in split_entries(gzip.decompress(bundle))]
    assert [*full, *edge.tail] == leaves


@given(st.integers(0, 800), st.lists(st.integers(1, WIDTH), min_size=1, max_size=5))
def test_batches_of_any_size_make_the_tree_of_all_entries(size: int, sizes: list[int]) -> None:
    leaves = entries(size)
    edge, stored = grown(leaves, sizes)
    check(leaves, edge, stored)
    assert (edge.size, edge.root) == (size, naive_root(leaves) if size else EMPTY_ROOT)
    assert edge.room == WIDTH - size % WIDTH


@each_row("size", [WIDTH * WIDTH - 1, WIDTH * WIDTH, WIDTH * WIDTH + WIDTH + 1])
def test_a_tile_of_the_second_level_grows_when_one_of_the_first_is_full(size: int) -> None:
    leaves = entries(size)
    edge, stored = grown(leaves, [WIDTH])
    check(leaves, edge, stored)
    assert set(edge.tiles) == ({1} if size < WIDTH * WIDTH else {2} if size == WIDTH * WIDTH else {1, 2})
    assert edge.root == naive_root(leaves)


def test_a_batch_does_not_go_beyond_its_bundle() -> None:
    with pytest.raises(ValueError, match="a batch ends with its bundle"):
        grow(grow(EMPTY, [b"a"]).edge, [b"b"] * WIDTH)
