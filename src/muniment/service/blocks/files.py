"""Blocks as files: `<root>/ab/cdef…`, two and 62 hex digits of the sha2-256 digest.

A block appears whole or not at all: it is written and flushed to disk as a file without a name (`O_TMPFILE`), and then
linked to its place. If the file system cannot do that, or if a damaged block is replaced, the block is written in
`<root>/tmp` and renamed. The next start removes files that a crash left there.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from muniment import durable
from muniment.protocol.errors import ContentNotFound, StorageUnavailable
from muniment.protocol.ipfs.block import BLOCK_SIZE_MAX, check_block
from muniment.service.blocks.store import Spool, disk_failures

# Writing a block takes a few seconds at most, so the writer of a temporary file of this age is gone.
_ABANDONED_SECONDS: Final = 600
_FILE_MODE: Final = 0o644
_SHARD_LENGTH: Final = 2
_BLOCK_NAME: Final = re.compile("[0-9a-f]{62}")
_SHARDS: Final = tuple(f"{number:02x}" for number in range(256))


class FileBlockStore:
    """A `BlockStore` in a directory, which several processes may share."""

    def __init__(self, root: Path) -> None:
        """Make the directory if it does not exist, and remove old temporary files; raises `StorageUnavailable`."""
        self._root = root
        self._temporary = root / "tmp"
        with disk_failures():
            self._prepare()
            self._links_unnamed = self._can_link_unnamed()

    def put_many(self, blocks: Iterable[tuple[bytes, bytes]]) -> None:
        """Store pairs of digest and bytes, which must belong together; durable when this returns."""
        touched: set[str] = set()
        with disk_failures():
            for digest, data in blocks:
                name = digest.hex()
                shard = f"{self._root}/{name[:_SHARD_LENGTH]}"
                self._put(shard, name[_SHARD_LENGTH:], data)
                touched.add(shard)
            # Also for a block that existed: its writer may not have flushed the directory yet.
            for shard in sorted(touched):
                durable.flush_directory(shard)

    def get(self, digest: bytes) -> bytes:
        """The bytes of a block, hashed anew; raises `ContentNotFound`, or `Integrity` when they are damaged."""
        with disk_failures():
            try:
                with self._path(digest).open("rb") as file:
                    data = file.read(BLOCK_SIZE_MAX + 1)
            except FileNotFoundError as error:
                raise _not_found(digest) from error
        return check_block(digest, data)

    def size(self, digest: bytes) -> int:
        """The length in bytes of a block, which is not read; raises `ContentNotFound`."""
        with disk_failures():
            try:
                return self._path(digest).stat().st_size
            except FileNotFoundError as error:
                raise _not_found(digest) from error

    def has(self, digest: bytes) -> bool:
        """Whether the store has a block. Its bytes are not read."""
        with disk_failures():
            return self._path(digest).exists()

    def digests(self) -> Iterator[bytes]:
        """The digests of all blocks in ascending order; blocks that are added or removed meanwhile may be missing."""
        for shard in _SHARDS:
            with disk_failures():
                names = sorted(path.name for path in (self._root / shard).iterdir())
            yield from (bytes.fromhex(shard + name) for name in names if _BLOCK_NAME.fullmatch(name))

    def check(self) -> None:
        """Return if every directory exists and a file can be written."""
        with disk_failures():
            there = os.listdir(self._root)  # noqa: PTH208 - only the names of 256 directories are needed
        if not set(_SHARDS) <= set(there):
            raise StorageUnavailable("the directory of the block store lacks parts: is its volume mounted?")
        with disk_failures():
            durable.prove_writing(self._temporary)

    def open_spool(self) -> Spool:
        """A place for an upload: in memory while it is small, then a nameless file on the same disk as the blocks."""
        return Spool(self._temporary)

    def _path(self, digest: bytes) -> Path:
        name = digest.hex()
        return self._root / name[:_SHARD_LENGTH] / name[_SHARD_LENGTH:]

    def _prepare(self) -> None:
        made = [path for path in (self._temporary, *self._temporary.parents) if not path.exists()]
        self._temporary.mkdir(parents=True, exist_ok=True)
        there = set(os.listdir(self._root))  # noqa: PTH208 - only the names of 256 directories are needed
        for shard in _SHARDS:
            if shard not in there:
                (self._root / shard).mkdir(exist_ok=True)  # another process may be making it
        # Always the root: another process may have just made the directories, and not flushed the root yet.
        for directory in {self._root, *(path.parent for path in made)}:
            durable.flush_directory(directory)
        for left in self._temporary.iterdir():
            with suppress(FileNotFoundError):
                if left.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                    left.unlink()

    def _can_link_unnamed(self) -> bool:
        """Whether nameless files can be linked: needs Linux, /proc and a file system with `O_TMPFILE` (not NFS)."""
        probe = self._temporary / secrets.token_hex(16)
        try:
            _write_unnamed(str(self._temporary), probe.name, b"")
        except OSError:
            return False
        finally:
            with suppress(OSError):  # a read-only file system refuses even to remove a missing file
                probe.unlink()
        return True

    def _put(self, shard: str, name: str, data: bytes) -> None:
        if len(data) > BLOCK_SIZE_MAX:
            raise ValueError(f"a block has at most {BLOCK_SIZE_MAX} bytes")
        path = f"{shard}/{name}"
        if os.path.exists(path):  # noqa: PTH110 - making a Path takes longer than the system call
            if not _holds(Path(path), data):
                self._replace(Path(path), data)
        elif self._links_unnamed:
            with suppress(FileExistsError):  # another writer was faster, with the same bytes
                _write_unnamed(shard, name, data)
        else:
            self._replace(Path(path), data)

    def _replace(self, path: Path, data: bytes) -> None:
        temporary = self._temporary / secrets.token_hex(16)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
            try:
                durable.write_through(descriptor, data)
            finally:
                os.close(descriptor)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _not_found(digest: bytes) -> ContentNotFound:
    return ContentNotFound(f"block {digest.hex()} is not held here")


def _holds(path: Path, data: bytes) -> bool:
    """Whether the file holds exactly these bytes; False also for a missing file, and for a bad sector."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size == len(data) and file.read() == data
    except OSError as error:
        if error.errno in {errno.EIO, errno.ENOENT}:
            return False
        raise


def _write_unnamed(directory: str, name: str, data: bytes) -> None:
    """Write a file that gets its name once its bytes are on disk; raises `FileExistsError`."""
    descriptor = os.open(directory, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, _FILE_MODE)
    try:
        durable.write_through(descriptor, data)
        # Given `src_dir_fd`, `os.link` calls linkat(2) with AT_SYMLINK_FOLLOW, as open(2) shows for O_TMPFILE. Any
        # descriptor works, because the source path is absolute.
        os.link(f"/proc/self/fd/{descriptor}", f"{directory}/{name}", src_dir_fd=descriptor, follow_symlinks=True)
    finally:
        os.close(descriptor)
