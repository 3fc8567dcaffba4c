"""Trees, tiles, proofs and notes, judged by golang.org/x/mod/sumdb, which another team wrote."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_tiles import tiles_of
from tlog_trees import Nodes, entries

from muniment.protocol.log.checkpoints import Checkpoint
from muniment.protocol.log.notes import ED25519, keys_of_log, parse_note, sign_note, verified
from muniment.protocol.log.tiles import Tile
from muniment.protocol.log.tree import consistency_ranges, hashes_of, inclusion_ranges, leaf_hash, root_hash

# Where Debian's package golang-golang-x-mod-dev puts its sources.
GOPATH = Path("/usr/share/gocode")
SIZES = (1, 2, 3, 7, 255, 256, 257, 512, 700)
KEY, TIME_KEY = keys_of_log("registry.example/log/1", bytes(range(32)))


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def sizes(nodes: Nodes) -> list[dict[str, Any]]:
    return [
        {
            "Size": size, "Index": index, "Old": old,
            "Root": text_of(root_hash(size, nodes)), "OldRoot": text_of(root_hash(old, nodes)),
            "Inclusion": [text_of(each) for each in hashes_of(inclusion_ranges(index, size), nodes)],
            "Consistency": [text_of(each) for each in hashes_of(consistency_ranges(old, size), nodes)],
        }
        for size in SIZES
        for index, old in ((0, size), (size - 1, max(1, size - 1)), (size // 2, size // 2 + 1))
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("go") is None or not (GOPATH / "src/golang.org/x/mod/sumdb/tlog").is_dir(),
    reason="needs Go and golang.org/x/mod: apt install golang-go golang-golang-x-mod-dev",
)
def test_another_implementation_finds_the_same_tree_and_the_same_signature(tmp_path: Path) -> None:
    leaves = entries(max(SIZES))
    nodes = Nodes([leaf_hash(each) for each in leaves])
    note = sign_note(Checkpoint(KEY.verifier.name, 700, root_hash(700, nodes)).text, [KEY, TIME_KEY], 1)
    key = KEY.verifier
    private = f"PRIVATE+KEY+{key.name}+{key.key_id.hex()}+{text_of(bytes((ED25519,)) + KEY.private_key)}"
    given = {
        "Entries": [text_of(each) for each in leaves],
        "Sizes": sizes(nodes),
        "Tiles": {
            f"tile/8/{Tile(*at, len(data) // 32).path}": text_of(data) for at, data in tiles_of(leaves).items()
        },
        "Note": text_of(note.data), "Key": key.text, "PrivateKey": private,
    }  # fmt: skip
    done = subprocess.run(
        ["go", "run", str(Path(__file__).parent / "reference" / "main.go")],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "GO111MODULE": "off", "GOPATH": str(GOPATH), "GOFLAGS": ""},
    )
    assert done.stderr == ""
    theirs = parse_note(json.loads(done.stdout)["note"].encode())
    assert theirs.signatures == note.signatures[:1]
    assert verified(theirs, [KEY.verifier]) == {KEY.verifier: 0}
