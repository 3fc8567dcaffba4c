"""The Merkle tree of RFC 6962 (section 2.1) and RFC 9162 (section 2.1): hashes, proofs, and the check of proofs.

A *node* is a complete subtree: its level, counted from the leaves, and its number among the nodes of that level. The
hashes of nodes never change as the tree grows, so a log stores them. A caller first asks which nodes a hash needs
(`nodes_of`), reads them together, and passes a function that returns them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from muniment.protocol.log.fields import HASH_BYTES, SIZE_MAX

# RFC 6962, section 2.1: "The hash of an empty list is the hash of an empty string".
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
_LEAF: Final = b"\x00"
_NODE: Final = b"\x01"


class Node(NamedTuple):
    """The complete subtree over the leaves `n * 2^level` to `(n + 1) * 2^level`, the last not included."""

    level: int
    n: int


class Range(NamedTuple):
    """The leaves from `start` to `end`, `end` not included: a subtree that is complete but for its right edge."""

    start: int
    end: int

    @property
    def nodes(self) -> list[Node]:
        """The nodes that make up the range, from left to right: one for each bit of its length."""
        found, at, length = list[Node](), self.start, self.end - self.start
        while length:
            level = length.bit_length() - 1
            found.append(Node(level, at >> level))
            at += 1 << level
            length -= 1 << level
        return found


# Returns the stored hash of a node.
StoredHash: TypeAlias = Callable[[Node], bytes]


def leaf_hash(entry: bytes) -> bytes:
    """The hash of a leaf (RFC 6962, section 2.1)."""
    return hashlib.sha256(_LEAF + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash over two subtrees (RFC 6962, section 2.1)."""
    return hashlib.sha256(_NODE + left + right).digest()


def complete_hash(hashes: Sequence[bytes]) -> bytes:
    """The hash over neighbouring subtrees of one size, whose number is a power of two."""
    while len(hashes) > 1:
        hashes = [node_hash(hashes[at], hashes[at + 1]) for at in range(0, len(hashes), 2)]
    return hashes[0]


def range_hash(leaves: Range, stored: StoredHash) -> bytes:
    """The hash of the subtree over a range (MTH of RFC 6962), which is not empty."""
    hashes = [stored(node) for node in leaves.nodes]
    found = hashes.pop()
    while hashes:
        found = node_hash(hashes.pop(), found)
    return found


def root_hash(size: int, stored: StoredHash) -> bytes:
    """The root of the tree with `size` leaves."""
    return range_hash(Range(0, size), stored) if size else EMPTY_ROOT


def nodes_of(ranges: Iterable[Range]) -> set[Node]:
    """The nodes from which the hashes of these ranges are computed."""
    return {node for leaves in ranges for node in leaves.nodes}


def inclusion_ranges(index: int, size: int) -> list[Range]:
    """The subtrees whose hashes prove that leaf `index` is in the tree of `size` leaves, from the leaf to the root.

    RFC 6962, section 2.1.1. Raises `ValueError` for an index that the tree does not have.
    """
    _check_size(size)
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    found, start, end = list[Range](), 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            found.append(Range(middle, end))
            end = middle
        else:
            found.append(Range(start, middle))
            start = middle
    return found[::-1]


def consistency_ranges(old: int, size: int) -> list[Range]:
    """The subtrees whose hashes prove that the tree of `old` leaves is the beginning of the tree of `size` leaves.

    RFC 6962, section 2.1.2. Nothing for equal sizes, and for an old size of 0 (c2sp.org/tlog-witness). Raises
    `ValueError` for an old size above the other.
    """
    _check_size(size)
    if not 0 <= old <= size:
        raise ValueError(f"a tree of {old} leaves is not the beginning of a tree of {size} leaves")
    if old in {0, size}:
        return []
    found, start, end = list[Range](), 0, size
    while end != old:
        middle = start + _split(end - start)
        if old <= middle:
            found.append(Range(middle, end))
            end = middle
        else:
            found.append(Range(start, middle))
            start = middle
    if start:  # the subtree is not the old tree itself, whose root the verifier has
        found.append(Range(start, end))
    return found[::-1]


def hashes_of(ranges: Iterable[Range], stored: StoredHash) -> list[bytes]:
    """A proof: the hashes of these ranges, in their order."""
    return [range_hash(leaves, stored) for leaves in ranges]


def check_inclusion(leaf: bytes, index: int, size: int, root: bytes, proof: Sequence[bytes]) -> None:
    """Check that the leaf with the hash `leaf` is number `index` of the tree of `size` leaves with `root`.

    RFC 9162, section 2.1.3.2. Raises `ValueError`.
    """
    due = inclusion_ranges(index, size)
    _check_proof(proof, len(due), (leaf, root))
    found = leaf
    for sibling, leaves in zip(proof, due, strict=True):
        found = node_hash(sibling, found) if leaves.end <= index else node_hash(found, sibling)
    if found != root:
        raise ValueError("the proof of inclusion leads to another root")


def check_consistency(old: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> None:
    """Check that the tree of `old` leaves with `old_root` is the beginning of the tree of `size` leaves with `root`.

    RFC 9162, section 2.1.4.2. An old size of 0 has an empty proof and the root of the empty tree. Raises `ValueError`.
    """
    due = consistency_ranges(old, size)
    _check_proof(proof, len(due), (old_root, root))
    if not old:
        if old_root != EMPTY_ROOT or (not size and root != EMPTY_ROOT):
            raise ValueError("an empty tree has another root")
        return
    pairs = list(zip(due, proof, strict=True))
    # The first range lies within the old tree, unless the old tree is itself a node of the new one.
    if pairs and pairs[0][0].start < old:
        (_, first), *pairs = pairs
    else:
        first = old_root
    before, after = first, first
    for leaves, sibling in pairs:
        if leaves.end <= old:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
        else:
            after = node_hash(after, sibling)
    if before != old_root:
        raise ValueError("the proof of consistency leads to another old root")
    if after != root:
        raise ValueError("the proof of consistency leads to another root")


def _split(length: int) -> int:
    """The largest power of two below `length`, which is above 1 (RFC 6962, section 2.1)."""
    return 1 << (length - 1).bit_length() - 1


def _check_size(size: int) -> None:
    if not 0 <= size <= SIZE_MAX:
        raise ValueError("the size of a tree is below 2^63")


def _check_proof(proof: Sequence[bytes], due: int, roots: Sequence[bytes]) -> None:
    if len(proof) != due:
        raise ValueError(f"the proof has {len(proof)} hashes in place of {due}")
    if any(len(each) != HASH_BYTES for each in (*proof, *roots)):
        raise ValueError("a hash has 32 bytes")
