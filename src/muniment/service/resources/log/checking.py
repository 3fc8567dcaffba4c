"""Checks of the stored log before it is signed: the stored tree and cursors must be those that were computed.

Otherwise a flipped bit on a disk or in memory would be signed, which has ended public logs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from muniment.protocol.log.checkpoints import Checkpoint, parse_checkpoint
from muniment.protocol.log.fields import HASH_BYTES, SIZE_MAX
from muniment.protocol.log.notes import parse_note
from muniment.protocol.log.tiles import ENTRIES, WIDTH, full_tile_hash, hashes_from, split_entries, tiles_for, unpacked
from muniment.protocol.log.tree import Range, consistency_ranges, hashes_of, leaf_hash, nodes_of, root_hash
from muniment.service.resources.log import store
from muniment.service.resources.log.facts import SOURCES
from muniment.service.resources.log.mark import read_mark
from muniment.service.resources.log.store import KINDS, Checked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muniment.protocol.log.tree import Node, StoredHash
    from muniment.service.context import Context
    from muniment.service.resources.log.store import Epoch
    from muniment.service.storage.database import Reader


async def check(context: Context, epoch: Epoch, *, since: int, known: Iterable[Checkpoint] = ()) -> Checked:
    """Prove the stored epoch, before it grows, is signed or is resumed. Raises `ValueError` with the fault.

    Its edge has its root: a tree grown from a damaged edge would agree with itself. It begins with each tree that was
    signed: as it is published, as the mark of this host has it, and as in `known`. The entries of full bundles from
    `since` on have their hashes. Each cursor is where the last run of its kind ends.
    """
    database = context.database
    edge = await store.read_edge(database, epoch)
    if edge.root != epoch.root:
        raise ValueError(f"the stored tree of {epoch.size} entries has another root")
    for signed in {*known, *_published(epoch), *_marked(context, epoch)}:
        if (signed.size, signed.root) != (epoch.size, epoch.root):
            await check_beginning(database, epoch, signed)
    for n in range(since // WIDTH, epoch.size // WIDTH):
        await _check_bundle(database, epoch.epoch, n)
    await _check_cursors(database, epoch)
    return Checked(epoch, edge)


def _published(epoch: Epoch) -> list[Checkpoint]:
    """The published checkpoint, if any; its signatures are not verified. Raises `ValueError` for a damaged one."""
    found = [] if epoch.note is None else [parse_checkpoint(parse_note(epoch.note.encode()).text)]
    if (size := sum(each.size for each in found)) != epoch.note_size:
        raise ValueError(f"the stored checkpoint has {size} entries, and not {epoch.note_size}")
    return found


def _marked(context: Context, epoch: Epoch) -> list[Checkpoint]:
    """The newest checkpoint of the epoch that this host has signed or seen, if any."""
    mark = read_mark(context.settings.data_dir)
    signed = mark.checkpoint if mark else None
    return [signed] if signed and signed.origin == epoch.origin else []


async def check_beginning(database: Reader, epoch: Epoch, signed: Checkpoint) -> None:
    """Check that the stored tree begins with the tree of `signed`. Raises `ValueError`."""
    if signed.size > epoch.size:
        raise ValueError(
            f"a tree of {signed.size} entries was signed, and the database has {epoch.size}: the others are lost here"
        )
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


async def _check_cursors(database: Reader, epoch: Epoch) -> None:
    """After a damaged cursor, facts would be missing in the log, or logged twice."""
    begun = await _begun(database, epoch)
    for kind, after in epoch.after.items():
        run = await store.last_run(database, epoch.epoch, kind, SIZE_MAX)
        if run is None:
            is_right = after == begun[kind]
        else:
            is_right = (
                await SOURCES[kind].rows.count(database, run.first_seq, min(after, SIZE_MAX - 1) + 1) == run.count
            )
        if not is_right:
            raise ValueError(f"the log does not continue with the {SOURCES[kind].name} after its last entries")


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
        rows = SOURCES[kind].rows
        last = await rows.seq_at(database, run.first_seq, max(signed - 1, 0))
        if last is not None and await rows.count(database, begun + 1, last + 1) == count:
            found[kind] = last
    return found


async def _begun(database: Reader, epoch: Epoch) -> dict[int, int]:
    """The cursors with which an epoch began."""
    before = await store.epoch_before(database, epoch.epoch)
    return dict(before.after) if before else dict.fromkeys(KINDS, 0)
