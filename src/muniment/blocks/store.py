"""What a block store is. Its methods are synchronous: callers run them in a thread when they may take long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muniment.blocks.disk import Spool


class BlockStore(Protocol):
    """Blocks by the sha2-256 digest of their bytes, each written once. Safe to use from many threads at once.

    Every method raises `StorageUnavailable` when the disk or database under it does not do its part.
    """

    def put_many(self, blocks: Iterable[tuple[bytes, bytes]]) -> None:
        """Store pairs of digest and bytes, which must belong together; durable when this returns.

        A block that is there already is left alone, or mended when its stored bytes are damaged. After a
        failure some of the blocks may be stored, each of them whole. What `blocks` itself raises comes through.
        """
        ...

    def get(self, digest: bytes) -> bytes:
        """The bytes of a block, hashed anew; raises `ContentNotFound`, or `Integrity` when they are damaged."""
        ...

    def size(self, digest: bytes) -> int:
        """The length in bytes of a block, which is not read; raises `ContentNotFound`."""
        ...

    def has(self, digest: bytes) -> bool:
        """Whether a block is here. Its bytes are not read."""
        ...

    def digests(self) -> Iterator[bytes]:
        """The digests of all blocks in their order, so that two stores can be compared."""
        ...

    def check(self) -> None:
        """Return when uploads can be taken, as far as the local disk is concerned."""
        ...

    def open_spool(self) -> Spool:
        """A place for an upload on its way, of which nothing is left when it is closed or the process dies."""
        ...
