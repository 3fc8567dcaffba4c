"""The block store in files: what is put is durable, whole and verified."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muniment.blocks.files import FileBlockStore
from muniment.blocks.store import BlockStore
from muniment.errors import ContentNotFound, Integrity
from muniment.ipfs.block import BLOCK_SIZE_MAX, Block, block_of

HELLO = block_of(b"hello")
EMPTY = block_of(b"")
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


def test_what_is_put_is_got(store: FileBlockStore) -> None:
    as_store: BlockStore = store
    as_store.put_many([HELLO, EMPTY, HELLO])
    assert (as_store.get(HELLO.digest), as_store.get(EMPTY.digest)) == (b"hello", b"")
    assert (as_store.size(HELLO.digest), as_store.size(EMPTY.digest)) == (5, 0)
    assert as_store.has(HELLO.digest)
    assert list(as_store.digests()) == sorted([HELLO.digest, EMPTY.digest])
    assert files_under(store._root) == sorted([path_of(store, HELLO), path_of(store, EMPTY)])


def test_what_is_not_here_is_not_found(store: FileBlockStore) -> None:
    assert not store.has(HELLO.digest)
    with pytest.raises(ContentNotFound):
        store.get(HELLO.digest)
    with pytest.raises(ContentNotFound):
        store.size(HELLO.digest)


def test_a_block_is_a_plain_file_that_others_may_read(store: FileBlockStore) -> None:
    mask = os.umask(0o022)
    try:
        store.put_many([HELLO])
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path_of(store, HELLO).stat().st_mode) == 0o644


def test_another_store_on_the_same_directory_sees_the_blocks(store: FileBlockStore) -> None:
    store.put_many(MANY)
    again = FileBlockStore(store._root)
    assert [again.get(block.digest) for block in MANY] == [block.data for block in MANY]
    assert list(again.digests()) == sorted(block.digest for block in MANY)


@pytest.mark.parametrize("damage", [b"hellp", b"hell", b"hello!", b""])
def test_a_damaged_block_is_never_given_and_is_mended_by_the_next_put(store: FileBlockStore, damage: bytes) -> None:
    store.put_many([HELLO])
    path_of(store, HELLO).write_bytes(damage)
    with pytest.raises(Integrity, match=HELLO.digest.hex()):
        store.get(HELLO.digest)
    store.put_many([HELLO])
    assert store.get(HELLO.digest) == b"hello"
    assert files_under(store._root) == [path_of(store, HELLO)]


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


def test_a_block_beyond_the_limit_is_a_mistake_of_the_caller(store: FileBlockStore) -> None:
    with pytest.raises(ValueError, match="at most"):
        store.put_many([block_of(bytes(BLOCK_SIZE_MAX + 1))])
    store.put_many([block_of(bytes(BLOCK_SIZE_MAX))])


def test_what_the_source_raises_comes_through_and_leaves_whole_blocks(store: FileBlockStore) -> None:
    def source() -> Iterator[Block]:
        yield HELLO
        raise Integrity("the source broke")

    with pytest.raises(Integrity, match="the source broke"):
        store.put_many(source())
    assert files_under(store._root) == [path_of(store, HELLO)]


def test_files_that_are_no_blocks_are_passed_over(store: FileBlockStore) -> None:
    store.put_many([HELLO])
    (store._root / "2c" / "README").write_text("")
    (store._root / "2c" / ("g" * 62)).write_text("")
    assert list(store.digests()) == [HELLO.digest]


def test_threads_may_put_the_same_blocks_at_once(store: FileBlockStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.put_many, [MANY] * 8))
    assert [store.get(block.digest) for block in MANY] == [block.data for block in MANY]
    assert len(files_under(store._root)) == len(MANY)


PUT = """
import sys
from pathlib import Path
from muniment.blocks.files import FileBlockStore
from muniment.ipfs.block import block_of
store = FileBlockStore(Path(sys.argv[1]))
store._links_unnamed = sys.argv[2] == "True"
for _ in range(3):
    store.put_many(block_of(number.to_bytes(4, "big") * 500) for number in range(40))
"""


def test_processes_may_put_the_same_blocks_at_once(store: FileBlockStore) -> None:
    command = [sys.executable, "-c", PUT, str(store._root), str(store._links_unnamed)]
    writers = [subprocess.Popen(command) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert [store.get(block.digest) for block in MANY] == [block.data for block in MANY]
    assert len(files_under(store._root)) == len(MANY)
