"""The block store in files when the disk fails, fills up, or the process is killed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from muniment.protocol.errors import StorageUnavailable
from muniment.protocol.ipfs.block import block_of
from muniment.service.blocks.files import FileBlockStore

HELLO, WORLD = block_of(b"hello"), block_of(b"world")


@pytest.fixture(params=["unnamed", "renamed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileBlockStore:
    made = FileBlockStore(tmp_path / "blocks")
    made._links_unnamed = request.param == "unnamed"
    return made


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were flushed to disk, in order: no test can observe that otherwise."""
    names: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        names.append(path.name if path.is_dir() else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return names


def files_under(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_every_file_and_then_each_directory_is_flushed(store: FileBlockStore, flushed: list[str]) -> None:
    shards = sorted({HELLO.digest.hex()[:2], WORLD.digest.hex()[:2]})
    store.put_many([HELLO, WORLD])
    assert flushed == ["file", "file", *shards]


def test_the_directory_is_flushed_once_for_all_its_blocks(store: FileBlockStore, flushed: list[str]) -> None:
    by_shard: dict[str, list[Any]] = {}
    for number in range(2000):
        block = block_of(str(number).encode())
        by_shard.setdefault(block.digest.hex()[:2], []).append(block)
    shard, blocks = max(by_shard.items(), key=lambda item: len(item[1]))
    store.put_many(blocks)
    assert flushed == ["file"] * len(blocks) + [shard]


def test_the_directory_of_a_block_that_was_here_is_flushed_too(store: FileBlockStore, flushed: list[str]) -> None:
    store.put_many([HELLO])
    flushed.clear()
    store.put_many([HELLO])
    assert flushed == [HELLO.digest.hex()[:2]]


def test_new_directories_are_flushed_when_the_store_is_opened(tmp_path: Path, flushed: list[str]) -> None:
    FileBlockStore(tmp_path / "new" / "blocks")
    assert {tmp_path.name, "new", "blocks"} <= set(flushed)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG])
@pytest.mark.parametrize("call", ["write", "fsync", "open"])
def test_a_failing_disk_is_storage_unavailable_and_leaves_nothing(
    store: FileBlockStore, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, "fault")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StorageUnavailable, match=os.strerror(code)):
            store.put_many([HELLO])
    assert files_under(store._root) == []
    store.put_many([HELLO])
    assert store.get(HELLO.digest) == b"hello"


def test_a_failure_while_mending_leaves_the_damaged_block_and_no_other_file(
    store: FileBlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_many([HELLO])
    [path] = files_under(store._root)
    path.write_bytes(b"wrong")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "fault")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StorageUnavailable):
            store.put_many([HELLO])
    assert files_under(store._root) == [path]


def test_a_directory_that_cannot_be_made_is_storage_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnavailable):
        FileBlockStore(tmp_path / "file" / "blocks")


def test_a_store_whose_directory_is_gone_cannot_be_listed(store: FileBlockStore) -> None:
    (store._root / "00").rmdir()
    with pytest.raises(StorageUnavailable):
        list(store.digests())


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOENT, errno.EACCES])
def test_a_block_with_a_bad_sector_is_written_anew(
    store: FileBlockStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    mended = code != errno.EACCES
    store.put_many([HELLO])
    [path] = files_under(store._root)
    before = path.stat().st_ino

    def fail(*_: object) -> None:
        raise OSError(code, "fault")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fail)
        with nullcontext() if mended else pytest.raises(StorageUnavailable):
            store.put_many([HELLO])
    assert (path.stat().st_ino != before) == mended
    assert store.get(HELLO.digest) == b"hello"


def test_a_file_system_without_unnamed_files_is_served_by_renaming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no such thing here")

    monkeypatch.setattr(os, "link", fail)
    store = FileBlockStore(tmp_path)
    store.put_many([HELLO])
    assert store.get(HELLO.digest) == b"hello"
    assert len(files_under(tmp_path)) == 1


FILL = """
import resource, sys
from pathlib import Path
from muniment.service.blocks.files import FileBlockStore
from muniment.protocol.errors import StorageUnavailable
from muniment.protocol.ipfs.block import block_of
store = FileBlockStore(Path(sys.argv[1]))
store._links_unnamed = sys.argv[2] == "True"
large = block_of(bytes(300_000))
spool = store.open_spool()
spool.write(bytes(1_500_000))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
for attempt in (lambda: store.put_many([large]), lambda: spool.write(b'x')):
    try:
        attempt()
    except StorageUnavailable as error:
        print(error.detail)
spool.close()
print(sorted(path.name for path in Path(sys.argv[1]).rglob("*") if path.is_file()))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.put_many([large])
print(len(store.get(large.digest)))
"""


def test_a_real_limit_on_files_is_refused_and_later_all_is_well(store: FileBlockStore) -> None:
    command = [sys.executable, "-c", FILL, str(store._root), str(store._links_unnamed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    refused = "the block store does not answer: File too large"
    assert (done.stderr, done.stdout.splitlines()) == ("", [refused, refused, "[]", "300000"])


KILLED = """
import os, signal, sys
from pathlib import Path
from muniment.service.blocks.files import FileBlockStore
from muniment.protocol.ipfs.block import block_of
store = FileBlockStore(Path(sys.argv[1]))
store._links_unnamed = sys.argv[2] == "True"
spool = store.open_spool()
spool.write(bytes(3_000_000))
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
store.put_many([block_of(b"hello")])
"""


def test_a_killed_writer_leaves_no_part_of_a_block(store: FileBlockStore) -> None:
    command = [sys.executable, "-c", KILLED, str(store._root), str(store._links_unnamed)]
    assert subprocess.run(command, timeout=60, check=False).returncode == -9
    assert not store.has(HELLO.digest)
    left = files_under(store._root)
    assert [path.parent.name for path in left] == ([] if store._links_unnamed else ["tmp"])
    for path in left:
        os.utime(path, (0, time.time() - 3600))
    again = FileBlockStore(store._root)
    assert files_under(store._root) == []
    again.put_many([HELLO])


def test_a_sweep_spares_the_file_of_a_writer_at_work(store: FileBlockStore) -> None:
    young = store._temporary / "0123"
    young.write_bytes(b"")
    FileBlockStore(store._root)
    assert young.exists()


def test_a_directory_on_a_read_only_file_system_can_be_opened_and_read(
    store: FileBlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a backup that is mounted so: each call that would write fails, whether there was something to do or not."""
    store.put_many([HELLO])

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "fault")

    descriptor = os.open

    def open_to_read(path: str, flags: int, *more: int, **directory: int) -> int:
        return descriptor(path, flags, *more, **directory) if not flags & (os.O_WRONLY | os.O_RDWR) else fail() or 0

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fail)
        patch.setattr(os, "open", open_to_read)
        assert FileBlockStore(store._root).get(HELLO.digest) == b"hello"
        with pytest.raises(StorageUnavailable):
            store.put_many([WORLD])
