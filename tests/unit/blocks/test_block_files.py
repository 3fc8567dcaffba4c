"""The block store in files: stored blocks are durable, whole and verified."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from muniment.protocol.errors import Integrity
from muniment.protocol.ipfs.block import Block, block_of
from muniment.service.blocks.files import FileBlockStore

HELLO = block_of(b"hello")
MANY = [block_of(number.to_bytes(4, "big") * 500) for number in range(40)]


@pytest.fixture(params=["unnamed", "renamed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileBlockStore:
    """Both ways of writing: with O_TMPFILE, and by renaming where the file system has no such thing."""
    made = FileBlockStore(tmp_path / "data" / "blocks")
    made._links_unnamed = request.param == "unnamed"
    return made


def path_of(store: FileBlockStore, block: Block) -> Path:
    return store._root / block.digest.hex()[:2] / block.digest.hex()[2:]


def files_under(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_the_file_system_of_the_tests_can_link_unnamed_files(tmp_path: Path) -> None:
    assert FileBlockStore(tmp_path)._links_unnamed


def test_a_block_is_a_plain_file_that_others_may_read(store: FileBlockStore) -> None:
    mask = os.umask(0o022)
    try:
        store.put_many([HELLO])
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path_of(store, HELLO).stat().st_mode) == 0o644


def test_a_sound_block_is_not_written_again(store: FileBlockStore) -> None:
    store.put_many([HELLO])
    before = path_of(store, HELLO).stat()
    store.put_many([HELLO])
    after = path_of(store, HELLO).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_block_that_grew_without_bound_is_not_read_whole(store: FileBlockStore) -> None:
    store.put_many([HELLO])
    os.truncate(path_of(store, HELLO), 1 << 40)
    with pytest.raises(Integrity):
        store.get(HELLO.digest)
    store.put_many([HELLO])
    assert store.get(HELLO.digest) == b"hello"


def test_other_files_than_blocks_are_skipped(store: FileBlockStore) -> None:
    store.put_many([HELLO])
    (store._root / "2c" / "README").write_text("")
    (store._root / "2c" / ("g" * 62)).write_text("")
    assert list(store.digests()) == [HELLO.digest]


PUT = """
import sys
from pathlib import Path
from muniment.service.blocks.files import FileBlockStore
from muniment.protocol.ipfs.block import block_of
store = FileBlockStore(Path(sys.argv[1]))
store._links_unnamed = sys.argv[2] == "True"
for _ in range(3):
    store.put_many(block_of(number.to_bytes(4, "big") * 500) for number in range(40))
"""


@pytest.mark.programs
def test_processes_may_put_the_same_blocks_concurrently(store: FileBlockStore) -> None:
    command = [sys.executable, "-c", PUT, str(store._root), str(store._links_unnamed)]
    writers = [subprocess.Popen(command) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert [store.get(block.digest) for block in MANY] == [block.data for block in MANY]
    assert len(files_under(store._root)) == len(MANY)
