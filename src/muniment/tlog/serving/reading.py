"""What a signed tree has: hashes and entries as they are stored, cut at the size of the last checkpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.errors import LogPartNotFound
from muniment.tlog.fields import HASH_BYTES
from muniment.tlog.notes import parse_note
from muniment.tlog.proofs import Proof
from muniment.tlog.sequencing import store
from muniment.tlog.tiles import ENTRIES, WIDTH, Tile, first_entries, hashes_from, join_entries, tiles_for, width_at
from muniment.tlog.tree import hashes_of, inclusion_ranges, leaf_hash, nodes_of

if TYPE_CHECKING:
    from muniment.storage.database import Reader
    from muniment.tlog.sequencing.store import Epoch
    from muniment.tlog.serving.tail import Tail

# Bytes of stored rows, read and perhaps hashed, for one unit; the same that were unpacked. To unpack, a thread is used.
_READ_PER_UNIT: Final = 16 * 1024
_UNPACKED_PER_UNIT: Final = 4 * 1024
_THREAD_UNITS: Final = 12
# Entries of the tail, a row each, for one unit.
_ROWS_PER_UNIT: Final = 16


class Part(NamedTuple):
    """A tile or a bundle as it is sent; `is_compressed`: by gzip. `units` are due for what was read for it."""

    data: bytes
    units: int
    is_compressed: bool = False


async def read_part(database: Reader, tail: Tail, epoch: Epoch, tile: Tile) -> Part:
    """A tile, or a bundle of entries. Raises `LogPartNotFound` for what the signed tree does not have."""
    signed = width_at(tile.level, tile.n, epoch.note_size)
    if tile.width > signed:
        raise LogPartNotFound(f"the signed tree has {epoch.note_size} leaves, and does not reach to this tile")
    if tile.level != ENTRIES:
        hashes, read = await _hashes(database, tail, epoch, tile.level, tile.n)
        return Part(hashes[: HASH_BYTES * tile.width], read // _READ_PER_UNIT)
    if signed < WIDTH:
        entries = await store.read_tail(database, epoch.epoch, tile.n * WIDTH, tile.width)
        if len(entries) == tile.width:
            data = join_entries(entries)
            return Part(data, len(entries) // _ROWS_PER_UNIT + len(data) // _READ_PER_UNIT)
    stored = await store.read_tile(database, epoch.epoch, ENTRIES, tile.n)
    units = len(stored) // _READ_PER_UNIT
    if tile.width == WIDTH:
        return Part(stored, units, is_compressed=True)
    data = await asyncio.to_thread(first_entries, stored, tile.width)
    return Part(data, units + _THREAD_UNITS + len(data) // _UNPACKED_PER_UNIT)


async def read_proof(database: Reader, tail: Tail, epoch: Epoch, note: str, index: int, entry: bytes) -> Proof:
    """The proof that `entry` is the leaf `index` of the tree that `note` signs.

    Raises `ValueError` when another entry stands there.
    """
    ranges = inclusion_ranges(index, epoch.note_size)
    tiles = {
        (tile.level, tile.n): (await _hashes(database, tail, epoch, tile.level, tile.n))[0]
        for tile in [*tiles_for(nodes_of(ranges), epoch.note_size), Tile(0, index // WIDTH)]
    }
    at = HASH_BYTES * (index % WIDTH)
    if tiles[0, index // WIDTH][at : at + HASH_BYTES] != leaf_hash(entry):
        raise ValueError(f"the log has another entry at index {index}")
    hashes = hashes_of(ranges, hashes_from(lambda level, n: tiles[level, n]))
    return Proof(index, tuple(hashes), parse_note(note.encode()), entry)


async def _hashes(database: Reader, tail: Tail, epoch: Epoch, level: int, n: int) -> tuple[bytes, int]:
    """The hashes of a tile, at least those that the signed tree has; and the bytes that were read for them."""
    if not level and width_at(level, n, epoch.note_size) < WIDTH:
        found = await tail.hashes(database, epoch, n)
        if found is not None:
            return found
    stored = await store.read_tile(database, epoch.epoch, level, n)
    return stored, len(stored)
