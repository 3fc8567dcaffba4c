"""The Merkle tree: the definition of RFC 6962, and the vectors of another implementation."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tlog_trees import Nodes, entries, naive_path, naive_root, naive_subproof, vectors

from each_row import each_row
from muniment.protocol.log.fields import SIZE_MAX
from muniment.protocol.log.tree import (
    EMPTY_ROOT,
    check_consistency,
    check_inclusion,
    consistency_ranges,
    hashes_of,
    inclusion_ranges,
    leaf_hash,
    nodes_of,
    root_hash,
)

MERKLE = vectors("merkle")
SIZES = st.integers(1, 70)


def nodes_of_tree(size: int) -> Nodes:
    return Nodes([leaf_hash(each) for each in entries(size)])


def flipped(data: bytes, bit: int) -> bytes:
    return (int.from_bytes(data) ^ 1 << bit % (8 * len(data))).to_bytes(len(data))


def root_of(text: str) -> bytes:
    """The root in a vector. In some it does not count, and has another length than hashes have."""
    root = b64decode(text)
    return root.ljust(32) if root.startswith(b"don't care") else root


def decoded(hashes: list[str] | None) -> list[bytes]:
    return [b64decode(each) for each in hashes or []]


@each_row("case", MERKLE["inclusion"], ids=lambda case: case["file"])
def test_proofs_of_inclusion_are_judged_as_by_another_implementation(case: dict[str, Any]) -> None:
    given_ = (b64decode(case["leafHash"]), case["leafIdx"], case["treeSize"], b64decode(case["root"]))
    if case["wantErr"]:
        with pytest.raises(ValueError, match=r"."):
            check_inclusion(*given_, decoded(case["proof"]))
    else:
        check_inclusion(*given_, decoded(case["proof"]))


# c2sp.org/tlog-witness allows it: a witness that knows nothing of a log takes an empty proof.
FROM_NOTHING = "additional/size1-is-zero-and-size2-is-not-zero"


@each_row("case", MERKLE["consistency"], ids=lambda case: case["file"])
def test_proofs_of_consistency_are_judged_as_by_another_implementation(case: dict[str, Any]) -> None:
    given_ = (case["size1"], root_of(case["root1"]), case["size2"], root_of(case["root2"]))
    if case["wantErr"] and case["file"] != FROM_NOTHING:
        with pytest.raises(ValueError, match=r"."):
            check_consistency(*given_, decoded(case["proof"]))
    else:
        check_consistency(*given_, decoded(case["proof"]))


@given(SIZES, st.data())
def test_a_proof_of_inclusion_is_that_of_the_definition_and_every_flipped_bit_is_refused(
    size: int, data: st.DataObject
) -> None:
    index, nodes = data.draw(st.integers(0, size - 1)), nodes_of_tree(size)
    leaf, root = leaf_hash(entries(size)[index]), root_hash(size, nodes)
    assert root == naive_root(entries(size))
    ranges = inclusion_ranges(index, size)
    nodes.asked.clear()
    proof = hashes_of(ranges, nodes)
    assert proof == naive_path(index, entries(size))
    assert nodes.asked == nodes_of(ranges)
    check_inclusion(leaf, index, size, root, proof)
    bit = data.draw(st.integers(0, 255))
    for n in range(len(proof)):
        with pytest.raises(ValueError, match="leads to another root"):
            check_inclusion(leaf, index, size, root, [*proof[:n], flipped(proof[n], bit), *proof[n + 1 :]])
    for one, another in ((flipped(leaf, bit), root), (leaf, flipped(root, bit))):
        with pytest.raises(ValueError, match="leads to another root"):
            check_inclusion(one, index, size, another, proof)


@given(SIZES, st.data())
def test_a_proof_of_consistency_is_that_of_the_definition_and_every_flipped_bit_is_refused(
    size: int, data: st.DataObject
) -> None:
    old, nodes = data.draw(st.integers(1, size)), nodes_of_tree(size)
    old_root, root = root_hash(old, nodes), root_hash(size, nodes)
    ranges = consistency_ranges(old, size)
    proof = hashes_of(ranges, nodes)
    assert proof == naive_subproof(old, entries(size))
    check_consistency(old, old_root, size, root, proof)
    bit = data.draw(st.integers(0, 255))
    for n in range(len(proof)):
        with pytest.raises(ValueError, match="leads to another"):
            check_consistency(old, old_root, size, root, [*proof[:n], flipped(proof[n], bit), *proof[n + 1 :]])
    for one, another in ((flipped(old_root, bit), root), (old_root, flipped(root, bit))):
        with pytest.raises(ValueError, match="leads to another"):
            check_consistency(old, one, size, another, proof)


@given(SIZES, SIZES, st.lists(st.binary(min_size=31, max_size=33), max_size=8))
def test_hostile_proofs_are_refused(index: int, size: int, proof: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_inclusion(leaf_hash(b""), index, size, bytes(32), proof)
    with pytest.raises(ValueError, match=r"."):
        check_consistency(index, bytes(32), size + index, bytes(31), proof)


def test_an_empty_tree_is_the_beginning_of_every_tree() -> None:
    assert naive_root([]) == root_hash(0, nodes_of_tree(0)) == EMPTY_ROOT
    check_consistency(0, EMPTY_ROOT, 0, EMPTY_ROOT, [])
    check_consistency(0, EMPTY_ROOT, 5, naive_root(entries(5)), [])
    for old_root, size, root, proof in (
        (bytes(32), 5, EMPTY_ROOT, []), (EMPTY_ROOT, 0, bytes(32), []), (EMPTY_ROOT, 5, EMPTY_ROOT, [bytes(32)]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"empty tree has another root|has 1 hashes in place of 0"):
            check_consistency(0, old_root, size, root, proof)


@each_row(("index", "size"), [(0, 0), (5, 5), (-1, 5), (0, SIZE_MAX + 1), (1 << 80, 1 << 90)])
def test_an_index_beyond_the_tree_has_no_proof(index: int, size: int) -> None:
    with pytest.raises(ValueError, match=r"has no leaf|is below 2\^63"):
        inclusion_ranges(index, size)
    with pytest.raises(ValueError, match=r"not the beginning of|is below 2\^63"):
        consistency_ranges(size + 1, size)


def test_the_largest_tree_has_short_proofs() -> None:
    assert len(inclusion_ranges(0, SIZE_MAX)) == 63
    assert len(nodes_of(inclusion_ranges(0, SIZE_MAX))) <= 63 * 64 / 2
    assert len(consistency_ranges(SIZE_MAX - 1, SIZE_MAX)) == 63
