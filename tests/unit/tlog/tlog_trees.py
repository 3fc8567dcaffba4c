"""Trees for the tests of the log: the definition of RFC 6962 word by word, and what stores the hashes of nodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muniment.protocol.log.tree import Node, complete_hash

VECTORS = Path(__file__).parents[2] / "vectors" / "tlog"


def vectors(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_bytes())


def entries(size: int) -> list[bytes]:
    """The entries of a tree: `record 0` and so on, as in the vectors."""
    return [b"record %d" % n for n in range(size)]


def naive_root(leaves: Sequence[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1; `leaves` are entries."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    k = _largest_power_below(len(leaves))
    return hashlib.sha256(b"\x01" + naive_root(leaves[:k]) + naive_root(leaves[k:])).digest()


def naive_path(m: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PATH of RFC 6962, section 2.1.1."""
    if len(leaves) == 1:
        return []
    k = _largest_power_below(len(leaves))
    if m < k:
        return [*naive_path(m, leaves[:k]), naive_root(leaves[k:])]
    return [*naive_path(m - k, leaves[k:]), naive_root(leaves[:k])]


def naive_subproof(m: int, leaves: Sequence[bytes], *, is_known: bool = True) -> list[bytes]:
    """SUBPROOF of RFC 6962, section 2.1.2."""
    if m == len(leaves):
        return [] if is_known else [naive_root(leaves)]
    k = _largest_power_below(len(leaves))
    if m <= k:
        return [*naive_subproof(m, leaves[:k], is_known=is_known), naive_root(leaves[k:])]
    return [*naive_subproof(m - k, leaves[k:], is_known=False), naive_root(leaves[:k])]


def _largest_power_below(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


class Nodes:
    """Gives the hashes of the nodes of a tree, and remembers which were asked for."""

    def __init__(self, leaf_hashes: Sequence[bytes]) -> None:
        self._leaves = leaf_hashes
        self.asked = set[Node]()

    def __call__(self, node: Node) -> bytes:
        self.asked.add(node)
        start, end = node.n << node.level, (node.n + 1) << node.level
        assert end <= len(self._leaves), "a node beyond the tree"
        return complete_hash(self._leaves[start:end])
