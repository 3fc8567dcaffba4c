"""The importer: streaming, in constant memory, whatever the sizes of the pieces."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st
from ipfs_vectors import PROFILES, stored

from each_row import each_row
from muniment.protocol.errors import Integrity
from muniment.protocol.ipfs.dag_pb import Link, decode_node, encode_node
from muniment.protocol.ipfs.unixfs import (
    UNIXFS_V0_2015,
    Import,
    Kind,
    Profile,
    decode_unixfs,
    directory,
    encode_file_data,
    import_file,
    import_files,
)

MIB = 1 << 20


@each_row("step", [1, 3, 15, 16, 17, 31, 32, 33, 100])
def test_the_sizes_of_the_pieces_change_nothing(step: int) -> None:
    data = bytes(range(250))
    pieces = [b"", *(data[at : at + step] for at in range(0, len(data), step)), b""]
    whole, in_pieces = Import(import_file([data], PROFILES["f"])), Import(import_file(pieces, PROFILES["f"]))
    assert list(whole) == list(in_pieces)
    assert whole.root == in_pieces.root
    assert whole.root.size == len(data)


def test_a_long_file_is_imported_in_constant_memory() -> None:
    def pieces() -> Iterator[bytes]:
        for number in range(64):
            yield number.to_bytes(8, "big") * (MIB // 8)

    tracemalloc.start()
    try:
        done = Import(import_file(pieces(), UNIXFS_V0_2015))
        assert sum(1 for _ in done) == 64 * 4 + 2 + 1
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
    assert done.root.size == 64 * MIB


def test_upload_order_does_not_matter_and_names_are_sorted_by_bytes() -> None:
    files = {"b": [b"1"], "é": [b"2"], "a": [b"3"], "Z": [b"4"]}
    one, blocks = stored(dict(files), UNIXFS_V0_2015)
    other, _ = stored(dict(reversed(files.items())), UNIXFS_V0_2015)
    assert one.root.cid == other.root.cid
    assert [link.name.decode() for link in decode_node(blocks[one.root.parts.digest]).links] == ["Z", "a", "b", "é"]


def test_the_root_is_known_only_at_the_end() -> None:
    done = Import(import_files({"a": [b"1"]}, UNIXFS_V0_2015))
    with pytest.raises(RuntimeError, match="not ended"):
        _ = done.root
    assert len(list(done)) == 2
    assert done.root.entries["a"].size == 1


@each_row(("version", "chunk_size", "width"), [(2, 1, 2), (0, 0, 2), (0, 2 * MIB, 2), (1, 1, 1)])
def test_a_profile_that_cannot_work_is_not_made(version: int, chunk_size: int, width: int) -> None:
    with pytest.raises(ValueError, match="cannot be built"):
        Profile("odd", version, raw_leaves=True, chunk_size=chunk_size, width=width)


def test_a_directory_fits_into_one_block() -> None:
    root = Import(import_file([b"x"], UNIXFS_V0_2015))
    assert list(root)
    with pytest.raises(ValueError, match="too many entries"):
        directory({str(number).zfill(200): root.root for number in range(9000)}, UNIXFS_V0_2015)


def test_a_node_is_read_as_it_was_written() -> None:
    done, _ = stored({"a": [b"1"]}, PROFILES["b"])
    links = (Link(done.root.parts, 7, b"name"), Link(done.root.entries["a"].parts, 0))
    node = decode_node(encode_node(links, b"data"))
    assert (node.links, node.data) == (links, b"data")
    assert decode_node(b"").data is None


@each_row(
    "block",
    [
        "0a0208011200",  # a link after the data
        "0a0208010a020801",  # data twice
        "1200",  # a link without a CID
        "12021200",
        "120618001a020000",  # size before hash, unknown field
        "0a8200",  # a varint that is not the shortest
        "0a05080200",  # cut short
        "0d00000000",  # fixed32
        "0801",  # a varint where bytes are due
        "ff" * 12,
        "12060a0401550000" + "00",  # a tag of 0
        "12070a050155000000",  # something after the CID of a link
        "12080a04015500002001",  # a link with a fourth field
        "1208" + "1800" + "0a0401550000",  # the size before the CID
        "120c" + "0a0401550000" * 2,
        "12280a24015512" + "20" + "00" * 31 + "1200",  # a digest cut short by one
    ],
)
def test_a_block_that_is_not_a_canonical_node_counts_as_damaged(block: str) -> None:
    with pytest.raises(Integrity):
        decode_node(bytes.fromhex(block))


@each_row(
    "message",
    [
        "",  # no type
        "0805",  # a sharded directory
        "0804",  # a symbolic link
        "08021801",  # one byte of which nothing is there
        "0802120161",  # a byte that the size does not count
        "08021800" + "3801",  # a mode
        "18000802",  # out of order
        "080208021800",  # twice
        "08021800" + "2001",  # a child that the size does not count
        "0a00",
        "08022800",  # a hash type
        "0802" + "1002",  # data that are a number
    ],
)
def test_a_message_of_another_kind_than_file_or_directory_counts_as_damaged(message: str) -> None:
    with pytest.raises(Integrity):
        decode_unixfs(bytes.fromhex(message))


def test_the_message_of_a_file_is_read_as_it_was_written() -> None:
    unixfs = decode_unixfs(encode_file_data(b"ab", 302, [100, 200]))
    assert (unixfs.kind, unixfs.data, unixfs.size, unixfs.child_sizes) == (Kind.FILE, b"ab", 302, (100, 200))


@given(st.binary(max_size=200) | st.binary(max_size=40).map(lambda tail: bytes.fromhex("0a020801") + tail))
def test_any_bytes_are_a_node_or_damaged(block: bytes) -> None:
    try:
        decode_unixfs(decode_node(block).data)
    except Integrity:
        return
    assert decode_node(block).data
