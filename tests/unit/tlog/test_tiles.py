"""Tiles and bundles: their paths, their contents, and hashes that are read from them."""

from __future__ import annotations

import gzip
import hashlib
import random
import re

import pytest
from hypothesis import given, strategies as st
from tlog_trees import entries, vectors

from each_row import each_row
from muniment.protocol.log.fields import SIZE_MAX
from muniment.protocol.log.tiles import (
    BUNDLE_BYTES_MAX,
    ENTRIES,
    ENTRY_BYTES_MAX,
    WIDTH,
    Tile,
    first_entries,
    full_tile_hash,
    hashes_from,
    join_entries,
    parse_path,
    split_entries,
    split_hashes,
    tiles_for,
    width_at,
)
from muniment.protocol.log.tree import (
    Node,
    check_inclusion,
    hashes_of,
    inclusion_ranges,
    leaf_hash,
    nodes_of,
    root_hash,
)

SUNLIGHT = vectors("sunlight")
# From the specification, sections "Merkle Tree" and "Partial Tiles".
PATHS = {
    "0/x001/x234/067": Tile(0, 1234067), "63/000": None, "7/000.p/127": Tile(7, 0, 127), "1/000.p/1": Tile(1, 0, 1),
    "entries/x001/x234/067.p/44": Tile(ENTRIES, 1234067, 44), "entries/000": Tile(ENTRIES, 0),
}  # fmt: skip
NO_PATHS = (
    "", "0", "0/", "0/0", "0/00", "0/0000", "/000", "00/000", "0/x000/001", "0/001/002", "0/x001", "0/x001/x002",
    "0/000.p/0", "0/000.p/256", "0/000.p/257", "0/000.p/999",
    "0/000.p/01", "0/000.p/", "0/000.p", "0/000.p/1/", "-1/000", "+1/000", "64/000",
    "0/٠٠٠", "0/000\n", " 0/000", "data/000", "0/x999/x999/x999/x999/x999/x999/999", "8/000",
    "0/" + "x001/" * 5000 + "001",
)  # fmt: skip


def tiles_of(leaves: list[bytes]) -> dict[tuple[int, int], bytes]:
    """The tiles of a tree, made level by level as the specification defines them."""
    found, level, hashes = dict[tuple[int, int], bytes](), 0, [leaf_hash(each) for each in leaves]
    while hashes:
        pieces = [hashes[at : at + WIDTH] for at in range(0, len(hashes), WIDTH)]
        found.update({(level, n): b"".join(piece) for n, piece in enumerate(pieces)})
        hashes = [full_tile_hash(b"".join(piece)) for piece in pieces if len(piece) == WIDTH]
        level += 1
    return found


@each_row(("path", "tile"), PATHS.items())
def test_a_tile_has_the_path_of_the_specification(path: str, tile: Tile | None) -> None:
    if tile is not None:
        assert (tile.path, parse_path(path)) == (path, tile)
        return
    with pytest.raises(ValueError, match="beyond the largest tree"):  # no tree has hashes so high
        parse_path(path)


@given(st.integers(-1, 7), st.integers(0, SIZE_MAX), st.integers(1, WIDTH))
def test_a_path_is_read_as_the_tile_it_was_made_of(level: int, leaf: int, width: int) -> None:
    tile = Tile(level, leaf >> 8 * (max(level, 0) + 1), width)
    assert parse_path(tile.path) == tile
    assert parse_path(tile.full.path) == Tile(tile.level, tile.n)


@each_row("path", NO_PATHS)
def test_any_other_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="a tile "):
        parse_path(path)


def test_a_tree_of_70000_leaves_has_the_tiles_of_the_specification() -> None:
    assert [width_at(level, n, 70_000) for level, n in ((0, 273), (1, 0), (1, 1), (2, 0))] == [112, 256, 17, 1]
    assert [width_at(0, n, 70_000) for n in (272, 273, 274)] == [256, 112, 0]
    assert [width_at(ENTRIES, n, 300) for n in (0, 1, 2)] == [256, 44, 0]


