"""What a signed tree has: hashes and entries as they are stored, cut at the size of the last checkpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from muniment.errors import LogPartNotFound
from muniment.tlog.fields import HASH_BYTES
from muniment.tlog.notes import parse_note
from muniment.tlog.proofs import Proof
from muniment.tlog.sequencing import store
from muniment.tlog.tiles import (
    ENTRIES,
    WIDTH,
    Tile,
    hashes_from,
    join_entries,
    split_entries,
    tiles_for,
    unpacked,
    width_at,
)
from muniment.tlog.tree import hashes_of, inclusion_ranges, leaf_hash, nodes_of

if TYPE_CHECKING:
    from muniment.storage.database import Reader
    from muniment.tlog.sequencing.store import Epoch


class Part(NamedTuple):
    """A tile or a bundle as it is sent; `is_compressed`: by gzip."""

    data: bytes
    is_compressed: bool = False


async def read_part(database: Reader, epoch: Epoch, tile: Tile) -> Part:
    """A tile, or a bundle of entries. Raises `LogPartNotFound` for what the signed tree does not have."""
    if tile.width > width_at(tile.level, tile.n, epoch.note_size):
        raise LogPartNotFound(f"the signed tree has {epoch.note_size} leaves, and does not reach to this tile")
    if tile.level != ENTRIES:
        return Part((await _hashes(database, epoch, tile.level, tile.n))[: HASH_BYTES * tile.width])
    stored = await _stored(database, epoch, ENTRIES, tile.n)
    if isinstance(stored, list):
        return Part(join_entries(stored[: tile.width]))
    if tile.width == WIDTH:
        return Part(stored, is_compressed=True)
    return Part(await asyncio.to_thread(_beginning, stored, tile.width))


async def read_proof(database: Reader, epoch: Epoch, note: str, index: int, entry: bytes) -> Proof:
    """The proof that `entry` is the leaf `index` of the tree that `note` signs.

    Raises `ValueError` when another entry stands there.
    """
    ranges = inclusion_ranges(index, epoch.note_size)
    tiles = {
        (tile.level, tile.n): await _hashes(database, epoch, tile.level, tile.n)
        for tile in [*tiles_for(nodes_of(ranges), epoch.note_size), Tile(0, index // WIDTH)]
    }
    at = HASH_BYTES * (index % WIDTH)
    if tiles[0, index // WIDTH][at : at + HASH_BYTES] != leaf_hash(entry):
        raise ValueError(f"the log has another entry at index {index}")
    hashes = hashes_of(ranges, hashes_from(lambda level, n: tiles[level, n]))
    return Proof(index, tuple(hashes), parse_note(note.encode()), entry)


async def _hashes(database: Reader, epoch: Epoch, level: int, n: int) -> bytes:
    """The hashes of a tile: at least those that the signed tree has."""
    stored = await _stored(database, epoch, level, n)
    return b"".join(map(leaf_hash, stored)) if isinstance(stored, list) else stored


async def _stored(database: Reader, epoch: Epoch, level: int, n: int) -> bytes | list[bytes]:
    """A stored tile or bundle; the entries themselves where these are not full yet."""
    if (data := await store.find_tile(database, epoch.epoch, level, n)) is not None:
        return data
    if level <= 0 and (entries := await store.read_tail(database, epoch.epoch, n * WIDTH)):
        return entries
    return await store.read_tile(database, epoch.epoch, level, n)  # it was filled meanwhile


def _beginning(bundle: bytes, width: int) -> bytes:
    return join_entries(split_entries(unpacked(bundle))[:width])
