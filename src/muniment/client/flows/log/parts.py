"""Parts of a log as a registry serves them, checked for form and length; `Tiles` proves them by a signed root."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from muniment.client.failures import Forged
from muniment.client.steps import Flow, Send
from muniment.protocol.log.fields import HASH_BYTES
from muniment.protocol.log.notes import Note, VerifierKey, parse_note, parse_verifier_key
from muniment.protocol.log.tiles import (
    ENTRIES,
    WIDTH,
    Tile,
    full_tile_hash,
    hashes_from,
    split_entries,
    tiles_for,
    unpacked,
    width_at,
)
from muniment.protocol.log.tree import Range, leaf_hash, nodes_of, root_hash
from muniment.protocol.log.types import LogEpoch, LogShown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.client.flows.session import Session
    from muniment.client.steps import Flow
    from muniment.protocol.log.checkpoints import Checkpoint


_PREFIX: Final = re.compile(r"log/[1-9][0-9]{0,8}", re.ASCII)
# An operator begins an epoch by hand, so thousands are no registry's.
_EPOCHS_MAX: Final = 10_000


def epochs(session: Session) -> Flow[list[LogEpoch]]:
    """The epochs that the registry names, the newest first. Raises `Forged` for malformed keys."""
    found = (yield from session.read("/log", LogShown)).epochs
    if len(found) > _EPOCHS_MAX:
        raise Forged(f"the log has more than {_EPOCHS_MAX} epochs")
    for each in found:
        if not _PREFIX.fullmatch(each.prefix):
            raise Forged("an epoch of the log has a prefix of another form than log/1")
        keys_of(each.origin, each.vkeys)
    return found


def keys_of(origin: str, vkeys: Sequence[str]) -> tuple[VerifierKey, VerifierKey]:
    """The tree key and the time key of an epoch. Raises `Forged`."""
    try:
        keys = [parse_verifier_key(each) for each in vkeys]
    except ValueError as error:
        raise Forged(f"the log names a malformed key: {error}") from error
    match keys:
        case [of_tree, of_time] if of_tree.name == of_time.name == origin:
            return of_tree, of_time
        case _:
            raise Forged(f"the log {origin} does not have exactly two keys of its own name")


def checkpoint(session: Session, prefix: str) -> Flow[Note]:
    """The last checkpoint of an epoch, whose signatures are not verified."""
    reply = yield from session.answered(Send("GET", f"/{prefix}/checkpoint"))
    try:
        return parse_note(reply.content)
    except ValueError as error:
        raise Forged(f"the checkpoint is malformed: {error}") from error


def tile(session: Session, prefix: str, wanted: Tile) -> Flow[bytes]:
    """The hashes of a tile."""
    reply = yield from session.answered(Send("GET", f"/{prefix}/tile/{wanted.path}"))
    if len(reply.content) != HASH_BYTES * wanted.width:
        raise Forged(f"tile {wanted.path} has {len(reply.content)} bytes")
    return reply.content


def bundle(session: Session, prefix: str, n: int, width: int) -> Flow[Sequence[bytes]]:
    """The first `width` entries of a bundle."""
    wanted = Tile(ENTRIES, n, width)
    reply = yield from session.answered(Send("GET", f"/{prefix}/tile/{wanted.path}", takes_gzip=True))
    is_packed = reply.headers.get("content-encoding", "identity").lower() == "gzip"
    try:
        return split_entries(unpacked(reply.content) if is_packed else reply.content, width)
    except ValueError as error:
        raise Forged(f"tile {wanted.path} is malformed: {error}") from error


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of one tree, from the root down.

    The root proves the tiles that are not full (`edge`, by level and number), and each full tile is proved by its hash
    in the tile above. `full` keeps the last full tile of each level, with its number.
    """

    session: Session
    prefix: str
    checkpoint: Checkpoint
    edge: dict[tuple[int, int], bytes] = field(default_factory=dict[tuple[int, int], bytes])
    full: dict[int, tuple[int, bytes]] = field(default_factory=dict[int, tuple[int, bytes]])

    @classmethod
    def below(cls, session: Session, prefix: str, checkpoint: Checkpoint) -> Flow[Self]:
        """The tiles below a signed root. Raises `Forged` for tiles of another tree."""
        found = cls(session, prefix, checkpoint)
        for each in tiles_for(nodes_of([Range(0, checkpoint.size)]), checkpoint.size):
            found.edge[each.level, each.n] = yield from tile(session, prefix, each)
        root = root_hash(checkpoint.size, hashes_from(lambda level, n: found.edge[level, n]))
        if root != checkpoint.root:
            raise Forged(f"the {checkpoint.size} entries of the log make another tree than its checkpoint says")
        return found

    def entries(self, n: int) -> Flow[Sequence[bytes]]:
        """The entries of bundle `n`. Raises `Forged` for entries that are not those of the tree."""
        hashes = yield from self._tile(0, n)
        found = yield from bundle(self.session, self.prefix, n, width_at(0, n, self.checkpoint.size))
        if b"".join(map(leaf_hash, found)) != hashes:
            raise Forged(f"the entries of bundle {n} have other hashes than tile 0/{n}")
        return found

    def _tile(self, level: int, n: int) -> Flow[bytes]:
        if (level, n) in self.edge:
            return self.edge[level, n]
        if level in self.full and self.full[level][0] == n:
            return self.full[level][1]
        above = yield from self._tile(level + 1, n // WIDTH)
        data = yield from tile(self.session, self.prefix, Tile(level, n))
        at = n % WIDTH * HASH_BYTES
        if full_tile_hash(data) != above[at : at + HASH_BYTES]:
            raise Forged(f"tile {level}/{n} does not belong to the tree")
        self.full[level] = (n, data)
        return data
