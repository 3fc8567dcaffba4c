"""CAR files: the same bytes as from other tools; only sound files are read."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, strategies as st
from ipfs_vectors import CASES, PROFILES, VECTORS, input_bytes, stored

from each_row import each_row
from muniment.protocol.errors import Integrity
from muniment.protocol.ipfs.block import BLOCK_SIZE_MAX, block_of
from muniment.protocol.ipfs.car import ROOTS_MAX, car_header, car_section, read_car
from muniment.protocol.ipfs.cid import DAG_PB, RAW, SHA2_256, CidParts, decode_cid
from muniment.protocol.ipfs.dag import walk

CARS = [(case, profile) for case in CASES.values() for profile in case.get("cars", {})]
SOUND = (VECTORS / "ipfs" / "minimal.a.car").read_bytes()
blocks = st.lists(st.tuples(st.binary(max_size=50), st.sampled_from([(0, DAG_PB), (1, DAG_PB), (1, RAW)])), max_size=5)


def drain(car: bytes) -> tuple[tuple[CidParts, ...], int]:
    """The roots of a CAR file, and how many blocks it has."""
    roots, sections = read_car(io.BytesIO(car))
    return roots, sum(1 for _ in sections)


@each_row(("case", "profile"), CARS, ids=[f"{case['name']}-{profile}" for case, profile in CARS])
def test_a_bundle_becomes_the_reference_car_file(case: dict[str, Any], profile: str) -> None:
    done, held = stored({file["name"]: [input_bytes(file["generator"])] for file in case["inputs"]}, PROFILES[profile])
    facts = case["cars"][profile]
    sent = list(walk(held.__getitem__, done.root.parts))
    car = car_header([done.root.parts]) + b"".join(car_section(cid, block) for cid, block in sent)
    assert car == (VECTORS / "ipfs" / facts["file"]).read_bytes()
    assert [cid.text for cid, _ in sent] == facts["blocks"]


@each_row(("case", "profile"), CARS, ids=[f"{case['name']}-{profile}" for case, profile in CARS])
def test_a_reference_car_file_is_read(case: dict[str, Any], profile: str) -> None:
    facts = case["cars"][profile]
    with (VECTORS / "ipfs" / facts["file"]).open("rb") as file:
        roots, sections = read_car(file)
        assert [root.text for root in roots] == facts["roots"]
        assert [cid.text for cid, _ in sections] == facts["blocks"]


@given(blocks)
def test_a_written_car_is_read(contents: list[tuple[bytes, tuple[int, int]]]) -> None:
    sent = [(CidParts(*kind, SHA2_256, block_of(data).digest), data) for data, kind in contents]
    roots = [cid for cid, _ in sent]
    car = car_header(roots) + b"".join(car_section(cid, data) for cid, data in sent)
    read_roots, sections = read_car(io.BytesIO(car))
    assert (list(read_roots), list(sections)) == (roots, sent)


def test_the_probe_is_a_car_of_no_blocks() -> None:
    header = car_header([decode_cid("bafkqaaa")])
    assert header.hex() == "19" + "a265726f6f747381d82a450001550000" + "6776657273696f6e01"
    roots, sections = read_car(io.BytesIO(header))
    assert ([root.text for root in roots], list(sections)) == (["bafkqaaa"], [])


def test_a_header_has_a_bounded_number_of_roots() -> None:
    root = decode_cid("bafkqaaa")
    assert read_car(io.BytesIO(car_header([root] * ROOTS_MAX)))[0] == (root,) * ROOTS_MAX
    with pytest.raises(ValueError, match="at most"):
        car_header([root] * (ROOTS_MAX + 1))


def test_a_flipped_bit_is_noticed_everywhere_but_in_the_root_that_was_asked_for() -> None:
    roots, _ = drain(SOUND)
    unnoticed = 0
    for at in range(len(SOUND)):
        try:
            changed, _ = drain(SOUND[:at] + bytes((SOUND[at] ^ 1,)) + SOUND[at + 1 :])
        except Integrity:
            continue
        unnoticed += 1
        assert changed != roots
    assert unnoticed == 32


def test_a_cut_is_noticed_or_leaves_whole_blocks() -> None:
    _, count = drain(SOUND)
    whole = 0
    for at in range(len(SOUND)):
        try:
            _, fewer = drain(SOUND[:at])
        except Integrity:
            continue
        whole += 1
        assert fewer < count
    assert whole == count


@each_row(
    "tail",
    [
        b"\x00",
        b"\x81",
        b"\x80" * 10,
        b"\x81\x00",
        b"\xff\xff\xff\x7f",
        car_section(CidParts(1, RAW, 0x13, bytes(64)), b""),
        car_section(CidParts(1, RAW, SHA2_256, block_of(bytes(BLOCK_SIZE_MAX + 1)).digest), bytes(BLOCK_SIZE_MAX + 1)),
        b"\x02\x01\x55",
    ],
    ids=["empty", "cut-length", "long-length", "padded-length", "huge", "sha2-512", "large-block", "cut-cid"],
)
def test_a_malformed_section_is_refused(tail: bytes) -> None:
    _, sections = read_car(io.BytesIO(SOUND + tail))
    with pytest.raises(Integrity):
        list(sections)


@each_row(
    "header",
    [
        "",
        "a0",
        "a265726f6f747380" + "6776657273696f6e02",  # version 2
        "a265726f6f747380" + "6776657273696f6e01" + "00",
        "a265726f6f7473" + "98",  # an array of unknown length
        "a265726f6f747381",  # a root is missing
        "a265726f6f747381d82a" + "44" + "01550000" + "6776657273696f6e01",  # no multibase zero
        "a265726f6f747381d82a" + "5805" + "0001550000" + "6776657273696f6e01",  # a length not in its shortest form
        "a265726f6f747381d82a" + "46" + "000155000000" + "6776657273696f6e01",  # something after the CID
        "a265726f6f747381d82a" + "0101" + "0001550000" + "6776657273696f6e01",  # a number for a CID
    ],
)
def test_a_malformed_header_is_refused(header: str) -> None:
    data = bytes.fromhex(header)
    with pytest.raises(Integrity):
        read_car(io.BytesIO(bytes((len(data),)) + data))


@given(st.binary(max_size=120) | st.binary(max_size=60).map(lambda tail: bytes.fromhex("19a265726f6f7473") + tail))
def test_any_bytes_are_a_car_or_damaged(data: bytes) -> None:
    try:
        roots, sections = read_car(io.BytesIO(data))
        read = list(sections)
    except Integrity:
        return
    assert car_header(roots) + b"".join(car_section(cid, block) for cid, block in read) == data
