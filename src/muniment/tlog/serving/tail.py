"""The hashes of the entries that are in no full bundle: each process keeps them, since no tile of them is stored.

An entry may have 64 KiB, and its hash 32 bytes: whoever asks for these again and again must cost no more than a read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from muniment.tlog.fields import HASH_BYTES
from muniment.tlog.sequencing import store
from muniment.tlog.tiles import WIDTH, width_at
from muniment.tlog.tree import leaf_hash

if TYPE_CHECKING:
    from muniment.http.request import Request
    from muniment.storage.database import Reader
    from muniment.tlog.sequencing.store import Epoch

# Entries that are in memory at a time while they are hashed: 1 MiB at most.
_READ_MAX: Final = 16


class Tail:
    """The hashes of the last entries of each epoch: at most 255, 8 KiB."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        # By origin: the number of the tile, and its first hashes. They are signed, so they never change.
        self._kept: dict[str, tuple[int, bytes]] = {}
        # A process that has just started reads the entries once, however many ask.
        self._lock = asyncio.Lock()

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """That of the process."""
        tail = request.context.serving.log_tail
        assert isinstance(tail, cls)  # noqa: S101 - the application puts it there
        return tail

    async def hashes(self, database: Reader, epoch: Epoch, n: int) -> tuple[bytes, int] | None:
        """The hashes of tile `n` of level 0 as far as it is signed, and the bytes of the entries that were read.

        None when they are in no tail any more: then the tile is stored.
        """
        async with self._lock:
            kept_n, kept = self._kept.get(epoch.origin, (n, b""))
            if kept_n != n:
                kept = b""
            read, wanted = 0, width_at(0, n, epoch.note_size)
            while (count := len(kept) // HASH_BYTES) < wanted:
                first, most = n * WIDTH + count, min(wanted - count, _READ_MAX)
                entries = await store.read_tail(database, epoch.epoch, first, most)
                if len(entries) < most:
                    return None
                kept += b"".join(map(leaf_hash, entries))
                read += sum(map(len, entries))
            self._kept[epoch.origin] = n, kept
            return kept[: HASH_BYTES * wanted], read
