"""Tiles, entries and proofs of the signed tree: stored rows, cut at the size of the last checkpoint."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from muniment.protocol.errors import LogPartNotFound
from muniment.protocol.log.checkpoints import Proof
from muniment.protocol.log.fields import HASH_BYTES
from muniment.protocol.log.notes import parse_note
from muniment.protocol.log.tiles import (
    ENTRIES,
    WIDTH,
    Tile,
    first_entries,
    hashes_from,
    join_entries,
    tiles_for,
    width_at,
)
from muniment.protocol.log.tree import hashes_of, inclusion_ranges, leaf_hash, nodes_of
from muniment.service.resources.log import store

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.service.http.request import Request
    from muniment.service.resources.log.store import Epoch
    from muniment.service.storage.database import Reader


# Bytes of stored rows, read and perhaps hashed, for one unit; the same that were unpacked. To unpack, a thread is used.
_READ_PER_UNIT: Final = 16 * 1024
_UNPACKED_PER_UNIT: Final = 4 * 1024
_THREAD_UNITS: Final = 12
# Entries of the tail, a row each, for one unit.
_ROWS_PER_UNIT: Final = 16


# Entries that are in memory at a time while they are hashed: 1 MiB at most.
_READ_MAX: Final = 16


class Tail:
    """The leaf hashes after the last full bundle of each epoch, at most 255 (8 KiB).

    They are cached because no tile of them is stored, and an entry may have 64 KiB: a repeated request must stay cheap.
    """

    # The cache of the application.
    from_request: ClassVar[Callable[[Request], Tail]] = attrgetter("context.serving.log_tail")

    def __init__(self) -> None:
        """Begin with an empty cache."""
        # By origin: the number of the tile, and its first hashes, which are signed and never change.
        self._kept: dict[str, tuple[int, bytes]] = {}
        # At the start of a process, concurrent requests read the entries once.
        self._lock = asyncio.Lock()

    async def hashes(self, database: Reader, epoch: Epoch, n: int) -> tuple[bytes, int] | None:
        """The hashes of tile `n` of level 0 as far as it is signed, and the bytes of the entries that were read.

        None when the tile is full: then it is stored.
        """
        async with self._lock:
            kept_n, kept = self._kept.get(epoch.origin, (n, b""))
            if kept_n != n:
                kept = b""
            read, wanted = 0, width_at(0, n, epoch.note_size)
            while (count := len(kept) // HASH_BYTES) < wanted:
                first, most = n * WIDTH + count, min(wanted - count, _READ_MAX)
                entries = await store.read_tail(database, epoch.epoch, first, most)
                if len(entries) < most:
                    return None
                kept += b"".join(map(leaf_hash, entries))
                read += sum(map(len, entries))
            self._kept[epoch.origin] = n, kept
            return kept[: HASH_BYTES * wanted], read


class Part(NamedTuple):
    """A tile or a bundle as it is sent, perhaps compressed by gzip, and the units charged for reading it."""

    data: bytes
    units: int
    is_compressed: bool = False


async def read_part(database: Reader, tail: Tail, epoch: Epoch, tile: Tile) -> Part:
    """A tile, or a bundle of entries. Raises `LogPartNotFound` for a part that the signed tree lacks."""
    signed = width_at(tile.level, tile.n, epoch.note_size)
    if tile.width > signed:
        raise LogPartNotFound(f"the signed tree has {epoch.note_size} leaves, and does not reach this tile")
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

    Raises `ValueError` if the log has another entry there.
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
    """The hashes of a tile, at least the signed ones, and the number of bytes read."""
    if not level and width_at(level, n, epoch.note_size) < WIDTH:
        found = await tail.hashes(database, epoch, n)
        if found is not None:
            return found
    stored = await store.read_tile(database, epoch.epoch, level, n)
    return stored, len(stored)
