"""The tiles of a signed log, each proved before use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from muniment.client.failures import Forged
from muniment.client.flows.log import parts
from muniment.tlog.fields import HASH_BYTES
from muniment.tlog.tiles import WIDTH, Tile, full_tile_hash, hashes_from, tiles_for, width_at
from muniment.tlog.tree import Range, leaf_hash, nodes_of, root_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.client.flows.session import Session
    from muniment.client.steps import Flow
    from muniment.tlog.checkpoints import Checkpoint


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
        """The tiles below a signed root. Raises `Forged` where the registry has those of another tree."""
        found = cls(session, prefix, checkpoint)
        for each in tiles_for(nodes_of([Range(0, checkpoint.size)]), checkpoint.size):
            found.edge[each.level, each.n] = yield from parts.tile(session, prefix, each)
        root = root_hash(checkpoint.size, hashes_from(lambda level, n: found.edge[level, n]))
        if root != checkpoint.root:
            raise Forged(f"the {checkpoint.size} entries of the log make another tree than its checkpoint says")
        return found

    def entries(self, n: int) -> Flow[Sequence[bytes]]:
        """The entries of bundle `n`. Raises `Forged` for entries that are not those of the tree."""
        hashes = yield from self._tile(0, n)
        bundle = yield from parts.bundle(self.session, self.prefix, n, width_at(0, n, self.checkpoint.size))
        if b"".join(map(leaf_hash, bundle)) != hashes:
            raise Forged(f"the entries of bundle {n} have other hashes than tile 0/{n}")
        return bundle

    def _tile(self, level: int, n: int) -> Flow[bytes]:
        if (level, n) in self.edge:
            return self.edge[level, n]
        if level in self.full and self.full[level][0] == n:
            return self.full[level][1]
        above = yield from self._tile(level + 1, n // WIDTH)
        data = yield from parts.tile(self.session, self.prefix, Tile(level, n))
        at = n % WIDTH * HASH_BYTES
        if full_tile_hash(data) != above[at : at + HASH_BYTES]:
            raise Forged(f"tile {level}/{n} does not belong to the tree")
        self.full[level] = (n, data)
        return data