def test_tiles_have_the_bytes_of_another_implementation() -> None:
    tiles = tiles_of(entries(300))
    found = {Tile(*at, len(data) // 32).path: hashlib.sha256(data).hexdigest() for at, data in tiles.items()}
    assert found == SUNLIGHT["tiles"]


@given(st.integers(1, 900), st.data())
def test_hashes_are_read_from_the_tiles_that_are_asked_for(size: int, data: st.DataObject) -> None:
    tiles = tiles_of(entries(size))
    read = hashes_from(lambda level, n: tiles[level, n])
    index = data.draw(st.integers(0, size - 1))
    due = inclusion_ranges(index, size)
    wanted = tiles_for(nodes_of(due), size)
    only = {(tile.level, tile.n): tiles[tile.level, tile.n][: 32 * tile.width] for tile in wanted}
    proof = hashes_of(due, hashes_from(lambda level, n: only[level, n]))
    check_inclusion(leaf_hash(entries(size)[index]), index, size, root_hash(size, read), proof)


def test_a_short_tile_has_not_the_hash_of_a_node() -> None:
    read = hashes_from(lambda _level, _n: bytes(32 * 3))
    assert len(read(Node(1, 0))) == 32
    with pytest.raises(ValueError, match=re.escape("tile 0/000 is too short")):
        read(Node(1, 1))


@given(st.lists(st.binary(max_size=300), max_size=10))
def test_entries_are_read_from_the_bundle_they_were_joined_to(given_: list[bytes]) -> None:
    bundle = join_entries(given_)
    assert split_entries(bundle, len(given_)) == given_
    for broken, width in (
        (bundle, len(given_) + 1),
        (bundle + b"\0", len(given_)),
        (bundle + b"\0\1", len(given_) + 1),
    ):
        with pytest.raises(ValueError, match="a bundle "):
            split_entries(broken, width)
    if given_:
        with pytest.raises(ValueError, match="a bundle "):
            split_entries(bundle[:-1], len(given_))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=10), st.integers(1, 10))
def test_the_first_entries_of_a_compressed_bundle_are_a_bundle(given_: list[bytes], width: int) -> None:
    packed = gzip.compress(join_entries(given_))
    if width <= len(given_):
        assert first_entries(packed, width) == join_entries(given_[:width])
    for broken, wanted in ((packed, len(given_) + 1), (b"x" + packed, 1), (packed[:11], 1)):
        with pytest.raises(ValueError, match="a bundle of entries"):
            first_entries(broken, wanted)


def test_a_bundle_is_unpacked_no_further_than_its_first_entries() -> None:
    """Most of it is missing, and nobody gets there."""
    packed = gzip.compress(join_entries([random.Random(n).randbytes(1_000) for n in range(WIDTH)]))
    beginning = packed[:8_000]
    assert first_entries(beginning, 5) == first_entries(packed, 5)
    with pytest.raises(ValueError, match="a bundle of entries is cut short"):
        first_entries(beginning, WIDTH - 1)


def test_an_entry_of_a_bundle_has_at_most_65535_bytes() -> None:
    assert split_entries(join_entries([bytes(ENTRY_BYTES_MAX)] * WIDTH)) == [bytes(ENTRY_BYTES_MAX)] * WIDTH
    assert len(join_entries([bytes(ENTRY_BYTES_MAX)] * WIDTH)) == BUNDLE_BYTES_MAX
    with pytest.raises(ValueError, match="at most 65535 bytes"):
        join_entries([bytes(ENTRY_BYTES_MAX + 1)])


@each_row("data", [bytes(31), bytes(32 * 257)])
def test_a_tile_of_another_length_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="1 to 256 hashes"):
        split_hashes(data)
    with pytest.raises(ValueError, match="256 hashes of 32 bytes"):
        full_tile_hash(data)
