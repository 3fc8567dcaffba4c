"""The protocol of a block store, places for uploads, and refusals for failures of the disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final, Protocol, Self

from muniment.protocol.errors import StorageUnavailable

if TYPE_CHECKING:
    from pathlib import Path

# Uploads up to this size stay in memory while they arrive: most bundles are 80 to 140 KB.
SPOOL_MEMORY_MAX: Final = 256 * 1024
# Bytes of one read from a file.
_PIECE_BYTES: Final = 256 * 1024


class Spool:
    """An upload in progress: first in memory, then in a file without a name, which does not survive a crash.

    First it has one writer, then any number of readers. Every method raises `StorageUnavailable` when the disk fails.
    """

    def __init__(self, directory: Path) -> None:
        """Keep up to `SPOOL_MEMORY_MAX` bytes in memory, and a longer upload in `directory`."""
        self._directory = directory
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._size = 0
        self._hash = hashlib.sha256()
        self.closed = False

    @property
    def is_on_disk(self) -> bool:
        """Whether the upload has moved to the disk because of its size."""
        return self._file is not None

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`."""
        self._hash.update(data)
        self._size += len(data)
        if self._file is None and self._size <= SPOOL_MEMORY_MAX:
            self._memory += data
            return
        with disk_failures():
            if self._file is None:
                self._file = TemporaryFile(buffering=0, dir=self._directory)  # noqa: SIM115 - `close` closes it
                _append(self._file, self._memory)
                self._memory = bytearray()
            _append(self._file, data)

    def sha256(self) -> bytes:
        """The sha2-256 digest of the bytes written so far."""
        return self._hash.digest()

    def whole(self) -> bytearray:
        """All bytes in one piece, which the caller must not change; a copy if they are on the disk."""
        if self._file is None:
            return self._memory
        content, at = bytearray(self._size), 0
        with disk_failures(), memoryview(content) as rest:
            while read := os.preadv(self._file.fileno(), [rest[at:]], at):
                at += read
        if at < self._size:
            raise StorageUnavailable("the block store does not answer: an upload was cut short")
        return content

    def pieces(self) -> Iterator[bytes]:
        """All bytes, piece by piece."""
        if self._file is None:
            yield bytes(self._memory)
            return
        at = 0
        with disk_failures():
            while piece := os.pread(self._file.fileno(), _PIECE_BYTES, at):
                at += len(piece)
                yield piece

    def close(self) -> None:
        """Drop the content. A failing disk is ignored."""
        self.closed = True
        self._memory = bytearray()
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _append(file: IO[bytes], data: bytes | bytearray | memoryview) -> None:
    """Write all of `data`; one system call may write only a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


@contextmanager
def disk_failures() -> Generator[None]:
    """Turn an `OSError` of the disk (full, over quota, read-only, broken, missing) into `StorageUnavailable`."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "input/output error"
        raise StorageUnavailable(f"the block store does not answer: {reason}") from error


class BlockStore(Protocol):
    """Blocks by the sha2-256 digest of their bytes, each written once. Many threads may use it concurrently.

    Every method raises `StorageUnavailable` when the disk or database under it fails.
    """

    def put_many(self, blocks: Iterable[tuple[bytes, bytes]]) -> None:
        """Store pairs of digest and bytes, which must belong together; durable when this returns.

        A stored block is left alone, or repaired when its bytes are damaged. After a failure some of the blocks may be
        stored, each of them whole. Errors of the iterator `blocks` are raised unchanged.
        """
        ...

    def get(self, digest: bytes) -> bytes:
        """The bytes of a block, hashed anew; raises `ContentNotFound`, or `Integrity` when they are damaged."""
        ...

    def size(self, digest: bytes) -> int:
        """The length in bytes of a block, which is not read; raises `ContentNotFound`."""
        ...

    def has(self, digest: bytes) -> bool:
        """Whether the store has a block. Its bytes are not read."""
        ...

    def digests(self) -> Iterator[bytes]:
        """The digests of all blocks in ascending order, so that two stores can be compared."""
        ...

    def check(self) -> None:
        """Return if the local disk can take uploads."""
        ...

    def open_spool(self) -> Spool:
        """A place for an upload in progress. Nothing remains after it is closed or the process ends."""
        ...
