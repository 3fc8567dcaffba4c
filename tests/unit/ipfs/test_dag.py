"""Reading: an imported file comes out unchanged, ranges read only their leaves, hostile trees are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st
from ipfs_vectors import PROFILES, stored

from each_row import each_row
from muniment.protocol.errors import ContentNotFound, Integrity, InvalidParameter
from muniment.protocol.ipfs.block import block_of
from muniment.protocol.ipfs.cid import DAG_PB, RAW, SHA2_256, CidParts, decode_cid
from muniment.protocol.ipfs.dag import DEPTH_MAX, EntityBytes, Scope, open_file, resolve, walk
from muniment.protocol.ipfs.dag_pb import Link, encode_node
from muniment.protocol.ipfs.unixfs import UNIXFS_V0_2015, Profile, encode_file_data

Get = Callable[[bytes], bytes]
profiles = st.builds(
    lambda version, raw, size, width: Profile("any", version, raw_leaves=raw, chunk_size=size, width=width),
    st.integers(0, 1), st.booleans(), st.integers(1, 40), st.integers(2, 6),
)  # fmt: skip

contents = st.integers(0, 300).map(lambda length: bytes(number * 7 % 251 for number in range(length)))


def getter(blocks: dict[bytes, bytes], read: list[bytes] | None = None) -> Get:
    def get(digest: bytes) -> bytes:
        if digest not in blocks:
            raise ContentNotFound("not here")
        if read is not None:
            read.append(digest)
        return blocks[digest]

    return get


def tree(links: list[Link], sizes: list[int]) -> tuple[CidParts, bytes]:
    """A hand-made file node over these links."""
    block = encode_node(links, encode_file_data(b"", sum(sizes), sizes))
    return CidParts(0, DAG_PB, SHA2_256, block_of(block).digest), block


@settings(deadline=None, max_examples=60)  # hundreds of blocks for some examples
@given(contents, profiles, st.integers(0, 350), st.integers(0, 350))
def test_reading_a_range_is_slicing(data: bytes, profile: Profile, start: int, end: int) -> None:
    done, blocks = stored({"file": [data]}, profile)
    file = open_file(getter(blocks), done.root.parts, ["file"])
    assert file.size == len(data)
    assert b"".join(file.read()) == data
    assert b"".join(file.read(start, end)) == data[start:end]


@settings(deadline=None, max_examples=60)  # hundreds of blocks for some examples
@given(contents, profiles, st.integers(-350, 350), st.none() | st.integers(-350, 350))
def test_a_car_of_a_range_holds_the_blocks_that_its_reader_needs(
    data: bytes, profile: Profile, first: int, last: int | None
) -> None:
    done, blocks = stored({"file": [data]}, profile)
    part = EntityBytes(first, last)
    sent = dict(walk(getter(blocks), done.root.parts, path=["file"], entity_bytes=part))
    held = {cid.digest: block for cid, block in sent.items()}
    start, end = part.within(len(data))
    assert 0 <= start <= end <= len(data) or start == end
    file = open_file(getter(held), done.root.parts, ["file"])
    assert b"".join(file.read(start, end)) == data[start:end]


def test_a_range_reads_the_leaves_it_needs_and_no_others() -> None:
    profile = Profile("small", 1, raw_leaves=True, chunk_size=10, width=3)
    data = bytes(range(200))
    done, blocks = stored({"file": [data]}, profile)
    read: list[bytes] = []
    file = open_file(getter(blocks, read), done.root.entries["file"].parts)
    assert b"".join(file.read(95, 105)) == data[95:105]
    assert sum(block_of(data[at : at + 10]).digest in read for at in range(0, 200, 10)) == 2
    assert len(read) < 12


@each_row(
    ("text", "size", "expected"),
    [
        ("0:*", 10, (0, 10)), ("0:0", 10, (0, 1)), ("2:5", 10, (2, 6)), ("-3:*", 10, (7, 10)), ("-30:*", 10, (0, 10)),
        ("0:-1", 10, (0, 10)), ("2:-3", 10, (2, 8)), ("5:100", 10, (5, 10)), ("20:30", 10, (10, 10)),
        ("0:*", 0, (0, 0)), ("0:-30", 10, (0, 0)), ("-2:1", 10, (8, 8)),
    ],
)  # fmt: skip
def test_entity_bytes_are_read_as_the_gateway_specification_says(
    text: str, size: int, expected: tuple[int, int]
) -> None:
    assert EntityBytes.parse(text).within(size) == expected


@each_row("text", ["", "1", ":", "*:1", "1:", "a:b", "5:2", "-1:-5", "0:1:2", " 0:1", "0:1\n", "٠:1", "1" * 20 + ":*"])
def test_malformed_entity_bytes_are_refused(text: str) -> None:
    with pytest.raises(InvalidParameter):
        EntityBytes.parse(text)


def test_a_path_leads_over_one_cid_per_segment() -> None:
    done, blocks = stored({"manifest.json": [b"{}"], "function.wasm": [b"wasm"]}, UNIXFS_V0_2015)
    passed = resolve(getter(blocks), done.root.parts, ["manifest.json"])
    assert [cid.text for cid in passed] == [done.root.cid, done.root.entries["manifest.json"].cid]


@each_row("path", [["absent"], [""], ["manifest.json", "x"], ["\ud800"], ["Manifest.json"]])
def test_a_path_to_nothing_is_not_found(path: list[str]) -> None:
    done, blocks = stored({"manifest.json": [b"{}"]}, UNIXFS_V0_2015)
    with pytest.raises(ContentNotFound):
        resolve(getter(blocks), done.root.parts, path)


def test_a_directory_is_not_a_file() -> None:
    done, blocks = stored({"manifest.json": [b"{}"]}, UNIXFS_V0_2015)
    with pytest.raises(ContentNotFound, match="directory"):
        open_file(getter(blocks), done.root.parts)


def test_a_missing_root_is_not_found_but_a_missing_part_is_damage() -> None:
    done, blocks = stored({"file": [bytes(100)]}, PROFILES["f"])
    root, file = done.root.parts, done.root.entries["file"].parts
    with pytest.raises(ContentNotFound):
        open_file(getter({}), root)
    with pytest.raises(Integrity, match="missing"):
        open_file(getter({root.digest: blocks[root.digest]}), root, ["file"])
    with pytest.raises(Integrity, match="missing"):
        list(open_file(getter({file.digest: blocks[file.digest]}), file).read())
    for scope in Scope:
        with pytest.raises(Integrity, match="missing"):
            list(walk(getter({root.digest: blocks[root.digest]}), root, path=["file"], scope=scope))


def test_scopes_hold_a_block_an_entity_or_everything() -> None:
    done, blocks = stored({"a": [b"1" * 40], "b": [b"2"]}, PROFILES["f"])
    get, root = getter(blocks), done.root.parts

    def count(path: list[str], scope: Scope) -> int:
        return len(list(walk(get, root, path=path, scope=scope)))

    assert [count([], scope) for scope in Scope] == [1, 1, len(blocks)]
    assert [count(["a"], scope) for scope in Scope] == [2, 4, 4]  # the leaf 1111111111111111 comes once
    assert [count(["b"], scope) for scope in Scope] == [2, 2, 2]


@each_row("scope", [Scope.ENTITY, Scope.ALL])
def test_duplicates_are_sent_only_when_asked_for(scope: Scope) -> None:
    done, blocks = stored({"zeros": [bytes(16 * 7)]}, PROFILES["f"])
    root = done.root.entries["zeros"].parts
    once = [cid.digest for cid, _ in walk(getter(blocks), root, scope=scope)]
    every = [cid.digest for cid, _ in walk(getter(blocks), root, scope=scope, duplicates=True)]
    assert len(once) == len(set(once)) == len(set(every))
    assert len(every) == 7 + 3 + 1  # 7 leaves below 3 nodes below the root
    assert list(dict.fromkeys(every)) == once


def test_a_part_that_comes_again_is_walked_again_where_other_leaves_of_it_are_needed() -> None:
    profile = Profile("letters", 1, raw_leaves=True, chunk_size=1, width=3)
    done, blocks = stored({"file": [b"abcabc"]}, profile)
    root = done.root.entries["file"].parts
    sent = [block for _, block in walk(getter(blocks), root, entity_bytes=EntityBytes(2, 3))]
    assert len(sent) == len(set(sent)) == 4
    assert sent[2:] == [b"c", b"a"]


def test_an_identity_cid_has_no_block() -> None:
    assert list(walk(getter({}), decode_cid("bafkqaaa"))) == []


def test_a_tree_that_repeats_itself_costs_no_more_than_its_blocks() -> None:
    leaf = block_of(b"x")
    blocks, cid, size = {leaf.digest: leaf.data}, CidParts(1, RAW, SHA2_256, leaf.digest), 1
    for _ in range(DEPTH_MAX - 1):
        cid, block = tree([Link(cid, 0), Link(cid, 0)], [size, size])
        blocks[cid.digest], size = block, size * 2
    for scope in (Scope.ENTITY, Scope.ALL):
        assert len(list(walk(getter(blocks), cid, scope=scope))) == len(blocks)
    assert open_file(getter(blocks), cid).size == 2 ** (DEPTH_MAX - 1)


def test_a_tree_that_is_too_deep_is_refused() -> None:
    leaf = block_of(b"x")
    blocks, cid = {leaf.digest: leaf.data}, CidParts(1, RAW, SHA2_256, leaf.digest)
    for _ in range(DEPTH_MAX + 1):
        cid, block = tree([Link(cid, 0)], [1])
        blocks[cid.digest] = block
    with pytest.raises(Integrity, match="deeper"):
        list(open_file(getter(blocks), cid).read())
    with pytest.raises(Integrity, match="deeper"):
        list(walk(getter(blocks), cid))


@each_row("sizes", [[2], [1, 1], [], [0]])
def test_a_file_that_contradicts_its_tree_is_damaged(sizes: list[int]) -> None:
    leaf = block_of(b"x")
    cid, block = tree([Link(CidParts(1, RAW, SHA2_256, leaf.digest), 1)], sizes)
    with pytest.raises(Integrity):
        list(open_file(getter({leaf.digest: leaf.data, cid.digest: block}), cid).read())


@each_row("child", [CidParts(1, 0x71, SHA2_256, bytes(32)), CidParts(1, RAW, 0x13, bytes(64))])
def test_a_link_to_another_kind_of_block_is_refused(child: CidParts) -> None:
    cid, block = tree([Link(child, 1)], [1])
    with pytest.raises(Integrity, match="not held here"):
        list(walk(getter({cid.digest: block}), cid))
