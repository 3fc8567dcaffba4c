"""Checks of the stored log before it is signed: the stored tree and cursors must be those that were computed.

Otherwise a flipped bit on a disk or in memory would be signed, which has ended public logs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, LiteralString

from muniment.protocol.log.checkpoints import Checkpoint
from muniment.protocol.log.fields import HASH_BYTES, SIZE_MAX
from muniment.protocol.log.tiles import (
    ENTRIES,
    WIDTH,
    full_tile_hash,
    hashes_from,
    split_entries,
    tiles_for,
    unpacked,
)
from muniment.protocol.log.tree import Range, consistency_ranges, hashes_of, leaf_hash, nodes_of, root_hash
from muniment.service.resources.functions import store as functions
from muniment.service.resources.log.sequencing import store
from muniment.service.resources.log.sequencing.facts import COUNT
from muniment.service.resources.log.sequencing.store import DEACTIVATION, FUNCTION, TRIGGER
from muniment.service.resources.triggers import store as triggers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muniment.protocol.log.growth import Edge
    from muniment.protocol.log.tree import Node, StoredHash
    from muniment.service.resources.log.sequencing.store import Epoch
    from muniment.service.storage.database import Reader


_NTH: Final[dict[int, LiteralString]] = {
    FUNCTION: functions.NTH_JOINED, TRIGGER: triggers.NTH_REGISTERED, DEACTIVATION: triggers.NTH_ENDED,
}  # fmt: skip
_NAMES: Final = {FUNCTION: "functions", TRIGGER: "triggers", DEACTIVATION: "deactivations"}


async def read_whole_edge(database: Reader, epoch: Epoch) -> Edge:
    """The edge of the tree, which must have the root of `epoch`. Raises `ValueError`.

    A tree grown from a damaged edge would agree with itself.
    """
    edge = await store.read_edge(database, epoch)
    if edge.root != epoch.root:
        raise ValueError(f"the stored tree of {epoch.size} entries has another root")
    return edge


async def check_stored(database: Reader, epoch: Epoch, before: int) -> None:
    """Check that the stored tree has the root of `epoch`, and that the entries from `before` on have their hashes.

    Raises `ValueError` with the fault.
    """
    await read_whole_edge(database, epoch)
    for n in range(before // WIDTH, epoch.size // WIDTH):
        await _check_bundle(database, epoch.epoch, n)


async def check_beginning(database: Reader, epoch: Epoch, signed: Checkpoint) -> None:
    """Check that the stored tree begins with the tree of `signed`. Raises `ValueError`."""
    stored = await _read_hashes(database, epoch, Range(0, signed.size).nodes)
    if root_hash(signed.size, stored) != signed.root:
        raise ValueError(f"the stored tree does not begin with the {signed.size} entries that were signed")


async def read_consistency(database: Reader, epoch: Epoch, old: int) -> list[bytes]:
    """The proof that the tree of `epoch` begins with the tree of `old` leaves (RFC 6962, section 2.1.2).

    Raises `ValueError` when the stored tree lacks a part.
    """
    ranges = consistency_ranges(old, epoch.size)
    return hashes_of(ranges, await _read_hashes(database, epoch, nodes_of(ranges)))


async def _read_hashes(database: Reader, epoch: Epoch, nodes: Iterable[Node]) -> StoredHash:
    """The hashes of these nodes, each tile read once."""
    tail = (await store.read_edge(database, epoch)).tail
    tiles = {
        (tile.level, tile.n): await _tile(database, epoch, tile.level, tile.n, tail)
        for tile in tiles_for(nodes, epoch.size)
    }
    return hashes_from(lambda level, n: tiles[level, n])


async def _tile(database: Reader, epoch: Epoch, level: int, n: int, tail: tuple[bytes, ...]) -> bytes:
    if level == 0 and n == epoch.size // WIDTH:
        return b"".join(map(leaf_hash, tail))
    return await store.read_tile(database, epoch.epoch, level, n)


async def _check_bundle(database: Reader, epoch: int, n: int) -> None:
    bundle = await store.read_tile(database, epoch, ENTRIES, n)
    tile = await store.read_tile(database, epoch, 0, n)
    above = await store.read_tile(database, epoch, 1, n // WIDTH)
    at = HASH_BYTES * (n % WIDTH)
    if await asyncio.to_thread(hash_of_bundle, bundle, tile) != above[at : at + HASH_BYTES]:
        raise ValueError(f"the stored tile 0/{n} has another hash")


def hash_of_bundle(bundle: bytes, tile: bytes) -> bytes:
    """The hash of a full tile, if the compressed bundle has its entries. Raises `ValueError`."""
    entries = split_entries(unpacked(bundle))
    if b"".join(map(leaf_hash, entries)) != tile:
        raise ValueError("stored entries have other hashes")
    return full_tile_hash(tile)


async def check_cursors(database: Reader, epoch: Epoch) -> None:
    """Check that each cursor is where the last run of its kind ends. Raises `ValueError`.

    After a damaged cursor, facts would be missing in the log, or logged twice.
    """
    begun = await _begun(database, epoch)
    for kind, after in epoch.after.items():
        run = await store.last_run(database, epoch.epoch, kind, SIZE_MAX)
        if run is None:
            is_right = after == begun[kind]
        else:
            is_right = await COUNT[kind](database, run.first_seq, min(after, SIZE_MAX - 1) + 1) == run.count
        if not is_right:
            raise ValueError(f"the log does not continue with the {_NAMES[kind]} after its last entries")


async def signed_cursors(database: Reader, epoch: Epoch, size: int) -> dict[int, int]:
    """The cursors after the first `size` entries of an epoch, since later ones were never signed.

    If the runs up to there are damaged, the cursors with which the epoch began: a fact may be in two epochs, but must
    not be in none.
    """
    found = await _begun(database, epoch)
    for kind, begun in found.items():
        run = await store.last_run(database, epoch.epoch, kind, size)
        if run is None:
            continue
        signed = min(run.count, size - run.first_index)
        count = await store.count_runs_before(database, epoch.epoch, kind, run.first_index) + signed
        rows = await database.fetch(_NTH[kind], (run.first_seq, max(signed - 1, 0)))
        if rows and await COUNT[kind](database, begun + 1, rows[0][0] + 1) == count:
            found[kind] = rows[0][0]
    return found


async def _begun(database: Reader, epoch: Epoch) -> dict[int, int]:
    """The cursors with which an epoch began."""
    before = await store.epoch_before(database, epoch.epoch)
    return before.after if before else dict.fromkeys(_NAMES, 0)
