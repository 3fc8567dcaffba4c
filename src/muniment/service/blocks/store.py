"""The protocol of a block store. Its methods are synchronous: callers run long ones in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muniment.service.blocks.disk import Spool


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
