"""Every root, file CID, size and block count that other implementations computed."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

import pytest
from ipfs_vectors import CASES, GOLDENS, PROFILES, VECTORS, chacha20_stream, input_bytes, stored

from each_row import each_row
from muniment.protocol.ipfs.unixfs import UNIXFS_V0_2015, UNIXFS_V1_2025, Import, Root, directory, import_file

OFFICIAL = {"a": UNIXFS_V0_2015, "c": UNIXFS_V1_2025}
# Two goldens of 1 GiB take many seconds to generate; the same shape is reached by other vectors with small chunks.
GOLDEN_FILES = [golden for golden in GOLDENS["files"] if not golden.get("huge")]
NAME_LETTERS = b"abcdefghijklmnopqrstuvwxyz01234567890-_"


@lru_cache(maxsize=1)
def inputs_of(case_name: str) -> dict[str, bytes]:
    files = {file["name"]: input_bytes(file["generator"]) for file in CASES[case_name]["inputs"]}
    for file in CASES[case_name]["inputs"]:
        assert hashlib.sha256(files[file["name"]]).hexdigest() == file["sha256"]
    return files


@pytest.mark.long
@pytest.mark.parametrize(
    ("case_name", "profile_name"), [(name, profile) for name, case in CASES.items() for profile in case["expected"]]
)
def test_a_bundle_gets_the_reference_cids_and_blocks(case_name: str, profile_name: str) -> None:
    expected = CASES[case_name]["expected"][profile_name]
    done, blocks = stored({name: [data] for name, data in inputs_of(case_name).items()}, PROFILES[profile_name])
    assert done.root.cid == expected["root"]
    assert done.root.tsize == expected["rootTsize"]
    assert {name: {"cid": root.cid, "tsize": root.tsize} for name, root in done.root.entries.items()} == expected[
        "files"
    ]
    assert len(blocks) == expected["distinctBlocks"]
    assert sum(map(len, blocks.values())) == expected["storedBytes"]
    if "rootBlockHex" in expected:
        assert blocks[done.root.parts.digest].hex() == expected["rootBlockHex"]


@each_row("profile_name", ["a", "c"])
def test_the_official_profiles_are_those_of_the_vectors(profile_name: str) -> None:
    ours, theirs = OFFICIAL[profile_name], PROFILES[profile_name]
    choices = ("cid_version", "raw_leaves", "chunk_size", "width")
    assert [getattr(ours, choice) for choice in choices] == [getattr(theirs, choice) for choice in choices]


@each_row("golden", GOLDEN_FILES, ids=lambda golden: f"{golden['profile']}-{golden.get('n', 'text')}")
def test_a_file_gets_the_cid_that_kubo_gives_it(golden: dict[str, Any]) -> None:
    pieces = [golden["text"].encode()] if "text" in golden else chacha20_stream(golden["seed"], golden["n"])
    assert _root(Import(import_file(pieces, OFFICIAL[golden["profile"]]))).cid == golden["cid"]


@each_row("golden", GOLDENS["directories"]["cases"], ids=lambda golden: golden["profile"])
def test_a_large_plain_directory_gets_the_cid_that_kubo_gives_it(golden: dict[str, Any]) -> None:
    profile = OFFICIAL[golden["profile"]]
    x = _root(Import(import_file([b"x"], profile)))
    lengths = [golden["nameLen"]] * (golden["count"] - 1) + [golden["lastNameLen"]]
    stream = b"".join(chacha20_stream(golden["seed"], sum(lengths)))
    letters, names, at = bytes(NAME_LETTERS[byte % 39] for byte in stream).decode(), list[str](), 0
    for length in lengths:
        names.append(letters[at : at + length])
        at += length
    assert directory(dict.fromkeys(names, x), profile)[0].cid == golden["cid"]


def test_empty_things_have_their_well_known_cids() -> None:
    known = GOLDENS["wellKnown"]
    assert directory({}, UNIXFS_V0_2015)[0].cid == known["emptyDirectoryV0"]
    assert directory({}, UNIXFS_V1_2025)[0].cid == known["emptyDirectoryV1"]
    assert _root(Import(import_file([], UNIXFS_V0_2015))).cid == known["emptyFileA"]
    assert _root(Import(import_file([], PROFILES["b"]))).cid == known["emptyFileB"]


@each_row("bundle", sorted(path.parent for path in VECTORS.glob("bundles/*/cids.json")), ids=lambda p: p.name)
def test_the_sample_bundles_get_their_cids(bundle: Any) -> None:
    files = {name: [(bundle / name).read_bytes()] for name in ("manifest.json", "function.wasm")}
    for profile_name, expected in json.loads((bundle / "cids.json").read_bytes())["cids"].items():
        done, _ = stored(dict(files), PROFILES[profile_name])
        assert (done.root.cid, done.root.tsize) == (expected["root"], expected["rootTsize"])
        assert {name: root.cid for name, root in done.root.entries.items()} == {name: expected[name] for name in files}


def _root(done: Import) -> Root:
    assert list(done)
    return done.root
